"""SourceRequests: queues, single-flight joins and pending requests of one source; SourceDirectory."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
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
from storage.search.requests import EndedRequest
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
    wake_up: WakeUp = field(init=False, factory=WakeUp)
    all_done: WakeUp = field(init=False, factory=WakeUp)
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
    unrecorded: list[EndedRequest] = field(init=False, factory=list)
    """How requests ended while the database was away: to be recorded before the next one goes."""
    _by_key: dict[str, PendingRequest] = field(init=False, factory=dict)
    _followers: list[tuple[datetime, int, Ticket, PendingRequest]] = field(init=False, factory=list)
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
        pending = self._by_key.get(key) if key is not None and not is_feed else None
        if pending is not None and pending.is_live:
            self._join(pending, ticket)
        else:
            self._enqueue(ticket, key, RSS_KEY if is_feed else None)

    def _enqueue(self, ticket: Ticket, key: str | None, queue_key: str | None) -> None:
        pending = PendingRequest(
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
        if not self.queues[ticket.lane].push(pending, key=queue_key):
            ticket.end(OutcomeStatus.DEDUPLICATED)
            return
        self._note_pace(pending)
        ticket.on_left = lambda _: self._left(pending)
        if key is not None:
            self._by_key[key] = pending
        self.wake_up.set()

    def _note_pace(self, pending: PendingRequest) -> None:
        if self.waiting() <= 1:
            self.paces.clear()
        self.paces.add(pending.pace_s)

    def _join(self, pending: PendingRequest, ticket: Ticket) -> None:
        ticket.on_left = lambda _: self._left(pending)
        pending.tickets.append(ticket)
        if not pending.is_taken:  # one that was taken has its lease and its time-out
            self._rank_anew(pending, ticket)
            self._watch(pending)
        self.wake_up.set()

    def _rank_anew(self, pending: PendingRequest, ticket: Ticket) -> None:
        pending.timeout_s = max(pending.timeout_s, ticket.timeout_s)
        priority = min(pending.priority, ticket.priority)
        deadline = latest(pending.deadline, ticket.deadline)
        if (priority, deadline) == (pending.priority, pending.deadline):
            return
        queue = self.queues[pending.lane]
        queue.cancel(pending)
        pending.priority, pending.deadline = priority, deadline
        queue.push(pending, key=pending.queue_key)

    def _watch(self, pending: PendingRequest) -> None:
        """The request waits as long as the most patient of them; each of them keeps its own end."""
        # When the second joins, the first is no longer alone; after that only the last one is new.
        self._keep_ends(pending, pending.tickets if len(pending.tickets) == PAIR else pending.tickets[-1:])

    def _keep_ends(self, pending: PendingRequest, tickets: Sequence[Ticket]) -> None:
        for ticket in tickets:
            if ticket.deadline is not None:
                heapq.heappush(self._followers, (ticket.deadline, ticket.sequence, ticket, pending))

    def _left(self, pending: PendingRequest) -> None:
        """Somebody left. With the last one the request is dropped, or cancelled if it runs."""
        if pending.is_live:
            self._demote(pending)
            return
        if not pending.is_taken:
            self.queues[pending.lane].cancel(pending)
            self.forget(pending)
        else:
            pending.stop()
        self.wake_up.set()

    def _demote(self, pending: PendingRequest) -> None:
        """Those who are left may be less urgent than the one who left."""
        waiting = (ticket for ticket in pending.tickets[pending.first_live :] if ticket.outcome is None)
        if pending.is_taken or any(ticket.priority is pending.priority for ticket in waiting):
            return
        queue = self.queues[pending.lane]
        if queue.cancel(pending):
            pending.priority = min(ticket.priority for ticket in pending.living())
            queue.push(pending, key=pending.queue_key)
            self.wake_up.set()

    def followers_ending(self, before: datetime) -> Iterator[Ticket]:
        """Take out those who share a request that waits, and whose own wait ends before."""
        while self._followers and self._followers[0][0] < before:
            *_, ticket, pending = heapq.heappop(self._followers)
            if ticket.is_live and not pending.is_taken:
                yield ticket
                if pending.is_live:
                    self._demote(pending)

    def next_follower_end(self) -> datetime | None:
        """The first instant at which one of them has waited too long."""
        while self._followers and (not self._followers[0][2].is_live or self._followers[0][3].is_taken):
            heapq.heappop(self._followers)
        return self._followers[0][0] + timedelta.resolution if self._followers else None

    def take(self, pending: PendingRequest) -> None:
        """The request is about to be made. Invariant: `best` of its queue has just named it."""
        self.queues[pending.lane].take_head(pending)
        if self.record.limits.timeout_s is not None:
            pending.timeout_s = min(pending.timeout_s, self.record.limits.timeout_s)
        pending.is_taken = True
        self.running[pending] = None

    def put_back(self, pending: PendingRequest) -> None:
        """It could not go after all: back to its old place."""
        del self.running[pending]
        pending.is_taken = False
        if self.is_closing:
            pending.end(OutcomeStatus.SHUT_DOWN)
        if living := pending.living():  # some may have joined or left meanwhile
            pending.priority = min(ticket.priority for ticket in living)
            pending.deadline = reduce(latest, (ticket.deadline for ticket in living))
        self.queues[pending.lane].put_back(pending)
        if not pending.is_live:
            self.forget(pending)
        else:
            self._note_pace(pending)
        if len(pending.tickets) >= PAIR:
            self._keep_ends(pending, pending.living())
        self._wake()

    def _wake(self) -> None:
        # With nothing in line, and nothing to look up, there is nothing to do.
        if self.is_stale or self.waiting():
            self.wake_up.set()
        if not self.running:
            self.all_done.set()

    def finished(self, pending: PendingRequest) -> None:
        """The request has ended."""
        permit = self.running.pop(pending, None)
        if permit is not None:
            self.left_over.append(permit)
        self.queues[pending.lane].finished(pending)
        self.forget(pending)
        self._wake()

    def answer_from_cache(self, pending: PendingRequest, results: Sequence[Result]) -> None:
        """It needs no asking: another process has the answer by now."""
        found = OutcomeStatus.FOUND
        pending.finish(
            Outcome(
                job_id=0, source=self.name, status=found, results=tuple(results), coverage=(self.name,), is_cached=True
            )
        )
        self.finished(pending)

    def forget(self, pending: PendingRequest) -> None:
        """Nobody can join it any more."""
        if pending.key is not None and self._by_key.get(pending.key) is pending:
            del self._by_key[pending.key]

    def open(self) -> None:
        """Take in searches again: a limiter begins, or a keeper does, after the branch was started anew."""
        self.is_closing = self.is_gone = False
        self.gone_because = ""

    def close(self) -> None:
        """Take in nothing more. What waits ends; what runs goes on."""
        self.is_closing = True
        for queue in self.queues.values():
            for pending in queue.drain():
                pending.end(OutcomeStatus.SHUT_DOWN)
        self._by_key.clear()
        self.wake_up.set()

    def stop_running(self) -> None:
        """Cancel what still runs."""
        for pending in self.running:
            pending.stop()
