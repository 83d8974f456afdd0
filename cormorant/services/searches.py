"""Searches: search, explain, pause, resume, reset, and calls through a limiter."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from attrs import define, field, frozen

from actors.actor import Address
from actors.environment import Environment
from actors.search.callbacks import OnComplete, OnJobDone
from actors.search.dispatcher import Submit
from actors.search.request_execution import holding_slot
from actors.search.search import Execute, Search
from actors.search.source_reconciler import SourceDirectory
from actors.search.source_requests import SourceRequests
from cormorant.rules.search import priorities, reservations
from cormorant.rules.search.limits import INTERVAL_S_MAX, Lane, LearnedLimits
from cormorant.rules.search.outcomes import NestedSearch, Outcome, SearchError
from cormorant.rules.search.priorities import Priority
from cormorant.rules.search.reasons import Explanation, NextRequest, explain, set_aside
from cormorant.rules.search.requests import QUERY_LENGTH_MAX, BadRequest, Result, SearchPage, SearchRequest, search_key
from cormorant.rules.search.source_state import SourceState
from cormorant.rules.settings.sources import SEARCHED
from storage.search import answers, source_states
from storage.search.source_states import KnownState
from storage.search.sources import SourceRecord, UnknownSource

WAIT_S_MAX = 366 * 86_400.0
"""Who waits longer waits as long as it takes."""


@frozen(kw_only=True)
class SourceSnapshot:
    """A source at this moment: what waits for it, what runs, and what stands in the way of the next background request."""

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
        lane: Lane = Lane.QUERY,
        consumer: str = "",
        execute: Execute | None = None,
        on_complete: OnComplete | None = None,
        on_job_done: OnJobDone | None = None,
    ) -> Search:
        """Submit a search, and return at once what it can be followed by."""
        if holding_slot.get():
            raise NestedSearch
        request = _request(wanted)
        _check_seconds("max_wait_s", max_wait_s, math.inf)
        _check_seconds("timeout_s", timeout_s, INTERVAL_S_MAX)
        _check_seconds("pace_s", pace_s, INTERVAL_S_MAX)
        if not self.directory.loaded.is_set():
            await self.directory.loaded.wait()
        names = self._names(sources)
        cached = await self._cached(request, names) if execute is None and priority is not Priority.RSS else {}
        return await self.dispatcher.ask(
            partial(
                Submit,
                request=request,
                sources=names,
                cached=cached,
                priority=priorities.sorted_as(priority),
                max_wait_s=_wait(max_wait_s, priority),
                timeout_s=priorities.timeout_s(priority) if timeout_s is None else timeout_s,
                pace_s=pace_s,
                lane=lane,
                consumer=consumer,
                execute=execute,
                on_complete=on_complete,
                on_job_done=on_job_done,
            )
        )

    def _names(self, sources: Iterable[str] | None) -> list[str]:
        known = self.directory.by_name
        if sources is None:
            return self.searched()
        names = list(dict.fromkeys(sources))
        for name in names:
            if name not in known:
                raise UnknownSource(name, list(known))
        return names

    def searched(self) -> list[str]:
        """Those that are searched where none is named, by name."""
        return sorted(name for name, requests in self.directory.by_name.items() if requests.record.kind in SEARCHED)

    async def _cached(self, request: SearchRequest, names: Sequence[str]) -> Mapping[str, Sequence[Result]]:
        if not self.environment.settings.search.cache_enabled or not names:
            return {}
        by_id = {self.directory.by_name[name].record.id: name for name in names}
        found = await self.environment.database.read(
            answers.find_cached, list(by_id), search_key(request), now=self.environment.now()
        )
        return {by_id[source_id]: results for source_id, results in found.items()}

    def explain(self, source: str, priority: Priority | None = None, *, lane: Lane = Lane.QUERY) -> Explanation:
        """Why a request submitted now would wait, gate by gate, and until when."""
        requests = self._requests_of(source)
        known = requests.known or KnownState(
            state=SourceState(),
            learned=LearnedLimits(),
            limits=requests.record.limits,
            edges={each: {} for each in Lane},
        )
        request = NextRequest(lane=lane, priority=priorities.sorted_as(priority))
        explanation = explain(known.state, known.limits, request, now=self.environment.now(), edges=known.edges[lane])
        return set_aside(explanation, requests.gone_because) if requests.gone_because else explanation

    def status(self) -> tuple[SourceSnapshot, ...]:
        """Every source, by name."""
        return tuple(
            SourceSnapshot(
                name=name,
                kind=requests.record.kind,
                waiting=requests.waiting(),
                running=len(requests.running),
                explanation=self.explain(name),
            )
            for name, requests in sorted(self.directory.by_name.items())
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
        requests = await self.requests_of(source)
        await self.environment.database.run(
            source_states.change, requests.record.id, rule, configured=requests.record.limits
        )
        requests.is_stale = True
        requests.wake_up.set()

    async def requests_of(self, source: str) -> SourceRequests:
        """The requests of a source, or `UnknownSource`. Waits until the sources are known."""
        await self.directory.loaded.wait()
        return self._requests_of(source)

    def _requests_of(self, source: str) -> SourceRequests:
        requests = self.directory.by_name.get(source)
        if requests is None:
            raise UnknownSource(source, list(self.directory.by_name))
        return requests


def _wait(given: float | None, priority: Priority | None) -> float | None:
    """How long it may wait; None: as long as it takes, as `math.inf` says for a class that has a limit otherwise."""
    if given is None:
        return priorities.max_wait_s(priority)
    return None if given > WAIT_S_MAX else given


def _check_seconds(part: str, value: float | None, most: float) -> None:
    if value is not None and not 0 <= value <= most:
        allowed = "0 or more" if most == math.inf else f"from 0 to {most:g}"
        raise BadRequest(part, f"{value!r} is not possible; give seconds, {allowed}")


def _request(wanted: str | SearchRequest) -> SearchRequest:
    if isinstance(wanted, SearchRequest):
        return wanted
    if not wanted.strip():
        raise BadRequest("query", "it is empty; give words, or a SearchRequest without any for what is new")
    return SearchRequest(query=wanted)


T = TypeVar("T")


async def through_gate(  # noqa: PLR0913 - as a search
    searches: Searches,
    source: str,
    call: Callable[[SourceRecord], Awaitable[T]],
    *,
    about: str,
    max_wait_s: float | None,
    timeout_s: float,
    priority: Priority = Priority.BACKGROUND,
    lane: Lane = Lane.QUERY,
    consumer: str,
) -> T:
    """What the call returns, once the source may be asked. Raises what the call raised, or why it was not made."""
    got: list[T] = []

    async def execute(record: SourceRecord, _request: SearchRequest) -> SearchPage:
        got.append(await call(record))
        return SearchPage(results=())

    search = await searches.search(
        SearchRequest(query=about.replace("\0", "")[:QUERY_LENGTH_MAX]),
        sources=[source],
        priority=priority,
        max_wait_s=max_wait_s,
        timeout_s=timeout_s,
        lane=lane,
        consumer=consumer,
        execute=execute,
    )
    async with search:
        outcomes = [outcome async for outcome in search]
    if got and outcomes[0].is_answer:
        return got[0]
    raise error_of(outcomes[0])


def error_of(outcome: Outcome) -> Exception:
    """Why there is no answer."""
    if isinstance(outcome.error, Exception):
        return outcome.error
    return SearchError(f"{outcome.source} was not asked: {outcome.status.value}")
