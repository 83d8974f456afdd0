"""SourceRequests: queues, single-flight joins and pending requests of one source; SourceSnapshot and RequestsView."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import reduce

import trio
from attrs import define, field, frozen

from actors.search.search import AppLane, Terms, Ticket, app_lane
from cormorant.rules.search.limits import Lane
from cormorant.rules.search.outcomes import Outcome, OutcomeStatus
from cormorant.rules.search.priorities import Priority
from cormorant.rules.search.reasons import Reason
from cormorant.rules.search.requests import Result, SearchRequest, poll_key, search_key, together
from cormorant.rules.search.reservations import RequestPermit
from cormorant.rules.search.source_queue import SourceQueue
from storage.search.requests import EndedRequest
from storage.search.source_states import KnownState
from storage.search.sources import SourceRecord

RSS_KEY = "rss"
_NO_SHARES: Mapping[AppLane, Reason] = {}
PAIR = 2


@define(eq=False, kw_only=True)
class PendingRequest:
    """One request to be made, and every ticket that waits for its answer. It ranks as its best ticket."""

    sequence: int
    terms: Terms
    """Those of its first ticket. Those who joined may be more urgent and more patient: see below."""
    priority: Priority
    deadline: datetime | None
    timeout_s: float
    submitted_at: datetime
    request: SearchRequest
    key: str | None
    """What equal searches share; None: none do."""
    queue_key: str | None
    tickets: list[Ticket]
    place: AppLane = field(init=False)
    """The queue that it belongs to."""
    scope: trio.CancelScope | None = None
    is_taken: bool = False
    first_live: int = 0
    """Every ticket before has an outcome."""
    is_stopped: bool = False

    @place.default
    def _place_of_terms(self) -> AppLane:
        return self.terms.place

    @property
    def lane(self) -> Lane:
        """What is asked for: a search, or a download."""
        return self.terms.lane

    @property
    def cache_key(self) -> str | None:
        """The key under which its answer is kept."""
        return poll_key(self.request) if self.terms.poll else self.key

    @property
    def is_live(self) -> bool:
        """Whether a ticket still waits for it."""
        # Asked at every decision: tickets that have ended are not gone through again.
        tickets, first = self.tickets, self.first_live
        while first < len(tickets) and tickets[first].outcome is not None:
            first += 1
        self.first_live = first
        return first < len(tickets)

    def stop(self) -> None:
        """End the request, if it is being made: no ticket waits for it any more, or there is no more time."""
        self.is_stopped = True
        if self.scope is not None:
            self.scope.cancel()

    def living(self) -> list[Ticket]:
        """The tickets that still wait."""
        return [ticket for ticket in self.tickets if ticket.outcome is None]

    def end(self, status: OutcomeStatus, error: BaseException | None = None) -> None:
        """End all tickets that still wait, without an answer."""
        for ticket in self.living():
            ticket.end(status, error)

    def finish(self, outcome_of: Callable[[int], Outcome]) -> None:
        """Give every ticket its outcome, which is made for the number of its search."""
        for ticket in self.living():
            ticket.finish(outcome_of(ticket.search.id))


def latest(one: datetime | None, other: datetime | None) -> datetime | None:
    """The later end of two waits; None is no end at all."""
    return None if one is None or other is None else max(one, other)


@frozen(kw_only=True)
class SourceSnapshot:
    """A source at one moment, as its limiter has published it."""

    record: SourceRecord
    known: KnownState | None = None
    """None: its state was not read yet."""
    waiting: int = 0
    running: int = 0
    is_closing: bool = False
    """Whether it takes nothing more in."""
    gone_because: str = ""
    """The crash after which its limiter was not started again."""
    shares: Mapping[AppLane, Reason] = field(factory=dict)
    """Until when apps have used their share, as far as it is known."""


@frozen(kw_only=True)
class RequestView:
    """A request that waits or runs."""

    request: SearchRequest
    lane: Lane
    priority: Priority
    consumer: str
    submitted_at: datetime
    shared_by: int

    @classmethod
    def of(cls, pending: PendingRequest) -> RequestView:
        """What is shown of a request."""
        return cls(
            request=pending.request,
            lane=pending.lane,
            priority=pending.priority,
            consumer=pending.terms.consumer,
            submitted_at=pending.submitted_at,
            shared_by=len(pending.living()),
        )


@frozen(kw_only=True)
class RequestsView:
    """The requests of a source: those that run, and those that wait."""

    running: tuple[RequestView, ...] = ()
    waiting: tuple[RequestView, ...] = ()


@define(eq=False, kw_only=True)
class SourceRequests:
    """The queues of one source, its requests in flight, and its state as far as it is known.

    It belongs to the address of the limiter and outlives the limiter. Invariant: only `rate_limiter.py` changes it.
    """

    record: SourceRecord
    snapshot: SourceSnapshot = field(init=False)
    """What readers see."""
    known: KnownState | None = None
    is_stale: bool = False
    """Whether the state in the database may be another one: it is read before the next request."""
    is_closing: bool = False
    gone_because: str = ""
    queues: dict[AppLane, SourceQueue[PendingRequest]] = field(
        init=False, factory=lambda: {app_lane(lane, "", 1.0): SourceQueue() for lane in Lane}
    )
    shares: dict[AppLane, Reason] = field(init=False, factory=dict)
    """Until when apps have used their share, as the last reservation for each said."""
    unread_shares: set[AppLane] = field(init=False, factory=set)
    """Apps that have not asked since the start: they are told of the share that they used before at once, not at their turn."""
    paces: set[float | None] = field(init=False, factory=set)
    """The paces that waiting requests keep. More than they do, until none waits."""
    running: dict[PendingRequest, RequestPermit | None] = field(init=False, factory=dict)
    left_over: list[RequestPermit] = field(init=False, factory=list)
    """Requests whose limiter crashed: their end is still to be recorded."""
    unrecorded: list[EndedRequest] = field(init=False, factory=list)
    """How requests ended while the database was away: to be recorded before the next one goes."""
    _by_key: dict[tuple[str, AppLane], PendingRequest] = field(init=False, factory=dict)
    """What equal searches of the same app join."""
    _reserved: dict[str, PendingRequest] = field(init=False, factory=dict)
    """What equal searches of any app join, because it is paid for."""
    _polls: dict[PendingRequest, None] = field(init=False, factory=dict)
    _by_ticket: dict[Ticket, PendingRequest] = field(init=False, factory=dict)
    """The request of each ticket that has no outcome, or whose caller has just left."""
    _followers: list[tuple[datetime, int, Ticket]] = field(init=False, factory=list)
    """Tickets that share a request that waits, by the end of their own wait."""
    _followed: set[Ticket] = field(init=False, factory=set)
    """The tickets in `_followers`."""

    def __attrs_post_init__(self) -> None:
        self.snapshot = SourceSnapshot(record=self.record)

    @property
    def name(self) -> str:
        """The source's name."""
        return self.record.name

    def publish(self) -> None:
        """Show readers the state as it is."""
        was, waiting, running = self.snapshot, self.waiting(), len(self.running)
        if (
            was.known is self.known
            and was.waiting == waiting
            and was.running == running
            and was.record is self.record
            and was.is_closing is self.is_closing
            and was.gone_because == self.gone_because
            and was.shares == self.shares
        ):
            return
        self.snapshot = SourceSnapshot(
            record=self.record,
            known=self.known,
            waiting=waiting,
            running=running,
            is_closing=self.is_closing,
            gone_because=self.gone_because,
            shares=dict(self.shares) if self.shares else _NO_SHARES,
        )

    def waiting(self) -> int:
        """How many requests wait."""
        count = 0
        for queue in self.queues.values():  # asked several times for each request: a loop costs half of a `sum`
            count += len(queue.by_number)
        return count

    def view(self) -> RequestsView:
        """What runs and what waits."""
        waiting = [pending for queue in self.queues.values() for pending in queue.waiting()]
        return RequestsView(
            running=tuple(map(RequestView.of, self.running)), waiting=tuple(map(RequestView.of, waiting))
        )

    def admit(self, ticket: Ticket) -> None:
        """Take a ticket in: it joins an equal one that waits or runs, or gets in line."""
        if self.is_closing:
            ticket.end(OutcomeStatus.SHUT_DOWN)
            return
        terms = ticket.terms
        is_own = terms.function is not None or terms.pace_s is not None or terms.lane is Lane.GRAB
        key = terms.poll or (None if is_own else search_key(ticket.request))
        is_feed = terms.priority is Priority.RSS and terms.lane is Lane.QUERY and not terms.poll
        for pending in (self._by_key.get((key, terms.place)), self._reserved.get(key)) if key and not is_feed else ():
            if pending is not None and pending.is_live and self._can_join(pending, ticket.request):
                self._join(pending, ticket)
                return
        self._enqueue(ticket, key, RSS_KEY if is_feed else None)

    def _can_join(self, pending: PendingRequest, request: SearchRequest) -> bool:
        both = together(pending.request, request)
        return both is pending.request or (both is not None and not pending.is_taken)

    def _enqueue(self, ticket: Ticket, key: str | None, queue_key: str | None) -> None:
        pending = PendingRequest(
            sequence=ticket.sequence,
            terms=ticket.terms,
            priority=ticket.terms.priority,
            deadline=ticket.deadline,
            timeout_s=ticket.terms.timeout_s,
            submitted_at=ticket.submitted_at,
            request=ticket.request,
            key=key,
            queue_key=queue_key,
            tickets=[ticket],
        )
        if not self._queue_of(pending).push(pending, key=queue_key):
            ticket.end(OutcomeStatus.DEDUPLICATED)
            return
        self._note_pace(pending)
        self._by_ticket[ticket] = pending
        if key is not None:
            self._by_key[key, pending.place] = pending
        if pending.terms.poll:
            self._polls[pending] = None

    def _queue_of(self, pending: PendingRequest) -> SourceQueue[PendingRequest]:
        queue = self.queues.get(pending.place)
        if queue is None:
            queue = self.queues[pending.place] = SourceQueue()
            self.unread_shares.add(pending.place)
            self.is_stale = True
        return queue

    @property
    def has_open_ends(self) -> bool:
        """Whether the end of a request is still to be recorded. It may close the source."""
        return bool(self.unrecorded or self.left_over)

    def forget_shares(self) -> bool:
        """The limits have changed. Whether there are shares to be read anew."""
        self.shares.clear()
        self.unread_shares.update(place for place in self.queues if place[2] < 1)
        return bool(self.unread_shares)

    def _note_pace(self, pending: PendingRequest) -> None:
        if self.waiting() <= 1:
            self.paces.clear()
        self.paces.add(pending.terms.pace_s)

    def _join(self, pending: PendingRequest, ticket: Ticket) -> None:
        self._by_ticket[ticket] = pending
        pending.tickets.append(ticket)
        pending.request = together(pending.request, ticket.request) or pending.request
        if not pending.is_taken:  # one that was taken has its lease and its time-out
            self._rank_anew(pending, ticket)
            self._watch(pending)

    def _rank_anew(self, pending: PendingRequest, ticket: Ticket) -> None:
        pending.timeout_s = max(pending.timeout_s, ticket.terms.timeout_s)
        priority = min(pending.priority, ticket.priority)
        deadline = latest(pending.deadline, ticket.deadline)
        if (priority, deadline) == (pending.priority, pending.deadline):
            return
        queue = self._queue_of(pending)
        queue.cancel(pending)
        pending.priority, pending.deadline = priority, deadline
        queue.push(pending, key=pending.queue_key)

    def _watch(self, pending: PendingRequest) -> None:
        """The request waits as long as the most patient of its tickets; each of them keeps its own end."""
        # When the second joins, the first is no longer alone; after that only the last one is new.
        self._keep_ends(pending.tickets if len(pending.tickets) == PAIR else pending.tickets[-1:])

    def _keep_ends(self, tickets: Sequence[Ticket]) -> None:
        for ticket in tickets:
            if ticket.deadline is not None and ticket not in self._followed:
                heapq.heappush(self._followers, (ticket.deadline, ticket.sequence, ticket))
                self._followed.add(ticket)

    def withdraw(self, ticket: Ticket) -> None:
        """The caller of a ticket has left. With the last one the request is dropped, or cancelled if it runs."""
        pending = self._by_ticket.pop(ticket, None)
        if pending is None:
            return
        if pending.is_live:
            self._demote(pending)
        elif not pending.is_taken:
            self._queue_of(pending).cancel(pending)
            self.forget(pending)
        else:
            pending.stop()

    def _demote(self, pending: PendingRequest) -> None:
        """The tickets that are left may be less urgent than the one that has ended."""
        waiting = (ticket for ticket in pending.tickets[pending.first_live :] if ticket.outcome is None)
        if pending.is_taken or any(ticket.priority is pending.priority for ticket in waiting):
            return
        queue = self._queue_of(pending)
        if queue.cancel(pending):
            pending.priority = min(ticket.priority for ticket in pending.living())
            queue.push(pending, key=pending.queue_key)

    def followers_ending(self, before: datetime) -> Iterator[Ticket]:
        """Take out the tickets that share a request that waits, and whose own wait ends before."""
        while self._followers and self._followers[0][0] < before:
            ticket = self._pop_follower()
            if self._still_waits(ticket):
                yield ticket
                self.withdraw(ticket)

    def _pop_follower(self) -> Ticket:
        *_, ticket = heapq.heappop(self._followers)
        self._followed.discard(ticket)
        return ticket

    def _still_waits(self, ticket: Ticket) -> bool:
        pending = self._by_ticket.get(ticket)
        return ticket.is_live and pending is not None and not pending.is_taken

    def next_follower_end(self) -> datetime | None:
        """The first instant at which one of them has waited too long."""
        while self._followers and not self._still_waits(self._followers[0][2]):
            self._pop_follower()
        return self._followers[0][0] + timedelta.resolution if self._followers else None

    def take(self, pending: PendingRequest) -> None:
        """The request is about to be made. Invariant: `best` of its queue has just named it."""
        self._queue_of(pending).take_head(pending)
        if self.record.limits.timeout_s is not None:
            pending.timeout_s = min(pending.timeout_s, self.record.limits.timeout_s)
        pending.is_taken = True
        self.running[pending] = None

    def reserved(self, pending: PendingRequest, permit: RequestPermit) -> None:
        """The request is paid for, and not sent yet: whoever waits for an equal one shares it, whatever app it is."""
        self.running[pending] = permit
        if pending.key is None:
            return
        self._reserved[pending.key] = pending
        if len(self._by_key) <= 1:  # its own
            return
        for place, queue in self.queues.items():
            other = self._by_key.get((pending.key, place))
            if other is None or other.queue_key is not None or together(pending.request, other.request) is None:
                continue
            if queue.cancel(other):
                self.forget(other)
                other.is_taken = True  # its tickets no longer wait in line
                for ticket in other.living():
                    self._join(pending, ticket)

    def put_back(self, pending: PendingRequest) -> None:
        """It could not go after all: back to its old place."""
        del self.running[pending]
        pending.is_taken = False
        if self.is_closing:
            pending.end(OutcomeStatus.SHUT_DOWN)
        if living := pending.living():  # some may have joined or left meanwhile
            pending.priority = min(ticket.priority for ticket in living)
            pending.deadline = reduce(latest, (ticket.deadline for ticket in living))
        self._queue_of(pending).put_back(pending)
        if not pending.is_live:
            self.forget(pending)
        else:
            self._note_pace(pending)
        if len(pending.tickets) >= PAIR:
            self._keep_ends(pending.living())

    def finished(self, pending: PendingRequest) -> None:
        """The request has ended."""
        permit = self.running.pop(pending, None)
        if permit is not None:
            self.left_over.append(permit)
        self._queue_of(pending).finished(pending)
        self.forget(pending)

    def waiting_polls(self) -> list[PendingRequest]:
        """Polls for new releases that wait."""
        return [pending for pending in self._polls if pending.is_live and not pending.is_taken]

    def answer_from_cache(self, pending: PendingRequest, results: Sequence[Result]) -> None:
        """It needs no asking: another process has the answer by now."""
        self._queue_of(pending).cancel(pending)
        pending.finish(
            lambda job_id: Outcome(
                job_id=job_id,
                source=self.name,
                status=OutcomeStatus.FOUND,
                results=tuple(results),
                coverage=(self.name,),
                is_cached=True,
            )
        )
        self.finished(pending)

    def forget(self, pending: PendingRequest) -> None:
        """No ticket can join it any more."""
        for ticket in pending.tickets:
            self._by_ticket.pop(ticket, None)
        self._polls.pop(pending, None)
        if pending.key is None:
            return
        if self._by_key.get((pending.key, pending.place)) is pending:
            del self._by_key[pending.key, pending.place]
        if self._reserved.get(pending.key) is pending:
            del self._reserved[pending.key]

    def close(self) -> None:
        """Take in nothing more. What waits ends; what runs continues."""
        self.is_closing = True
        for queue in self.queues.values():
            for pending in queue.drain():
                pending.end(OutcomeStatus.SHUT_DOWN)
                self.forget(pending)
        self._by_key.clear()

    def stop_running(self) -> None:
        """Cancel what still runs."""
        for pending in self.running:
            pending.stop()
