"""What waits for one source, and who waits for the same? Belongs to the source, and outlives its limiter's crashes."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import reduce

import trio
from attrs import define, field

from actors.periodic import WakeUp
from actors.search.search import Execute, Ticket
from cormorant.rules.search.limits import Lane
from cormorant.rules.search.outcomes import Outcome, OutcomeStatus
from cormorant.rules.search.priorities import Priority
from cormorant.rules.search.requests import Result, SearchRequest, search_key
from cormorant.rules.search.reservations import RequestPermit
from cormorant.rules.search.source_queue import SourceQueue
from storage.search.source_states import KnownState
from storage.search.sources import SourceRecord

RSS_KEY = "rss"
PAIR = 2


@define(eq=False, kw_only=True)
class PendingRequest:
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
    first_live: int = 0
    """Everyone before has an outcome."""
    is_stopped: bool = False

    @property
    def is_live(self) -> bool:
        """Whether anyone still waits for it."""
        # Asked at every look at a queue: those who left are not gone through again.
        tickets, first = self.tickets, self.first_live
        while first < len(tickets) and tickets[first].outcome is not None:
            first += 1
        self.first_live = first
        return first < len(tickets)

    def stop(self) -> None:
        """End the request, if it is being made: nobody waits for it any more, or there is no more time."""
        self.is_stopped = True
        if self.scope is not None:
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
                    was_cut=outcome.was_cut,
                )
            )


def latest(one: datetime | None, other: datetime | None) -> datetime | None:
    """The later end of two waits; None is no end at all."""
    return None if one is None or other is None else max(one, other)


@define(eq=False, kw_only=True)
class SourceRequests:
    """The queues of one source, what is in flight, and what is known of its state."""

    record: SourceRecord
    known: KnownState | None = None
    is_stale: bool = False
    """Whether somebody changed the state by hand: look into the database before going on."""
    is_closing: bool = False
    is_gone: bool = False
    """Whether its limiter crashed so often that it is not started again."""
    gone_because: str = ""
    """How it crashed the last time."""
    bell: WakeUp = field(init=False, factory=WakeUp)
    quiet: WakeUp = field(init=False, factory=WakeUp)
    """Rung when nothing runs any more."""
    queues: dict[Lane, SourceQueue[PendingRequest]] = field(
        init=False, factory=lambda: {lane: SourceQueue() for lane in Lane}
    )
    _queries: SourceQueue[PendingRequest] = field(init=False)
    _grabs: SourceQueue[PendingRequest] = field(init=False)
    paces: set[float | None] = field(init=False, factory=set)
    """What those who wait say of their own pace. More than they do, until nobody waits."""
    running: dict[PendingRequest, RequestPermit | None] = field(init=False, factory=dict)
    left_over: list[RequestPermit] = field(init=False, factory=list)
    """Requests whose limiter crashed: their end is still to be recorded."""
    unrecorded: list[Callable[..., KnownState]] = field(init=False, factory=list)
    """How requests ended while the database was away: to be recorded before the next one goes."""
    _flights: dict[str, PendingRequest] = field(init=False, factory=dict)
    _sharers: list[tuple[datetime, int, Ticket, PendingRequest]] = field(init=False, factory=list)
    """Those who share a request that waits, by the end of their own wait."""

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
        is_own = ticket.execute is not None or ticket.pace_s is not None or ticket.lane is Lane.GRAB
        key = None if is_own else search_key(ticket.request)
        is_feed = ticket.priority is Priority.RSS and ticket.lane is Lane.QUERY
        flight = self._flights.get(key) if key is not None and not is_feed else None
        if flight is not None and flight.is_live:
            self._join(flight, ticket)
        else:
            self._line_up(ticket, key, RSS_KEY if is_feed else None)

    def _line_up(self, ticket: Ticket, key: str | None, queue_key: str | None) -> None:
        flight = PendingRequest(
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
        self._note_pace(flight)
        ticket.on_left = lambda _: self._left(flight)
        if key is not None:
            self._flights[key] = flight
        self.bell.ring()

    def _note_pace(self, flight: PendingRequest) -> None:
        if self.waiting() <= 1:
            self.paces.clear()
        self.paces.add(flight.pace_s)

    def _join(self, flight: PendingRequest, ticket: Ticket) -> None:
        ticket.on_left = lambda _: self._left(flight)
        flight.tickets.append(ticket)
        if not flight.is_taken:  # one that was taken has its lease and its time-out
            self._rank_anew(flight, ticket)
            self._watch(flight)
        self.bell.ring()

    def _rank_anew(self, flight: PendingRequest, ticket: Ticket) -> None:
        flight.timeout_s = max(flight.timeout_s, ticket.timeout_s)
        priority = min(flight.priority, ticket.priority)
        deadline = latest(flight.deadline, ticket.deadline)
        if (priority, deadline) == (flight.priority, flight.deadline):
            return
        queue = self.queues[flight.lane]
        queue.cancel(flight)
        flight.priority, flight.deadline = priority, deadline
        queue.push(flight, key=flight.queue_key)

    def _watch(self, flight: PendingRequest) -> None:
        """The request waits as long as the most patient of them; each of them keeps its own end."""
        # When the second joins, the first is no longer alone; after that only the last one is new.
        self._keep_ends(flight, flight.tickets if len(flight.tickets) == PAIR else flight.tickets[-1:])

    def _keep_ends(self, flight: PendingRequest, tickets: Sequence[Ticket]) -> None:
        for ticket in tickets:
            if ticket.deadline is not None:
                heapq.heappush(self._sharers, (ticket.deadline, ticket.sequence, ticket, flight))

    def _left(self, flight: PendingRequest) -> None:
        """Somebody left. With the last one the request is dropped, or cancelled if it runs."""
        if flight.is_live:
            self._fall_back(flight)
            return
        if not flight.is_taken:
            self.queues[flight.lane].cancel(flight)
            self.forget(flight)
        else:
            flight.stop()
        self.bell.ring()

    def _fall_back(self, flight: PendingRequest) -> None:
        """Those who are left may be less urgent than the one who left."""
        waiting = (ticket for ticket in flight.tickets[flight.first_live :] if ticket.outcome is None)
        if flight.is_taken or any(ticket.priority is flight.priority for ticket in waiting):
            return
        queue = self.queues[flight.lane]
        if queue.cancel(flight):
            flight.priority = min(ticket.priority for ticket in flight.living())
            queue.push(flight, key=flight.queue_key)
            self.bell.ring()

    def sharers_ending(self, before: datetime) -> Iterator[Ticket]:
        """Take out those who share a request that waits, and whose own wait ends before."""
        while self._sharers and self._sharers[0][0] < before:
            *_, ticket, flight = heapq.heappop(self._sharers)
            if ticket.is_live and not flight.is_taken:
                yield ticket
                if flight.is_live:
                    self._fall_back(flight)

    def next_sharer_end(self) -> datetime | None:
        """The first instant at which one of them has waited too long."""
        while self._sharers and (not self._sharers[0][2].is_live or self._sharers[0][3].is_taken):
            heapq.heappop(self._sharers)
        return self._sharers[0][0] + timedelta.resolution if self._sharers else None

    def take(self, flight: PendingRequest) -> None:
        """The request is about to be made. Invariant: `best` of its queue has just named it."""
        self.queues[flight.lane].take_head(flight)
        if self.record.limits.timeout_s is not None:
            flight.timeout_s = min(flight.timeout_s, self.record.limits.timeout_s)
        flight.is_taken = True
        self.running[flight] = None

    def put_back(self, flight: PendingRequest) -> None:
        """It could not go after all: back to its old place."""
        del self.running[flight]
        flight.is_taken = False
        if self.is_closing:
            flight.end(OutcomeStatus.SHUT_DOWN)
        if living := flight.living():  # some may have joined or left meanwhile
            flight.priority = min(ticket.priority for ticket in living)
            flight.deadline = reduce(latest, (ticket.deadline for ticket in living))
        self.queues[flight.lane].put_back(flight)
        if not flight.is_live:
            self.forget(flight)
        else:
            self._note_pace(flight)
        if len(flight.tickets) >= PAIR:
            self._keep_ends(flight, flight.living())
        self._ring()

    def _ring(self) -> None:
        # With nothing in line, and nothing to look up, there is nothing to do.
        if self.is_stale or self.waiting():
            self.bell.ring()
        if not self.running:
            self.quiet.ring()

    def landed(self, flight: PendingRequest) -> None:
        """The request has ended."""
        permit = self.running.pop(flight, None)
        if permit is not None:
            self.left_over.append(permit)
        self.queues[flight.lane].finished(flight)
        self.forget(flight)
        self._ring()

    def answer_from_cache(self, flight: PendingRequest, results: Sequence[Result]) -> None:
        """It needs no asking: another process has the answer by now."""
        found = OutcomeStatus.FOUND
        flight.finish(
            Outcome(
                job_id=0, source=self.name, status=found, results=tuple(results), coverage=(self.name,), is_cached=True
            )
        )
        self.landed(flight)

    def forget(self, flight: PendingRequest) -> None:
        """Nobody can join it any more."""
        if flight.key is not None and self._flights.get(flight.key) is flight:
            del self._flights[flight.key]

    def open(self) -> None:
        """Take in searches again: a limiter begins, or a keeper does, after the branch was started anew."""
        self.is_closing = self.is_gone = False
        self.gone_because = ""

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
