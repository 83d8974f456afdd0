"""LatestPoller: one poll for new releases serves all apps of all processes.

Invariant: of all processes that share a database one asks at a time. Its turn is a row there, and ends by itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import trio
from attrs import define, field, frozen

from actors.environment import Environment
from cormorant.rules.latest_polls import ALL, LatestState, Times, asked_for, is_fresh
from cormorant.rules.search import priorities
from cormorant.rules.search.limits import Lane
from cormorant.rules.search.outcomes import Outcome, OutcomeStatus, RateLimitWaitError
from cormorant.rules.search.priorities import Priority
from cormorant.rules.search.requests import PAGE_SIZE_MAX, SearchRequest
from cormorant.services.gate.shares import AppShare, ShareClaim, Shares
from cormorant.services.searches import Searches
from storage import gate
from storage.gate import PollTurn
from storage.search.sources import SourceRecord

__all__ = ["LatestFetcher", "LatestPoller"]

GATHER_S: Final = 0.05
"""So long the first waits for others that come at the same moment, with categories of their own."""
AGAIN_S: Final = 1.0
"""When to look again if somebody else asks the site for what is new."""
LOOK_S: Final = 1.0
"""So long it is believed what was seen of the polls of a source: what another process brings is shown so much later."""
PAGING_S: Final = 600.0
"""So much older may be what the second page of an app comes from: it goes on with what it has read."""
_SPARE_S: Final = 10.0
_RELEASE_S: Final = 1.0


@define(eq=False)
class _Poll:
    """A request under way, or about to be made."""

    waiting: set[int]
    """What those want who wait for it."""
    asked: frozenset[int] | None = None
    """None: it still gathers."""
    ended: trio.Event = field(factory=trio.Event)
    outcome: Outcome | None = None


@frozen(kw_only=True)
class LatestFetcher:
    """An app that wants to know what is new."""

    client: AppShare
    shares: Shares

    @property
    def name(self) -> str:
        """The name of the app."""
        return self.client.name

    @property
    def hold_s(self) -> float:
        """The longest time that its request may be held."""
        return self.client.settings.hold_s

    async def claim(self, source: str, *, until: float) -> ShareClaim | Outcome:
        """The right to ask a source for it, or why the app has none now. What is stored is for all apps."""
        return await self.shares.claim(self.client, source, lane=Lane.QUERY, priority=Priority.RSS, until=until)


@define(eq=False, kw_only=True)
class LatestPoller:
    """Keeps what is new in the database, by asking for it when an app wants it and it has become old."""

    environment: Environment = field(kw_only=False)
    searches: Searches
    _polls: dict[int, _Poll] = field(init=False, factory=dict)
    _seen: dict[int, tuple[float, LatestState]] = field(init=False, factory=dict)
    """What was last seen of the polls of each source, and when."""

    def has(self, source: SourceRecord, categories: Sequence[int], *, goes_on: bool = False) -> Outcome | None:
        """That what is new is kept, if that was seen a moment ago; None: it has to be looked for."""
        state = self._seen_lately(source.id)
        if state is None or not self._is_fresh(state, asked_for(categories), goes_on=goes_on):
            return None
        return _found(source)

    async def version(self, source: SourceRecord) -> Times:
        """What changes with every poll of a source. What is read after it is at least as new."""
        return (self._seen_lately(source.id) or await self._look(source.id)).fetched

    def _seen_lately(self, number: int) -> LatestState | None:
        seen_at, state = self._seen.get(number, (-math.inf, None))
        return state if trio.current_time() - seen_at < LOOK_S else None

    async def _look(self, number: int) -> LatestState:
        state = await self.environment.database.read(gate.look, number)
        self._seen[number] = (trio.current_time(), state)
        return state

    def _is_fresh(self, state: LatestState, wanted: frozenset[int], *, goes_on: bool) -> bool:
        ttl_s = self.environment.settings.search.rss_ttl_s + (PAGING_S if goes_on else 0.0)
        return is_fresh(state, wanted, now=self.environment.now(), ttl_s=ttl_s)

    async def bring(
        self, asker: LatestFetcher, source: SourceRecord, categories: Sequence[int], *, goes_on: bool = False
    ) -> Outcome:
        """See to it that what is new at a source in these categories is kept. Without an answer: why it is not.

        `goes_on` is for an app that has read the first page already.
        """
        wanted = asked_for(categories)
        until = trio.current_time() + asker.hold_s
        while True:
            # What was seen before may only say that all is well: whoever has to wait is looked after anew.
            if self._is_fresh(await self._look(source.id), wanted, goes_on=goes_on):
                return _found(source)
            if source.id not in self._polls:
                claim = await asker.claim(source.name, until=until)
                if isinstance(claim, Outcome):
                    return claim
                if source.id not in self._polls:
                    return await self._fetch(asker, source, wanted, claim, until)
                claim.release()  # somebody else was faster
            pending = self._polls[source.id]
            outcome = await self._join(pending, wanted, until)
            if outcome is not None:
                return outcome
            if trio.current_time() >= until and not pending.ended.is_set():
                return _too_late(asker, source)

    async def _join(self, pending: _Poll, wanted: frozenset[int], until: float) -> Outcome | None:
        """What came of somebody else's request; None: it is not for us, or the other one could wait less than we can."""
        if pending.asked is None:
            pending.waiting |= wanted
        with trio.CancelScope(deadline=until + priorities.timeout_s(Priority.RSS)):
            await pending.ended.wait()
        # Only now it is certain what was asked for: whoever came while the turn was taken came too late.
        is_for_us = pending.asked is None or ALL in pending.asked or wanted <= pending.asked
        outcome = pending.outcome if is_for_us else None
        is_closed = outcome is not None and outcome.status is OutcomeStatus.RATE_LIMITED
        return None if is_closed and trio.current_time() < until else outcome

    async def _fetch(
        self, asker: LatestFetcher, source: SourceRecord, wanted: frozenset[int], claim: ShareClaim, until: float
    ) -> Outcome:
        pending = self._polls[source.id] = _Poll(set(wanted))
        try:
            await trio.sleep(GATHER_S)
            pending.outcome = await self._ask_in_turn(asker, source, pending, until)
            return pending.outcome
        finally:
            # Also when this app is gone: those who wait begin anew.
            claim.release()
            del self._polls[source.id]
            pending.ended.set()

    async def _ask_in_turn(self, asker: LatestFetcher, source: SourceRecord, pending: _Poll, until: float) -> Outcome:
        while True:
            left_s = max(0.0, until - trio.current_time())
            waiting = frozenset(pending.waiting)
            turn = await self._take(source, waiting, lease_s=left_s + priorities.timeout_s(Priority.RSS) + _SPARE_S)
            if turn.is_fresh:
                pending.asked = waiting
                return _found(source)
            if turn.categories is not None:
                pending.asked = turn.categories
                return await self._ask(asker, source, turn, until)
            if left_s <= 0:
                return _too_late(asker, source)
            await trio.sleep(min(AGAIN_S, left_s))

    async def _take(self, source: SourceRecord, waiting: frozenset[int], *, lease_s: float) -> PollTurn:
        now = self.environment.now()
        return await self.environment.database.run(
            gate.take,
            source.id,
            waiting=waiting,
            now=now,
            ttl_s=self.environment.settings.search.rss_ttl_s,
            lease_s=lease_s,
        )

    async def _ask(self, asker: LatestFetcher, source: SourceRecord, turn: PollTurn, until: float) -> Outcome:
        is_kept = False
        asked = turn.categories or frozenset()
        try:
            outcome = await self._search(asker, source, asked, until)
            if outcome.is_answer:
                now = self.environment.now()
                await self.environment.database.run(
                    gate.keep, source.id, outcome.results, asked=asked, turn=turn, now=now
                )
                self._seen.pop(source.id, None)
                is_kept = True
            return outcome
        finally:
            if not is_kept and turn.until is not None:
                # Bounded: it would end by itself, only later.
                with trio.move_on_after(_RELEASE_S, shield=True):
                    await self.environment.database.run(gate.release, source.id, until=turn.until)

    async def _search(self, asker: LatestFetcher, source: SourceRecord, asked: frozenset[int], until: float) -> Outcome:
        request = SearchRequest(categories=sorted(asked - {ALL}), limit=PAGE_SIZE_MAX)
        while True:
            left_s = max(0.0, until - trio.current_time())
            search = await self.searches.search(
                request, sources=[source.name], priority=Priority.RSS, max_wait_s=left_s, consumer=asker.name
            )
            async with search:
                (outcome,) = [each async for each in search]
            if outcome.status is not OutcomeStatus.DEDUPLICATED or left_s <= AGAIN_S:
                return outcome
            await trio.sleep(AGAIN_S)


def _found(source: SourceRecord) -> Outcome:
    return Outcome(job_id=0, source=source.name, status=OutcomeStatus.FOUND, coverage=(source.name,))


def _too_late(asker: LatestFetcher, source: SourceRecord) -> Outcome:
    error = RateLimitWaitError(source.name, wait_s=AGAIN_S, max_wait_s=asker.hold_s, priority=Priority.RSS)
    return Outcome(job_id=0, source=source.name, status=OutcomeStatus.RATE_LIMITED, error=error)
