"""RateLimiter: one per source. It decides when the next request goes, and sends it."""

from __future__ import annotations

import math
from contextlib import suppress
from datetime import datetime
from functools import partial

import trio
from attrs import define, evolve, field, frozen
from trio_util import AsyncValue

from actors.actor import Actor, Recheck, Reply
from actors.environment import Environment
from actors.search.request_execution import (
    execute,
    finished,
    history_entry,
    holding_slot,
    reservation_request_of,
    result_of,
    started,
)
from actors.search.search import AppLane, Ticket
from actors.search.source_requests import PendingRequest, SourceRequests
from actors.search.waiting import OpeningTimes, SlotWaiters, WaitExpiry, Wanted
from cormorant.rules.errors import (
    ActorCrashed,
    ActorError,
    ActorGone,
    CommitUnknown,
    MailboxFull,
    StorageUnavailable,
)
from cormorant.rules.search.events import SourceStopped
from cormorant.rules.search.limits import SourceLimits
from cormorant.rules.search.outcomes import OutcomeStatus
from cormorant.rules.search.priorities import Priority
from cormorant.rules.search.reasons import Reason
from cormorant.rules.search.reservations import EndKind, RequestEnd, RequestPermit, Reserved, SourceClosedNow
from cormorant.rules.search.source_state import leases_of
from storage.search import answers, source_states
from storage.search.requests import CachedAnswer, EndedRequest, RequestResult, record_result, reserve_now
from storage.search.source_states import KnownState
from storage.search.sources import SourceRecord

RETRY_S = 1.0
RECORD_S = 5.0
"""How long the end of a request may take to be recorded when the service stops around it."""
RESERVE_S = 5.0
"""How long a reservation may take. After that the request waits in its queue again, where its own wait can end."""
LOOK_S = 2.0
"""Interval between two reads of a source that another process keeps busy: the end of its request is not announced."""
WAIT_S_MAX = 60.0
"""Longest sleep while a request waits: a clock that jumps must neither flood a source nor stall it."""

NOT_SENT = RequestResult(end=RequestEnd(kind=EndKind.OURS), status=OutcomeStatus.CANCELLED)


@frozen(kw_only=True)
class Admit:
    """Command: take in tickets, in the dispatcher's order."""

    tickets: tuple[Ticket, ...]

    def lost(self, error: ActorError) -> None:
        """The limiter crashed while it read them, or is gone: they end."""
        status = OutcomeStatus.SHUT_DOWN if isinstance(error, ActorGone) else OutcomeStatus.FAILED
        for ticket in self.tickets:
            ticket.mark_read()
            ticket.end(status, None if status is OutcomeStatus.SHUT_DOWN else error)


@frozen(kw_only=True)
class Withdraw:
    """Fact: the caller of a ticket that the limiter has read has left. The ticket has its outcome."""

    ticket: Ticket

    def lost(self, error: ActorError) -> None:
        """Without a limiter, nothing is made for the ticket."""


@frozen(kw_only=True)
class SourceChanged:
    """Fact: the settings or the state of the source have changed. Answered once readers see the change."""

    record: SourceRecord | None = None
    """From the reconciler, which read it."""
    known: KnownState | None = None
    """From the program, which wrote it. It is ignored if the limiter has a newer version."""
    reply: Reply[None] | None = None

    def lost(self, error: ActorError) -> None:
        """The limiter that is started next reads the source."""


@frozen
class Decide:
    """Command: decide anew, because a task of the limiter has ended or has read messages. Coalesced."""

    def lost(self, error: ActorError) -> None:
        """The limiter that is started next decides anew."""


@frozen(kw_only=True)
class Close:
    """Command: end what waits, and what runs after the grace. Answered when nothing runs."""

    grace_s: float
    reply: Reply[None]


LimiterMessage = Admit | Withdraw | SourceChanged | Recheck | Decide | Close


def _wanted(best: tuple[Priority, PendingRequest]) -> Wanted:
    rank, pending = best
    return (rank, pending.sequence), pending.priority is Priority.INTERACTIVE


