"""Searches: search, explain, pause, resume, reset, and calls through a limiter."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar, cast

import trio
from attrs import define, field, frozen

from actors.actor import Address, Recheck
from actors.environment import Environment
from actors.search.callbacks import OnComplete, OnJobDone
from actors.search.dispatcher import Submit
from actors.search.rate_limiter import SourceChanged
from actors.search.request_execution import holding_slot, searching_with
from actors.search.search import Execute, Search, Terms, app_lane
from actors.search.source_directory import SourceDirectory, SourceEntry
from cormorant.rules.errors import ActorError, StorageUnavailable
from cormorant.rules.search import priorities, reservations
from cormorant.rules.search.limits import INTERVAL_S_MAX, Lane, LearnedLimits
from cormorant.rules.search.outcomes import NestedSearch, Outcome, SearchError
from cormorant.rules.search.priorities import Priority
from cormorant.rules.search.reasons import Explanation, NextRequest, explain, set_aside
from cormorant.rules.search.requests import QUERY_LENGTH_MAX, BadRequest, Result, SearchRequest, poll_key, search_key
from cormorant.rules.search.source_state import SourceState
from cormorant.rules.settings.sources import SEARCHED
from storage.search import answers, source_states
from storage.search.source_states import KnownState
from storage.search.sources import SourceRecord

T = TypeVar("T")

WAIT_S_MAX = 366 * 86_400.0
"""A search that may wait longer waits as long as it takes."""
CACHE_S = 1.0
"""How long a search looks for an answer that is kept already, also if it may not wait for a source."""
ADOPT_S = 1.0
"""How long a change by hand waits for a limiter to show it. One that is being restarted reads it later."""


@frozen(kw_only=True)
class SourceStatus:
    """A source at this moment: what waits for it, what runs, and why the next background request waits."""

    name: str
    kind: str
    waiting: int
    running: int
    explanation: Explanation


@define(eq=False, kw_only=True)
class Searches:
    """The searches and sources of a service."""

    environment: Environment = field(kw_only=False)
    directory: SourceDirectory
    dispatcher: Address[Submit]

    async def search(  # noqa: PLR0913 - the ways to search, all but the first with a default
        self,
        wanted: str | SearchRequest,
        *,
        sources: Iterable[str] | None = None,
        priority: Priority | None = None,
        max_wait_s: float | None = None,
        timeout_s: float | None = None,
        pace_s: float | None = None,
        consumer: str = "",
        execute: Execute | None = None,
        on_complete: OnComplete | None = None,
        on_job_done: OnJobDone | None = None,
    ) -> Search:
        """Submit a search, and return at once what it can be followed by."""
        request = _request(wanted)
        terms = Terms(
            priority=priorities.sorted_as(priority),
            max_wait_s=_wait(max_wait_s, priority),
            timeout_s=_timeout(timeout_s, priority),
            pace_s=_seconds("pace_s", pace_s, INTERVAL_S_MAX),
            consumer=consumer,
            function=None if execute is None else searching_with(execute, request),
        )
        return await self.submit(request, terms, sources=sources, on_complete=on_complete, on_job_done=on_job_done)

    async def call(  # noqa: PLR0913 - as a search
        self,
        source: str,
        function: Callable[[SourceRecord], Awaitable[T]],
        *,
        about: str = "",
        priority: Priority = Priority.BACKGROUND,
        max_wait_s: float | None = None,
        timeout_s: float | None = None,
        lane: Lane = Lane.QUERY,
        consumer: str,
    ) -> T:
        """What the function returns, called once the source may be asked.

        Raises what the function raised, or why it was not called. `about` is what the history shows.
        """
        request = SearchRequest(query=about.replace("\0", "")[:QUERY_LENGTH_MAX])
        terms = Terms(
            priority=priority,
            max_wait_s=_wait(max_wait_s, priority),
            timeout_s=_timeout(timeout_s, priority),
            lane=lane,
            consumer=consumer,
            function=function,
        )
        [outcome] = await self.outcomes(request, terms, sources=[source])
        if not outcome.is_answer:
            raise error_of(outcome)
        return cast("T", outcome.value)

    async def outcomes(
        self, request: SearchRequest, terms: Terms, *, sources: Iterable[str] | None
    ) -> tuple[Outcome, ...]:
        """Submit a search and wait for what comes of it at every source. It ends when the caller is cancelled."""
        async with await self.submit(request, terms, sources=sources) as search:
            async for _ in search:
                pass
        return search.outcomes

    async def submit(
        self,
        request: SearchRequest,
        terms: Terms,
        *,
        sources: Iterable[str] | None,
        on_complete: OnComplete | None = None,
        on_job_done: OnJobDone | None = None,
    ) -> Search:
        """Submit a search on given terms."""
        if holding_slot.get():
            raise NestedSearch
        submitted_at = self.environment.now()
        ends_at = math.inf if terms.max_wait_s is None else trio.current_time() + terms.max_wait_s
        if not self.directory.loaded.is_set():
            await self._until_loaded(ends_at)
        names = self._names(sources)
        cached = {} if terms.function is not None else await self._cached(request, names, terms, ends_at)
        return await self.dispatcher.ask(
            partial(
                Submit,
                request=request,
                sources=names,
                cached=cached,
                terms=terms,
                submitted_at=submitted_at,
                on_complete=on_complete,
                on_job_done=on_job_done,
            )
        )

    async def _until_loaded(self, ends_at: float) -> None:
        """Wait until the sources are known, as long as the search may wait."""
        with trio.move_on_at(ends_at):
            await self.directory.loaded.wait()
        if not self.directory.loaded.is_set():
            raise StorageUnavailable(
                "the sources are not known yet, because the database cannot be reached: ask again later"
            )

    def _names(self, sources: Iterable[str] | None) -> list[str]:
        if sources is None:
            return self.searched()
        return [self.directory.find(name).record.name for name in dict.fromkeys(sources)]

    def searched(self) -> list[str]:
        """Those that are searched where none is named, by name."""
        return sorted(name for name, entry in self.directory.by_name.items() if entry.record.kind in SEARCHED)

    async def _cached(
        self, request: SearchRequest, names: Sequence[str], terms: Terms, ends_at: float
    ) -> Mapping[str, Sequence[Result]]:
        """What is known already. Nothing while the database is away: the search waits for its sources then."""
        is_kept = terms.poll or (terms.priority is not Priority.RSS and self.environment.settings.search.cache_enabled)
        if not is_kept or not names:
            return {}
        key = poll_key(request) if terms.poll else search_key(request)
        by_id = {self.directory.by_name[name].record.id: name for name in names}
        with trio.CancelScope(deadline=max(ends_at, trio.current_time() + CACHE_S)), suppress(StorageUnavailable):
            now = self.environment.now()
            found = await self.environment.database.read(answers.find_cached, list(by_id), key, now=now)
            return {by_id[source_id]: results for source_id, results in found.items()}
        return {}

    def explain(
        self,
        source: str,
        priority: Priority | None = None,
        *,
        lane: Lane = Lane.QUERY,
        app: str = "",
        share: float = 1.0,
    ) -> Explanation:
        """Why a request submitted now would wait, gate by gate, and until when; one of an app, with its share."""
        snapshot = self.directory.find(source).snapshot
        known = snapshot.known or KnownState(
            state=SourceState(),
            learned=LearnedLimits(),
            limits=snapshot.record.limits,
            edges={each: {} for each in Lane},
        )
        used_up = snapshot.shares.get(app_lane(lane, app, share))
        request = NextRequest(lane=lane, priority=priorities.sorted_as(priority), share_reason=used_up)
        explanation = explain(known.state, known.limits, request, now=self.environment.now(), edges=known.edges[lane])
        return set_aside(explanation, snapshot.gone_because) if snapshot.gone_because else explanation

    def status(self) -> tuple[SourceStatus, ...]:
        """Every source, by name."""
        snapshots = {name: entry.snapshot for name, entry in sorted(self.directory.by_name.items())}
        return tuple(
            SourceStatus(
                name=name,
                kind=snapshot.record.kind,
                waiting=snapshot.waiting,
                running=snapshot.running,
                explanation=self.explain(name),
            )
            for name, snapshot in snapshots.items()
        )

    async def pause(self, source: str) -> None:
        """Ask a source no more, in any process, also after a restart."""
        await self._change(source, reservations.pause)

    async def resume(self, source: str) -> None:
        """Go on asking a source."""
        await self._change(source, reservations.resume)

    async def reset(self, source: str) -> None:
        """Forget the trouble with a source: cooldown, breaker, refused credentials. What was spent stays spent."""
        await self._change(source, reservations.reset)

    async def _change(self, source: str, rule: Callable[[SourceState], SourceState]) -> None:
        entry = await self.find(source)
        known = await self.environment.database.run(
            source_states.change, entry.record.id, rule, configured=entry.record.limits
        )
        try:
            await entry.address.ask(partial(SourceChanged, known=known), timeout_s=ADOPT_S)
        except ActorError:  # the row decides: a limiter that is started later reads it
            entry.address.tell_once(Recheck())

    async def find(self, source: str) -> SourceEntry:
        """A source, or `UnknownSource`. Waits until the sources are known."""
        await self.directory.loaded.wait()
        return self.directory.find(source)


def _wait(given: float | None, priority: Priority | None) -> float | None:
    """How long it may wait; None: as long as it takes, as `math.inf` says for a class that has a limit otherwise."""
    _seconds("max_wait_s", given, math.inf)
    if given is None:
        return priorities.max_wait_s(priority)
    return None if given > WAIT_S_MAX else given


def _timeout(given: float | None, priority: Priority | None) -> float:
    _seconds("timeout_s", given, INTERVAL_S_MAX)
    return priorities.timeout_s(priority) if given is None else given


def _seconds(part: str, value: float | None, most: float) -> float | None:
    if value is not None and not 0 <= value <= most:
        allowed = "0 or more" if most == math.inf else f"from 0 to {most:g}"
        raise BadRequest(part, f"{value!r} is not possible; give seconds, {allowed}")
    return value


def _request(wanted: str | SearchRequest) -> SearchRequest:
    if isinstance(wanted, SearchRequest):
        return wanted
    if not wanted.strip():
        raise BadRequest("query", "it is empty; give words, or a SearchRequest without any for what is new")
    return SearchRequest(query=wanted)


def error_of(outcome: Outcome) -> Exception:
    """Why there is no answer."""
    if isinstance(outcome.error, Exception):
        return outcome.error
    return SearchError(f"{outcome.source} was not asked: {outcome.status.value}")
