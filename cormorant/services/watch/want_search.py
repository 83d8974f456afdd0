"""Job handler of kind want."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from attrs import field, frozen

from actors.environment import Environment
from actors.jobs.handler import JobContext
from actors.watch.watch_jobs import search_job
from cormorant.rules.jobs.verdicts import Fail, Retry, Snooze
from cormorant.rules.search import priorities
from cormorant.rules.search.caps import load_caps
from cormorant.rules.search.outcomes import Outcome, OutcomeStatus, SourceLimited
from cormorant.rules.search.priorities import Priority
from cormorant.rules.search.requests import Caps, SearchRequest
from cormorant.rules.settings.watch import WatchlistSettings
from cormorant.rules.watch.artists import charged
from cormorant.rules.watch.events import WantChanged, WatchlistSearch
from cormorant.rules.watch.wants import TRACKS_AFTER, Want, WantState, next_search_at, tracks_of
from cormorant.services.durable_search import PATIENCE_S, SNOOZE_S_MIN, entry_of, is_answer, wait_of
from cormorant.services.searches import Searches
from storage.search import answers, sources
from storage.search.answers import SourceAnswer
from storage.watch import artists, choice
from storage.watch.choice import CandidateChoice, Judged, why_chosen, why_nothing_fits

SPARE_S = 60.0
CHOOSE_AFTER_S = 1_800.0
"""So long all sources are waited for while something fits already; then the best of those that answered is taken."""


def longest_run_s(options: WatchlistSettings) -> float:
    """Longer than a run can take. It has at most one search through slskd and three at indexers, one after the other."""
    indexer_s = priorities.timeout_s(Priority.BACKGROUND)
    return PATIENCE_S + options.slskd_search_timeout_s + 3 * (PATIENCE_S + indexer_s) + SPARE_S


@frozen(kw_only=True)
class _Answers:
    """What is known after a run: who has answered what, and who has not."""

    entries: Mapping[str, SourceAnswer]
    failed: tuple[Outcome, ...] = ()
    closed: tuple[Outcome, ...] = ()


@frozen(kw_only=True)
class WantSearch:
    """The handler of the kind `want`."""

    environment: Environment = field(kw_only=False)
    searches: Searches
    chooser: CandidateChoice

    async def __call__(self, context: JobContext) -> None:
        """Ask those that have not answered yet, judge what came, and choose."""
        assert context.job_id is not None
        want = await context.transaction(choice.begin_search, _key_in(context.payload), now=self.environment.now())
        if want is None:
            return  # it was found, ignored or given up meanwhile
        if want.state is WantState.WANTED and want.next_at is not None:
            raise Snooze(max(SNOOZE_S_MIN, (want.next_at - self.environment.now()).total_seconds()))
        gathered = await self._gather(context, want)
        is_last = context.attempt >= context.max_attempts
        judged = self._judged(want, gathered)
        has_fit = any(judgement.is_accepted for _, _, judgement in judged)
        if gathered.failed:
            await self._charge(context, want, len(gathered.failed))
        if not (has_fit and self._has_waited(want)):
            if gathered.failed and not is_last:
                raise Retry("; ".join(f"{each.source}: {each.error}" for each in gathered.failed))
            if gathered.closed:
                raise Snooze(self._pause_s(want, gathered.closed, has_fit=has_fit))
        await self._decide(context, want, judged, why_nothing_fits(judged, sorted(gathered.entries), gathered.failed))

    def _pause_s(self, want: Want, closed: Sequence[Outcome], *, has_fit: bool) -> float:
        """Until the first closed source opens; with something that fits, no longer than all are waited for."""
        opens_s = min(wait_of(outcome) for outcome in closed)
        waited_s = (self.environment.now() - want.changed_at).total_seconds()
        return max(SNOOZE_S_MIN, min(opens_s, CHOOSE_AFTER_S - waited_s) if has_fit else opens_s)

    async def _gather(self, context: JobContext, want: Want) -> _Answers:
        await self.searches.directory.loaded.wait()  # right after a start not all are there
        assert context.job_id is not None
        entries = dict(await context.transaction(answers.read_answers, context.job_id))
        left = [name for name in self._names(want) if name not in entries]
        outcomes: list[Outcome] = []
        for request, names in (await self._requests(context, want, left)).items():
            outcomes += await self._ask(request, names)
        for outcome in outcomes:
            if is_answer(outcome):
                entries[outcome.source] = entry_of(outcome, now=self.environment.now())
        new = [entries[outcome.source] for outcome in outcomes if is_answer(outcome)]
        if new:
            await context.transaction(answers.record_answers, context.job_id, new)
        return _Answers(
            entries=entries,
            failed=tuple(each for each in outcomes if _has_failed(each)),
            closed=tuple(each for each in outcomes if not is_answer(each) and not _has_failed(each)),
        )

    def _names(self, want: Want) -> list[str]:
        known = self.searches.directory.by_name
        return [name for name in want.sources if name in known] if want.sources else self.searches.searched()

    async def _requests(self, context: JobContext, want: Want, names: Sequence[str]) -> dict[SearchRequest, list[str]]:
        """Who is asked what: by artist and album where a source can, else by words."""
        grouped: dict[tuple[str, int], list[str]] = {}
        found: dict[tuple[str, int], SearchRequest] = {}
        for name in names:
            record = self.searches.directory.by_name[name].record
            kept = await context.transaction(sources.caps, record.id) if record.kind != "slskd" else None
            request = request_for(want, kind=record.kind, caps=None if kept is None else load_caps(kept[0]))
            mark = (request.kind, len(request.params))
            found.setdefault(mark, request)
            grouped.setdefault(mark, []).append(name)
        return {found[mark]: group for mark, group in grouped.items()}

    async def _ask(self, request: SearchRequest, names: Sequence[str]) -> list[Outcome]:
        outcomes = await self._search(request, names)
        empty = [each.source for each in outcomes if each.is_answer and not each.results]
        if request.kind != "music" or "tracks" in request.params or not empty:
            return outcomes
        # By artist and album nothing was found; the same in words may find what is named differently.
        words = SearchRequest(query=f"{request.params['artist']} {request.params['album']}")
        again = {outcome.source: outcome for outcome in await self._search(words, empty)}
        return [again.get(outcome.source, outcome) for outcome in outcomes]

    async def _search(self, request: SearchRequest, names: Sequence[str]) -> list[Outcome]:
        is_soulseek = "tracks" in request.params
        search = await self.searches.search(
            request,
            sources=names,
            priority=Priority.BACKGROUND,
            max_wait_s=PATIENCE_S,
            timeout_s=self.environment.settings.watchlist.slskd_search_timeout_s if is_soulseek else None,
            consumer="watches",
        )
        async with search:
            return [outcome async for outcome in search]

    def _judged(self, want: Want, gathered: _Answers) -> list[Judged]:
        found = [(name, result) for name, entry in sorted(gathered.entries.items()) for result in entry.results]
        return self.chooser.judge(want, found, now=self.environment.now())

    def _has_waited(self, want: Want) -> bool:
        return self.environment.now() - want.changed_at >= timedelta(seconds=CHOOSE_AFTER_S)

    async def _decide(self, context: JobContext, want: Want, judged: Sequence[Judged], why: str) -> None:
        now = self.environment.now()
        assert context.job_id is not None
        tracks = tracks_of(want, now=now) if self._may_be_in_pieces(want) else []
        decide = partial(
            choice.decide,
            chooser=self.chooser,
            want=want,
            judged=judged,
            why=why,
            job_id=context.job_id,
            tracks=tracks,
            make_job=partial(search_job, self.environment),
            again_at=next_search_at(looks=want.looks + 1, now=now, jitter=self.environment.chance.random()),
            now=now,
        )
        decided = await context.transaction(decide)
        if decided is None:
            return
        why_this = why_chosen(decided, judged) if decided.state is WantState.CHOSEN else decided.reason
        self.environment.emit(WantChanged.of(decided, reason=why_this))
        if decided.state is WantState.CHOSEN:
            return
        self.environment.emit(WatchlistSearch(want=want.id, title=want.words, why=decided.reason))
        if decided.next_at is not None:
            raise Snooze(max(SNOOZE_S_MIN, (decided.next_at - now).total_seconds()))

    def _may_be_in_pieces(self, want: Want) -> bool:
        """Peers share files, sites share albums: only where peers are asked, and not at the first look."""
        peers = [name for name in want.sources if self._kind_of(name) == "slskd"]
        return bool(peers) and want.looks + 1 >= TRACKS_AFTER

    def _kind_of(self, name: str) -> str | None:
        record = self.searches.directory.record_of(name)
        return None if record is None else record.kind

    async def _charge(self, context: JobContext, want: Want, failed: int) -> None:
        """Searches that fail count against the artist's budget, as looks do."""
        kind, _, number = want.watch.partition(":")
        if kind == "artist" and number.isdigit():
            budget, cooldown_s = (
                self.environment.settings.watchlist.retry_budget,
                self.environment.settings.watchlist.cooldown_s,
            )
            cost = partial(charged, failed=failed, budget=budget, cooldown_s=cooldown_s, now=self.environment.now())
            await context.transaction(artists.charge, int(number), cost)


def request_for(want: Want, *, kind: str, caps: Caps | None) -> SearchRequest:
    """How a source of this kind is asked for a want."""
    if kind == "slskd" and want.kind == "track":
        params = {"artist": want.artist, "title": want.title, "tracks": "1"}
        return SearchRequest(query=want.words, kind="music", params=params)
    if kind == "slskd":
        params = {"artist": want.artist, "album": want.title, "tracks": str(want.facts.get("tracks_total") or 0)}
        return SearchRequest(query=want.words, kind="music", params=params)
    is_music = want.kind in {"album", "track"} and bool(want.artist)
    if is_music and want.kind == "album" and caps is not None and caps.can("music", "artist", "album"):
        return SearchRequest(kind="music", params={"artist": want.artist, "album": want.title})
    return SearchRequest(query=want.words)


def _has_failed(outcome: Outcome) -> bool:
    """Whether something went wrong; a source that is asked too fast is only closed."""
    return outcome.status is OutcomeStatus.FAILED and not isinstance(outcome.error, SourceLimited)


def _key_in(payload: Any) -> str:
    key = payload.get("want") if isinstance(payload, dict) else None
    if not isinstance(key, str):
        raise Fail('the payload names no want; it is { "want": KEY }')
    return key