@define(eq=False, kw_only=True)
class RateLimiter(Actor[LimiterMessage]):
    """Decides after every message and at every opening, and starts the request that is the best by then."""

    environment: Environment = field(kw_only=False)
    requests: SourceRequests
    slots: SlotWaiters
    _workers: AsyncValue[int] = field(init=False, factory=lambda: AsyncValue(0))
    """How many tasks make a request, or wait for a slot to make one."""
    _is_bidding: bool = field(init=False, default=False)
    _bid: trio.CancelScope = field(init=False, factory=trio.CancelScope)
    """The scope of the task that waits for a slot."""
    _is_applying: bool = field(init=False, default=False)
    """Whether a message is being applied. It stays set when that raises, and the limiter crashes."""
    _is_reading: bool = field(init=False, default=False)
    _has_just_read: bool = field(init=False, default=False)
    """Whether a read has ended since the last decision."""
    _known_since: float = field(init=False, default=0.0)
    _is_shared: bool = field(init=False)
    _openings: OpeningTimes = field(init=False)
    _waits: WaitExpiry = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._is_shared = self.environment.database.is_shared
        self._openings = OpeningTimes(self.environment, self.requests)
        self._waits = WaitExpiry(self.environment, self.requests, self._openings)

    async def begin(self) -> None:
        """Begin with a read of the source. Tickets wait until its state is known."""
        self.requests.is_closing, self.requests.gone_because = False, ""
        self.requests.is_stale = True
        self.requests.publish()
        self.wake_at = trio.current_time()

    async def handle(self, message: LimiterMessage) -> None:
        """Apply a message and all that are unread, then decide."""
        self._apply(message)
        self._turn()

    async def wake(self) -> None:
        """Decide at an opening, or at the end of a wait."""
        self._openings.forget()  # they hold for the clock as it was
        self._turn()

    @property
    def _limits(self) -> SourceLimits:
        return self._known.limits

    @property
    def _known(self) -> KnownState:
        assert self.requests.known is not None
        return self.requests.known

    # Messages

    def _drain(self) -> bool:
        """Apply the messages in the mailbox. Whether there was one.

        Invariant: it precedes every decision. A message that came in the same turn of the scheduler may be applied in the next.
        """
        is_any = False
        if self._is_applying:  # this limiter crashes, and leaves its messages to the next one
            return False
        while (message := self.address.take_nowait()) is not None:
            self._apply(message)
            is_any = True
        return is_any

    def _drain_in_task(self) -> None:
        """As `_drain`, for a task: what it has read is decided in the next turn."""
        if self._drain():
            self.requests.publish()
            self._decide_soon()

    def _decide_soon(self) -> None:
        self.address.tell_once(Decide())

    def _apply(self, message: LimiterMessage) -> None:
        self._is_applying = True
        match message:
            case Admit(tickets=tickets):
                for ticket in tickets:
                    self._admit(ticket)
            case Withdraw(ticket=ticket):
                self.requests.withdraw(ticket)
            case SourceChanged():
                self._adopt(message)
            case Recheck():
                self._openings.forget()
                self.requests.is_stale = True
            case Close():
                self.requests.close()
                message.reply.defer()
                self.nursery.start_soon(self._close, message)
            case Decide():
                pass
        self._is_applying = False

    def _admit(self, ticket: Ticket) -> None:
        ticket.mark_read()
        if ticket.is_live:
            ticket.on_left = self._left
            self.requests.admit(ticket)

    def _left(self, ticket: Ticket) -> None:
        with suppress(ActorGone, MailboxFull):  # the ticket has its outcome: without the message its request ends later
            self.address.tell_nowait(Withdraw(ticket=ticket))

    def _adopt(self, message: SourceChanged) -> None:
        if message.record is not None:
            self.requests.record = message.record
            self.requests.is_stale = True
        if message.known is not None:
            self._learn(message.known, asked_with=None)
        if message.reply is not None:
            message.reply.answer(None)

    async def _close(self, message: Close) -> None:
        self._bid.cancel()
        with trio.move_on_after(message.grace_s):
            await self._workers.wait_value(0)
        self.requests.stop_running()
        await self._workers.wait_value(0)
        message.reply.answer(None)

    # Deciding

    def _turn(self) -> None:
        self._drain()
        now = self.environment.now()
        look_at = self._look_at()
        if look_at != math.inf and look_at <= trio.current_time() and self.requests.waiting():
            self.requests.is_stale = True
        if self._is_reading or (self.requests.is_stale and not self._has_just_read):
            self._read_soon()
            self._waits.end_expired(now)
            self.requests.publish()
            self.wake_at = trio.current_time() + RETRY_S if self._has_waits() else math.inf
        else:
            self._waits.expire_unreachable(now)
            self._start_worker(now)
            self.requests.publish()
            self.wake_at = self._next_turn(now)
            self._read_again()

    def _read_again(self) -> None:
        """Read after the decision what has changed since the last read. Frequent changes do not put off the decisions."""
        self._has_just_read = False
        if self.requests.is_stale:
            self._read_soon()

    def _has_waits(self) -> bool:
        """Whether anything waits, by what was published last."""
        return self.requests.snapshot.waiting > 0 or self.requests.next_follower_end() is not None

    def _best(self, now: datetime) -> tuple[Priority, PendingRequest] | None:
        found = None
        for queue in self.requests.queues.values():
            best = queue.best(now, self._openings.of) if len(queue) else None
            if best is not None and (found is None or (best[0], best[1].sequence) < (found[0], found[1].sequence)):
                found = best
        return found

    def _start_worker(self, now: datetime) -> None:
        best = self._best_now(now)
        if best is None:
            return
        rank, is_for_people = wanted = _wanted(best)
        if self._is_bidding:
            self.slots.change_bid(self.requests.name, rank, is_for_people=is_for_people)
        elif (count := self._workers.value) < self._limits.in_flight_max:
            self._workers.value = count + 1
            if self.slots.acquire_nowait(self.requests.name, rank, is_for_people=is_for_people):
                # A task that was started runs to its first wait, whatever happens: what it took is surely given back.
                self.nursery.start_soon(self._work_on, best[1])
                self.requests.take(best[1])
            else:
                self._is_bidding = True
                self.nursery.start_soon(self._work, wanted)

    def _next_turn(self, now: datetime) -> float:
        """When to decide again, if no message comes before."""
        if not self._has_waits():
            return math.inf
        times = [queue.next_event(now, self._openings.of) for queue in self.requests.queues.values() if len(queue)]
        times.append(self.requests.next_follower_end())
        soonest = min((time for time in times if time is not None), default=None)
        if soonest is not None and soonest <= now:
            if not self._is_bidding and not self._workers.value:
                return trio.current_time()
            # What may go now waits for a slot, or for one of ours to end.
            soonest = min((time for time in times if time is not None and time > now), default=None)
        wait_s = WAIT_S_MAX if soonest is None else min(WAIT_S_MAX, (soonest - now).total_seconds())
        if not self.requests.snapshot.waiting:
            return math.inf if soonest is None else trio.current_time() + wait_s
        return min(trio.current_time() + wait_s, self._look_at())

    def _look_at(self) -> float:
        """When to read the source because another process keeps it busy."""
        # Counted from the last read and not from now, or frequent messages would put it off for ever.
        return self._known_since + LOOK_S if self._is_busy_elsewhere() else math.inf

    def _is_busy_elsewhere(self) -> bool:
        known = self.requests.known
        if known is None or not self._is_shared:
            return False
        ours = sum(permit is not None for permit in self.requests.running.values())
        return len(leases_of(known.state, self.environment.now())) > ours

    # Reading

    def _read_soon(self) -> None:
        if not self._is_reading:
            self._is_reading = True
            self.nursery.start_soon(self._read)

    async def _read(self) -> None:
        """Read the state, once the ends of requests that an outage or a crash left open are recorded."""
        try:
            while True:
                if await self._has_read():
                    break
                await trio.sleep(RETRY_S)
        finally:
            self._is_reading = False
        self._has_just_read = True
        self.requests.publish()
        self._decide_soon()

    async def _has_read(self) -> bool:
        """Whether the database answered."""
        self.requests.is_stale = False
        database = self.environment.database
        try:
            while self.requests.unrecorded:
                await database.run(record_result, self.requests.unrecorded[0])
                self.requests.unrecorded.pop(0)
            while self.requests.left_over:
                await self._record_left_over()
            record, before = self.requests.record, self.requests.known
            known = await database.run(source_states.read, record.id, configured=record.limits)
            self._learn(known, asked_with=before)
            for place in tuple(self.requests.unread_shares):
                self._learn_share(place, await database.read(source_states.read_share, record.id, *place, self._limits))
            for poll in self.requests.waiting_polls():
                await self._answer_poll(poll)
        except StorageUnavailable:
            self.requests.is_stale = True
            return False
        except CommitUnknown:
            self.requests.is_stale = True
            if self.requests.unrecorded:  # it may have happened: looked up before it is repeated
                self.requests.unrecorded[0] = evolve(self.requests.unrecorded[0], is_in_doubt=True)
            return False
        return True

    async def _answer_poll(self, poll: PendingRequest) -> None:
        """Another process may have polled meanwhile: its answer needs no wait for the next opening."""
        key, record = self._cache_key(poll), self.requests.record
        if key is None:
            return
        found = await self.environment.database.read(answers.find_cached, [record.id], key, now=self.environment.now())
        if found and key == self._cache_key(poll) and poll in self.requests.waiting_polls():
            self.requests.answer_from_cache(poll, found[record.id])

    async def _record_left_over(self) -> None:
        permit, record = self.requests.left_over[-1], self.requests.record
        await self.environment.database.run(
            source_states.finish,
            record.id,
            permit,
            RequestEnd(kind=EndKind.OURS),
            configured=record.limits,
            now=self.environment.now(),
        )
        self.requests.left_over.pop()

    def _learn(self, known: KnownState, *, asked_with: KnownState | None) -> None:
        """Adopt what the database has answered, unless the answer of another connection has overtaken it.

        A version that is lower than the one the question was asked with is adopted: the database has lost its last changes.
        """
        before = self.requests.known
        if before is not None and before is not asked_with and known.version < before.version:
            return
        is_same = before is None or known.limits is before.limits or known.limits == before.limits
        if not is_same and self.requests.forget_shares():
            self.requests.is_stale = True  # shares are parts of what was allowed before: they are read anew
            self._decide_soon()
        self.requests.known = known
        if self._is_shared:
            self._known_since = trio.current_time()
        self._openings.forget()

    def _learn_share(self, place: AppLane, reason: Reason | None) -> None:
        self.requests.unread_shares.discard(place)
        if reason != self.requests.shares.get(place):
            self.requests.shares.pop(place, None)
            if reason is not None:
                self.requests.shares[place] = reason
            self._openings.forget()

    # Making a request

    async def _work(self, wanted: Wanted) -> None:
        """Get a slot, then make the request that is the best by then."""
        try:
            try:
                with trio.CancelScope() as self._bid:
                    if self.requests.is_closing:
                        self._bid.cancel()
                    await self.slots.acquire_for(self.requests.name, wanted, self._wanted_now)
            finally:
                self._is_bidding = False
            if self._bid.cancelled_caught:
                return
            try:
                self._drain_in_task()
                best = self._best_now(self.environment.now())
                if best is not None:
                    self.requests.take(best[1])
                    await self._execute(best[1])
            finally:
                self.slots.free(self.requests.name)
        finally:
            self._ended_work()

    def _wanted_now(self) -> Wanted | None:
        self._drain_in_task()
        best = self._best_now(self.environment.now())
        return None if best is None else _wanted(best)

    def _best_now(self, now: datetime) -> tuple[Priority, PendingRequest] | None:
        """The best request that may be made now. None also while an end is to be recorded: it may close the source."""
        if self.requests.is_closing or self.requests.has_open_ends:
            return None
        return self._best(now)

    async def _work_on(self, pending: PendingRequest) -> None:
        """As `_work`, for what was taken with a slot that was free."""
        try:
            await self._execute(pending)
        finally:
            self.slots.free(self.requests.name)
            self._ended_work()

    def _ended_work(self) -> None:
        self._workers.value -= 1
        self.requests.publish()
        if self.requests.is_stale or self._has_waits():
            self._decide_soon()

    async def _execute(self, pending: PendingRequest) -> None:
        """Make a request that was just taken from its queue. The caller holds a slot."""
        try:
            holding_slot.set(True)
            reserved = await self._reserve(pending)
            if reserved is None:
                return
            self.requests.reserved(pending, reserved.permit)
            self.requests.publish()
            self._drain_in_task()
            result = await self._request(pending)
            await self._finish(pending, reserved.permit, result)
        finally:
            if pending in self.requests.running and pending.is_taken:
                self.requests.finished(pending)
                pending.end(OutcomeStatus.FAILED, ActorCrashed(f"rate_limiter:{self.requests.name}"))

    async def _reserve(self, pending: PendingRequest) -> Reserved | None:
        """Spend a request. None: it may not go, and waits again."""
        wanted = reservation_request_of(pending, self.environment.now())
        record, before = self.requests.record, self.requests.known
        answer: Reserved | SourceClosedNow | CachedAnswer | None = None
        with trio.move_on_after(RESERVE_S), suppress(StorageUnavailable, CommitUnknown):
            answer, known = await self.environment.database.run(
                reserve_now,
                record.id,
                wanted,
                configured=record.limits,
                clock=self.environment.clock,
                hint=before,
                key=self._cache_key(pending),
            )
            if known is not None:
                self._learn(known, asked_with=before)
        if answer is None:
            # In doubt it counts as spent, and its lease runs out by itself.
            self.requests.put_back(pending)
            self.requests.is_stale = True
            return None
        if isinstance(answer, CachedAnswer):
            self.requests.answer_from_cache(pending, answer.results)
            return None
        self._learn_share(pending.place, answer.share_reason)
        if isinstance(answer, SourceClosedNow):
            self.requests.put_back(pending)
            return None
        if self.requests.waiting():
            self._decide_soon()  # the others wait for something else now
        return answer

    def _cache_key(self, pending: PendingRequest) -> str | None:
        """The key under which another process may have kept the answer meanwhile. A feed is fetched for what is new."""
        return pending.cache_key if pending.queue_key is None and self._ttl_s(pending) > 0 else None

    def _ttl_s(self, pending: PendingRequest) -> float:
        settings = self.environment.settings.search
        return settings.rss_ttl_s if pending.terms.poll else settings.ttl_s(pending.priority)

    async def _request(self, pending: PendingRequest) -> RequestResult:
        # Every caller left while it was reserved, or the service stops: it is paid for, and not sent.
        if not pending.is_live or pending.is_stopped or self.requests.is_closing:
            return NOT_SENT
        waited_s = (self.environment.now() - pending.submitted_at).total_seconds()
        for ticket in pending.living():
            self.environment.emit(started(ticket, waited_s))
        began = trio.current_time()
        ended = await execute(pending, self.requests.record, self.environment.clients.search)
        took_s = trio.current_time() - began
        if ended.was_cancelled:
            return evolve(NOT_SENT, took_s=took_s)
        return result_of(ended, self.requests.name, took_s=took_s, waited_s=waited_s, now=self.environment.now())

    async def _finish(self, pending: PendingRequest, permit: RequestPermit, result: RequestResult) -> None:
        """Record the end, then give every ticket its outcome. When the service stops around it, it may take longer.

        A search that joins while the end is being recorded has no entry in the history, like one that is answered from the cache.
        """
        self._drain_in_task()
        status = OutcomeStatus.SHUT_DOWN if self.requests.is_closing and result.was_cancelled else result.status
        now, record = self.environment.now(), self.requests.record
        ended = EndedRequest(
            record=record,
            permit=permit,
            result=result,
            entries=[history_entry(ticket, record, result, now) for ticket in pending.living()],
            key=pending.cache_key,
            ttl_s=self._ttl_s(pending),
            now=now,
            is_poll=bool(pending.terms.poll),
        )
        await self._record(pending, ended)
        self._drain_in_task()
        if result.end.kind is EndKind.CREDENTIALS_REFUSED:
            self.environment.emit(SourceStopped(source=self.requests.name, because=result.end.because))
        self.environment.emit(result.request_finished(self.requests.name, pending.lane, status))
        for ticket in pending.living():
            self.environment.emit(finished(ticket, result, status))
        pending.finish(partial(result.outcome, self.requests.name, status))
        self.requests.finished(pending)

    async def _record(self, pending: PendingRequest, ended: EndedRequest) -> None:
        before = self.requests.known
        is_in_doubt = True  # also when its time is over: it may have been done in that moment
        with trio.move_on_after(RECORD_S, shield=True):
            try:
                known = await self.environment.database.run(record_result, ended, hint=before)
                self._learn(known, asked_with=before)
            except StorageUnavailable:
                is_in_doubt = False
            except CommitUnknown:
                pass
            else:
                self.requests.running[pending] = None
                return
        # Kept, and recorded before the next request goes: what the source said must not be lost.
        self.requests.running[pending] = None
        self.requests.unrecorded.append(evolve(ended, is_in_doubt=is_in_doubt))
        self.requests.is_stale = True


def end_requests(requests: SourceRequests, because: str) -> None:
    """End what waits for a limiter that will not be started again."""
    requests.gone_because = because
    requests.close()
    requests.publish()
