"""Who asks a site for what is new? One request for all apps that want it now, and its page for all that come soon after."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta

import trio
from attrs import define, field, frozen

from cormorant.rules.outcomes import Outcome, OutcomeStatus
from cormorant.rules.ports import Clock
from cormorant.rules.priorities import Priority
from cormorant.rules.searches import PAGE_SIZE_MAX, SearchRequest
from cormorant.web.port import SearchesPort

__all__ = ["FeedAsker", "Feeds"]

GATHER_S = 0.05
"""So long the first waits for others that come at the same moment, with categories of their own."""
AGAIN_S = 1.0
"""When to look again if somebody else in this process asks the site for what is new."""


@frozen
class _Page:
    outcome: Outcome
    categories: frozenset[int]
    fetched_at: datetime


@define(eq=False)
class _Flight:
    """A request under way, or about to be made."""

    categories: frozenset[int] | None = None
    """None: it still gathers."""
    ended: trio.Event = field(factory=trio.Event)
    outcome: Outcome | None = None


@frozen(kw_only=True)
class FeedAsker:
    """An app that wants to know what is new."""

    name: str
    hold_s: float
    refusal: Callable[[str], Awaitable[Outcome | None]]
    """Why a source may not be asked for it now, though pages that are there are for all."""


@define(eq=False, kw_only=True)
class Feeds:
    """The pages of what is new, by source. An empty set of categories means all of them."""

    searches: SearchesPort
    clock: Clock
    ttl_s: float
    _pages: dict[str, _Page] = field(init=False, factory=dict)
    _flights: dict[str, _Flight] = field(init=False, factory=dict)
    _wanted: dict[str, set[int]] = field(init=False, factory=dict)
    """What apps have asked for so far: one request brings it for all."""

    async def page(self, asker: FeedAsker, source: str, categories: Sequence[int]) -> Outcome:
        """What is new at a source in these categories and perhaps others, or why that cannot be said."""
        wanted = frozenset(categories)
        self._want(source, wanted)
        while True:
            kept = self._pages.get(source)
            if kept is not None and _covers(kept.categories, wanted) and self._is_fresh(kept):
                await trio.lowlevel.checkpoint()
                return kept.outcome
            flight = self._flights.get(source)
            if flight is None:
                return await self._fetch(asker, source)
            is_for_us = flight.categories is None or _covers(flight.categories, wanted)
            await flight.ended.wait()
            if is_for_us and flight.outcome is not None:
                return flight.outcome

    def _want(self, source: str, categories: frozenset[int]) -> None:
        known = self._wanted.setdefault(source, set(categories))
        if not categories:
            known.clear()
        elif known:
            known |= categories

    def _is_fresh(self, page: _Page) -> bool:
        return timedelta(0) <= self.clock.now() - page.fetched_at < timedelta(seconds=self.ttl_s)

    async def _fetch(self, asker: FeedAsker, source: str) -> Outcome:
        flight = self._flights[source] = _Flight()
        try:
            refusal = await asker.refusal(source)
            if refusal is not None:
                return refusal
            await trio.sleep(GATHER_S)
            flight.categories = frozenset(self._wanted[source])
            outcome = await self._ask(asker, source, flight.categories)
            flight.outcome = outcome
            if outcome.is_answer:
                self._pages[source] = _Page(outcome, flight.categories, self.clock.now())
            return outcome
        finally:
            # Also when this app is gone or may not ask: those who wait begin anew.
            del self._flights[source]
            flight.ended.set()

    async def _ask(self, asker: FeedAsker, source: str, categories: frozenset[int]) -> Outcome:
        request = SearchRequest(categories=sorted(categories), limit=PAGE_SIZE_MAX)
        until = trio.current_time() + asker.hold_s
        while True:
            left_s = max(0.0, until - trio.current_time())
            search = await self.searches.search(
                request, sources=[source], priority=Priority.RSS, max_wait_s=left_s, consumer=asker.name
            )
            async with search:
                (outcome,) = [each async for each in search]
            if outcome.status is not OutcomeStatus.DEDUPLICATED or left_s <= AGAIN_S:
                return outcome
            await trio.sleep(AGAIN_S)


def _covers(fetched: frozenset[int], wanted: frozenset[int]) -> bool:
    return not fetched or bool(wanted and wanted <= fetched)
