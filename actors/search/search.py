"""Search (what a caller holds), Ticket (one search at one source) and Terms (how it is made)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime
from types import TracebackType
from typing import Any, Self

import trio
from attrs import define, frozen

from cormorant.rules.search.limits import Lane
from cormorant.rules.search.outcomes import Outcome, OutcomeStatus, SearchResult, found_in
from cormorant.rules.search.priorities import Priority
from cormorant.rules.search.requests import SearchRequest
from storage.search.sources import SourceRecord

Execute = Callable[[Any, SearchRequest], Any]
"""`async (source, request) -> list[Result]`, or a `SearchPage`."""
SourceFunction = Callable[[SourceRecord], Awaitable[object]]
"""Asks a source for something. A `SearchPage` has the results of a search; anything else is the value of a call."""

AppLane = tuple[Lane, str, float]
"""A lane, and the app that has a queue of its own there because of its share of the quotas; "" and 1: all others."""


def app_lane(lane: Lane, app: str, share: float) -> AppLane:
    """The queue of an app that may use this part of each quota."""
    return (lane, app, share) if share < 1 else (lane, "", 1.0)


@frozen(kw_only=True)
class Terms:
    """How a search is made. Its submission, its tickets and their request share it."""

    priority: Priority = Priority.BACKGROUND
    max_wait_s: float | None = None
    """The longest wait, counted from submission; None: as long as it takes."""
    timeout_s: float
    pace_s: float | None = None
    """None: the pace of the source."""
    lane: Lane = Lane.QUERY
    consumer: str = ""
    """The app, or what of this program asks."""
    share: float = 1.0
    """The part of each quota that the consumer may use."""
    function: SourceFunction | None = None
    """None: the client of the source searches. Only then equal searches share a request and its answer."""
    poll: str = ""
    """The kind of a poll for new releases: those of one kind are one request, whose answer is kept for `search.rss_ttl`."""

    @property
    def place(self) -> AppLane:
        """The queue that its requests belong to."""
        return app_lane(self.lane, self.consumer, self.share)


@define(eq=False)
class OpenTickets:
    """How many tickets are open: without an outcome, or sent to a limiter and not read by it.

    Tickets count themselves, like the tokens of `trio.CapacityLimiter`.
    """

    count: int = 0


@define(eq=False, kw_only=True)
class Ticket:
    """One search at one source. `finish` is synchronous and never waits; the first outcome counts.

    The caller, the dispatcher and the limiter end it: whichever comes first.
    """

    sequence: int
    source: str
    request: SearchRequest
    search: Search
    terms: Terms
    submitted_at: datetime
    deadline: datetime | None
    open_tickets: OpenTickets
    is_unread: bool = False
    """Whether it was sent to a limiter that has not read it yet."""
    outcome: Outcome | None = None
    on_left: Callable[[Ticket], None] | None = None
    """Tells the limiter that has read it that the caller has left."""

    @property
    def priority(self) -> Priority:
        """The class that it was submitted with."""
        return self.terms.priority

    @property
    def is_live(self) -> bool:
        """Whether it has no outcome yet."""
        return self.outcome is None

    def finish(self, outcome: Outcome) -> bool:
        """Hand over what came of it. False: it had an outcome before."""
        if self.outcome is not None:
            return False
        self.outcome = outcome
        self.on_left = None
        if not self.is_unread:
            self.open_tickets.count -= 1
        self.search.take(outcome)
        return True

    def end(self, status: OutcomeStatus, error: BaseException | None = None, *, waited_s: float = 0.0) -> bool:
        """End without an answer."""
        return self.finish(
            Outcome(job_id=self.search.id, source=self.source, status=status, error=error, waited_s=waited_s)
        )

    def mark_read(self) -> None:
        """The limiter has read it, or never will."""
        if self.is_unread:
            self.is_unread = False
            if self.outcome is not None:
                self.open_tickets.count -= 1

    def leave(self) -> None:
        """The caller has left."""
        on_left = self.on_left
        if self.end(OutcomeStatus.CANCELLED) and on_left is not None:
            on_left(self)


class Search:
    """A search under way. Iterate over it, or `wait()` for the whole. Leaving `async with` cancels what is not done.

    Cancellation of the caller inside iteration or `wait()` cancels the search; otherwise the service owns it.
    """

    def __init__(self, search_id: int, count: int, followers: trio.MemorySendChannel[Outcome] | None = None) -> None:
        self.id = search_id
        self.tickets: Sequence[Ticket] = ()
        self._followers = followers
        """Gets each outcome, and is closed after the last one. It has room for all of them."""
        self._left = count
        self._outcomes: list[Outcome] = []
        self._seen = 0
        self._news: trio.Event | None = None
        """Set when the next outcome comes. The ticket that hands it over never waits."""
        if not count:
            self._end()

    def take(self, outcome: Outcome) -> None:
        """Hand an outcome to the holder of the search. For its tickets."""
        self._outcomes.append(outcome)
        self._left -= 1
        self._wake()
        if self._followers is not None:
            with suppress(trio.BrokenResourceError):  # its callbacks have ended; the search continues without them
                self._followers.send_nowait(outcome)
        if not self._left:
            self._end()

    def _end(self) -> None:
        self.tickets = ()
        self._wake()
        if self._followers is not None:
            self._followers.close()

    def _wake(self) -> None:
        if self._news is not None:
            self._news.set()
            self._news = None

    @property
    def is_done(self) -> bool:
        """Whether every source has its outcome."""
        return not self._left

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """What has come so far."""
        return tuple(self._outcomes)

    def cancel(self) -> None:
        """End it at once: what waits is forgotten, what runs is cancelled."""
        for ticket in self.tickets:
            ticket.leave()

    async def wait(self) -> SearchResult:
        """The results of all that answered and what is missing, or `SearchFailed`."""
        # Not by iterating, which gives way once for each outcome: nobody looks at them one by one here.
        try:
            if self._left:
                await trio.lowlevel.checkpoint_if_cancelled()
            else:
                await trio.lowlevel.checkpoint()
            while self._left:
                await self._next_news()
        except trio.Cancelled:
            self.cancel()
            raise
        self._seen = len(self._outcomes)
        return found_in(self.id, self._outcomes)

    async def _next_news(self) -> None:
        self._news = self._news or trio.Event()
        await self._news.wait()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Outcome:
        try:
            if self._seen < len(self._outcomes):
                await trio.lowlevel.checkpoint()
            else:
                await trio.lowlevel.checkpoint_if_cancelled()
            while self._seen == len(self._outcomes):
                if not self._left:
                    raise StopAsyncIteration
                await self._next_news()
        except trio.Cancelled:
            self.cancel()
            raise
        self._seen += 1
        return self._outcomes[self._seen - 1]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()
