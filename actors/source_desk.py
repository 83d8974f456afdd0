"""What waits for one source, and who waits for the same? Belongs to the source, and outlives its limiter's crashes."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from datetime import datetime

import trio
from attrs import define, field

from actors.bell import Bell
from actors.search import Execute, Ticket
from cormorant.rules.limits import Lane
from cormorant.rules.outcomes import Outcome, OutcomeStatus
from cormorant.rules.priorities import Priority
from cormorant.rules.reservations import Permit
from cormorant.rules.searches import SearchRequest, search_key
from cormorant.rules.source_queue import SourceQueue
from storage.source_states import Known
from storage.sources import SourceRecord

RSS_KEY = "rss"


@define(eq=False, kw_only=True)
class Flight:
    """One request to be made, and everyone who waits for its answer. It ranks as its best follower."""

    sequence: int
    priority: Priority
    submitted_at: datetime
    deadline: datetime | None
    lane: Lane
    request: SearchRequest
    execute: Execute | None
    timeout_s: float
    pace_s: float | None
    consumer: str
    key: str | None
    queue_key: str | None
    tickets: list[Ticket]
    scope: trio.CancelScope | None = None
    is_taken: bool = False
    is_stopped: bool = False

    @property
    def is_live(self) -> bool:
        """Whether anyone still waits for it."""
        for ticket in self.tickets:  # noqa: SIM110 - asked at every look at a queue, and a generator costs four times as much
            if ticket.outcome is None:
                return True
        return False

    def stop(self) -> None:
        """End the request, if it is being made: nobody waits for it any more, or there is no more time."""
        if self.scope is not None:
            self.is_stopped = True
            self.scope.cancel()

    def living(self) -> list[Ticket]:
        """Those who still wait."""
        return [ticket for ticket in self.tickets if ticket.outcome is None]

    def end(self, status: OutcomeStatus, error: BaseException | None = None) -> None:
        """End all that still wait, without an answer."""
        for ticket in self.living():
            ticket.end(status, error)

    def finish(self, outcome: Outcome) -> None:
        """Give everyone the same, under their own number."""
        for ticket in self.living():
            ticket.finish(
                Outcome(
                    job_id=ticket.search.id,
                    source=outcome.source,
                    status=outcome.status,
                    results=outcome.results,
                    coverage=outcome.coverage,
                    error=outcome.error,
                    waited_s=outcome.waited_s,
                    took_s=outcome.took_s,
                    is_cached=outcome.is_cached,
                )
            )


@define(eq=False, kw_only=True)
class SourceDesk:
    """The queues of one source, what is in flight, and what is known of its state."""

    record: SourceRecord
    known: Known | None = None
    is_stale: bool = False
    """Whether somebody changed the state by hand: look into the database before going on."""
    is_closing: bool = False
    bell: Bell = field(init=False, factory=Bell)
    quiet: Bell = field(init=False, factory=Bell)
    """Rung when nothing runs any more."""
    queues: dict[Lane, SourceQueue[Flight]] = field(init=False, factory=lambda: {lane: SourceQueue() for lane in Lane})
    _queries: SourceQueue[Flight] = field(init=False)
    _grabs: SourceQueue[Flight] = field(init=False)
    running: dict[Flight, Permit | None] = field(init=False, factory=dict)
    left_over: list[Permit] = field(init=False, factory=list)
    """Requests whose limiter crashed: their end is still to be recorded."""
    _flights: dict[str, Flight] = field(init=False, factory=dict)
    _followers: list[tuple[datetime, int, Ticket]] = field(init=False, factory=list)

    def __attrs_post_init__(self) -> None:
        self._queries, self._grabs = self.queues[Lane.QUERY], self.queues[Lane.GRAB]

    @property
    def name(self) -> str:
        """The source's name."""
        return self.record.name

    def waiting(self) -> int:
        """How many requests wait."""
        return len(self._queries) + len(self._grabs)

    def admit(self, ticket: Ticket) -> None:
        """Take a ticket in: it joins an equal one that waits or runs, or gets in line."""
        if self.is_closing:
            ticket.end(OutcomeStatus.SHUT_DOWN)
            return
        key = None if ticket.execute is not None or ticket.lane is Lane.GRAB else search_key(ticket.request)
        is_feed = ticket.priority is Priority.RSS and ticket.lane is Lane.QUERY
        flight = self._flights.get(key) if key is not None and not is_feed else None
        if flight is not None and flight.is_live:
            self._join(flight, ticket)
        else:
            self._line_up(ticket, key, RSS_KEY if is_feed else None)

    def _line_up(self, ticket: Ticket, key: str | None, queue_key: str | None) -> None:
        flight = Flight(
            sequence=ticket.sequence,
            priority=ticket.priority,
            submitted_at=ticket.submitted_at,
            deadline=ticket.deadline,
            lane=ticket.lane,
            request=ticket.request,
            execute=ticket.execute,
            timeout_s=ticket.timeout_s,
            pace_s=ticket.pace_s,
            consumer=ticket.consumer,
            key=key,
            queue_key=queue_key,
            tickets=[ticket],
        )
        if not self.queues[ticket.lane].push(flight, key=queue_key):
            ticket.end(OutcomeStatus.DEDUPLICATED)
            return
        ticket.on_left = lambda _: self._left(flight)
        if key is not None:
            self._flights[key] = flight
        self.bell.ring()

    def _join(self, flight: Flight, ticket: Ticket) -> None:
        ticket.on_left = lambda _: self._left(flight)
        if ticket.deadline is not None and not flight.is_taken:
            heapq.heappush(self._followers, (ticket.deadline, ticket.sequence, ticket))
        if not flight.is_taken:
            queue = self.queues[flight.lane]
            queue.cancel(flight)
            flight.priority = min(flight.priority, ticket.priority)
            ends = [each.deadline for each in (*flight.living(), ticket)]
            flight.deadline = None if None in ends else max(end for end in ends if end is not None)
            queue.push(flight, key=flight.queue_key)
        flight.timeout_s = max(flight.timeout_s, ticket.timeout_s)
        flight.tickets.append(ticket)
        self.bell.ring()

    def _left(self, flight: Flight) -> None:
        """Somebody left. With the last one the request is dropped, or cancelled if it runs."""
        if flight.is_live:
            return
        if not flight.is_taken:
            self.queues[flight.lane].cancel(flight)
            self._forget(flight)
        else:
            flight.stop()
        self.bell.ring()

    def followers_ending(self, before: datetime) -> Iterator[Ticket]:
        """Those who joined a request and whose own wait ends sooner than its."""
        while self._followers and self._followers[0][0] < before:
            ticket = heapq.heappop(self._followers)[-1]
            if ticket.is_live:
                yield ticket

    def next_follower_end(self) -> datetime | None:
        """When the next of them has waited too long."""
        while self._followers and not self._followers[0][-1].is_live:
            heapq.heappop(self._followers)
        return self._followers[0][0] if self._followers else None

    def take(self, flight: Flight) -> None:
        """The request is about to be made. Invariant: `best` of its queue has just named it."""
        self.queues[flight.lane].take_head(flight)
        flight.is_taken = True
        self.running[flight] = None

    def put_back(self, flight: Flight) -> None:
        """It could not go after all: back to its old place."""
        del self.running[flight]
        flight.is_taken = False
        self.queues[flight.lane].put_back(flight)
        if not flight.is_live:
            self._forget(flight)
        self._ring()

    def _ring(self) -> None:
        # With nothing in line, and nothing to look up, there is nothing to do.
        if self.is_stale or self.waiting():
            self.bell.ring()
        if not self.running:
            self.quiet.ring()

    def landed(self, flight: Flight) -> None:
        """The request has ended."""
        permit = self.running.pop(flight, None)
        if permit is not None:
            self.left_over.append(permit)
        self.queues[flight.lane].finished(flight)
        self._forget(flight)
        self._ring()

    def _forget(self, flight: Flight) -> None:
        if flight.key is not None and self._flights.get(flight.key) is flight:
            del self._flights[flight.key]

    def close(self) -> None:
        """Take in nothing more. What waits ends; what runs goes on."""
        self.is_closing = True
        for queue in self.queues.values():
            for flight in queue.drain():
                flight.end(OutcomeStatus.SHUT_DOWN)
        self._flights.clear()
        self.bell.ring()

    def stop_running(self) -> None:
        """Cancel what still runs."""
        for flight in self.running:
            flight.stop()
