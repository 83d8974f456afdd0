"""Searches that were begun over HTTP, with their outcomes; the latest are kept."""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Final

import msgspec
import trio
from attrs import define, field

from actors.search.search import Search
from cormorant.rules.errors import NotFound
from cormorant.services.searches import Searches
from cormorant.web.auth import ListenPermit
from cormorant.web.models import OutcomeOut, SearchOut, outcome_out
from cormorant.web.shutdown import Shutdown

__all__ = ["OutcomeStream", "RunningSearch", "RunningSearches"]

KEPT_MAX: Final = 200
BEAT_S: Final = 15.0
"""A stream says something at least so often, so that nobody in between takes it for dead."""


@define(eq=False)
class RunningSearch:
    """A search with its outcomes so far."""

    search: Search
    outcomes: list[OutcomeOut] = field(factory=list)
    is_done: bool = False
    _changed: trio.Event = field(init=False, factory=trio.Event)

    def shown(self) -> SearchOut:
        """As it is now."""
        return SearchOut(id=self.search.id, is_done=self.is_done, outcomes=list(self.outcomes))

    async def change(self) -> None:
        """Wait until something comes."""
        await self._changed.wait()

    async def done(self) -> None:
        """Wait for the end."""
        while not self.is_done:
            await self.change()

    def tell(self) -> None:
        """Wake all who watch."""
        self._changed.set()
        self._changed = trio.Event()


@define(eq=False, kw_only=True)
class RunningSearches:
    """The searches of this server. Belongs to its incarnation, as do the tasks that follow them."""

    nursery: trio.Nursery
    closing: Shutdown
    searches: Searches
    _kept: OrderedDict[int, RunningSearch] = field(init=False, factory=OrderedDict)

    def take(self, search: Search) -> RunningSearch:
        """Follow a search, and keep what comes of it. The oldest that is done is forgotten for it."""
        watched = self._kept[search.id] = RunningSearch(search)
        while len(self._kept) > KEPT_MAX:
            oldest = next((number for number, each in self._kept.items() if each.is_done), next(iter(self._kept)))
            self._kept.pop(oldest).search.cancel()
        self.nursery.start_soon(self._follow, watched)
        return watched

    def find(self, number: int) -> RunningSearch:
        """A search, or `NotFound`."""
        watched = self._kept.get(number)
        if watched is None:
            raise NotFound("search", number, f"the last {KEPT_MAX} are kept until a restart")
        return watched

    async def _follow(self, watched: RunningSearch) -> None:
        async for outcome in watched.search:
            watched.outcomes.append(outcome_out(outcome, self.searches.directory.by_name.get(outcome.source)))
            watched.tell()
        watched.is_done = True
        watched.tell()

    def stream(self, watched: RunningSearch, permit: ListenPermit) -> OutcomeStream:
        """The outcomes as server-sent events: those that came, then those to come."""
        return OutcomeStream(watched, self.closing, permit)


@define(eq=False)
class OutcomeStream:
    """Server-sent events: `outcome` for each source, then `done`. Ends with the server, too, and when they sign out."""

    watched: RunningSearch
    closing: Shutdown
    permit: ListenPermit
    _sent: int = field(init=False, default=0)
    _is_over: bool = field(init=False, default=False)

    def __aiter__(self) -> OutcomeStream:
        return self

    async def __anext__(self) -> bytes:
        await trio.lowlevel.checkpoint()
        if self._is_over or self.closing.is_stopping:
            raise StopAsyncIteration
        outcomes = self.watched.outcomes
        if self._sent == len(outcomes) and not self.watched.is_done:
            with trio.move_on_after(BEAT_S):
                await self.permit.run_until_signed_out(lambda: self.closing.run_until_shutdown(self.watched.change))
        if self.permit.is_over:
            raise StopAsyncIteration
        if self._sent < len(outcomes):
            self._sent += 1
            return _event("outcome", self._sent, msgspec.json.encode(outcomes[self._sent - 1]))
        if self.watched.is_done:
            self._is_over = True
            return _event("done", self._sent + 1, b'{"outcomes":%d}' % len(outcomes))
        if self.closing.is_stopping:
            raise StopAsyncIteration
        return b": still there\n\n"


def _event(name: str, number: int, body: bytes) -> bytes:
    return b"event: %s\nid: %d\ndata: %s\n\n" % (name.encode(), number, body)


WAIT_S_MAX: Final = 90.0


def wait_s_of(wanted: float) -> float | None:
    """How long an answer may wait; None when that is not possible."""
    return wanted if 0 <= wanted <= WAIT_S_MAX and math.isfinite(wanted) else None
