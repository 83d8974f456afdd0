"""Search (what a caller holds) and Ticket (one search at one source)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Self

import trio
from attrs import define

from cormorant.rules.search.limits import Lane
from cormorant.rules.search.outcomes import Outcome, OutcomeStatus, SearchResult, found_in
from cormorant.rules.search.priorities import Priority
from cormorant.rules.search.requests import SearchRequest

Execute = Callable[[Any, SearchRequest], Any]
"""`async (source, request) -> list[Result]`, or a `SearchPage`."""


@define(eq=False, kw_only=True)
class Ticket:
    """One search at one source. `finish` is synchronous and never waits; the first outcome counts."""

    sequence: int
    source: str
    request: SearchRequest
    search: Search
    priority: Priority
    submitted_at: datetime
    deadline: datetime | None
    max_wait_s: float | None
    timeout_s: float
    pace_s: float | None = None
    lane: Lane = Lane.QUERY
    consumer: str = ""
    execute: Execute | None = None
    outcome: Outcome | None = None
    on_left: Callable[[Ticket], None] | None = None
    """Told when nobody waits for it any more, though it has no outcome of its own."""

    @property
    def is_live(self) -> bool:
        """Whether somebody waits for it."""
        return self.outcome is None

    def finish(self, outcome: Outcome) -> bool:
        """Hand over what came of it. False: it had an outcome before."""
        if self.outcome is not None:
            return False
        self.outcome = outcome
        self.on_left = None  # no circle stays behind, so that memory is free at once and nobody has to look for it
        self.search.take(outcome)
        return True

    def end(self, status: OutcomeStatus, error: BaseException | None = None, *, waited_s: float = 0.0) -> bool:
        """End without an answer."""
        return self.finish(
            Outcome(job_id=self.search.id, source=self.source, status=status, error=error, waited_s=waited_s)
        )

    def leave(self) -> None:
        """Nobody waits for it any more."""
        on_left = self.on_left
        if self.end(OutcomeStatus.CANCELLED) and on_left is not None:
            on_left(self)


OnOutcome = Callable[[Outcome], None]


class Search:
    """A search under way. Iterate over it, or `wait()` for the whole. Leaving `async with` cancels what is not done.

    Cancellation of the caller inside iteration or `wait()` cancels the search; otherwise the service owns it.
    """

    def __init__(self, search_id: int, count: int, told: OnOutcome, done: Callable[[int], None]) -> None:
        self.id = search_id
        self.tickets: Sequence[Ticket] = ()
        self._told = told
        self._done = done
        self._left = count
        self._outcomes: list[Outcome] = []
        self._seen = 0
        self._news: trio.Event | None = None
        """Who waits for the next outcome. Who hands it over never waits."""
        if not count:
            self._end()

    def take(self, outcome: Outcome) -> None:
        """Hand an outcome to whoever holds the search. For its tickets."""
        self._outcomes.append(outcome)
        self._left -= 1
        self._wake()
        self._told(outcome)
        if not self._left:
            self._end()

    def _end(self) -> None:
        self.tickets = ()
        self._wake()
        self._done(self.id)

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
