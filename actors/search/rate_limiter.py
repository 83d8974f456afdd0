"""RateLimiter: one per source. It decides when the next request goes, and sends it."""

from __future__ import annotations

import math
from contextlib import suppress
from datetime import datetime

import trio
from attrs import define, evolve, field

from actors.actor import Actor
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
from actors.search.source_requests import PendingRequest, SourceRequests
from actors.search.waiting import OpeningTimes, SlotWaiters, WaitExpiry, Wanted
from cormorant.rules.errors import ActorCrashed, CommitUnknown, StorageUnavailable
from cormorant.rules.search.events import SourceStopped
from cormorant.rules.search.limits import Lane, SourceLimits
from cormorant.rules.search.outcomes import OutcomeStatus
from cormorant.rules.search.priorities import Priority
from cormorant.rules.search.reservations import EndKind, RequestEnd, RequestPermit, Reserved, SourceClosedNow
from storage.search import source_states
from storage.search.requests import CachedAnswer, EndedRequest, RequestResult, record_result, reserve_now
from storage.search.source_states import KnownState

RETRY_S = 1.0
RECORD_S = 5.0
"""How long the end of a request may take to be recorded when the service stops around it."""
RESERVE_S = 5.0
"""How long a reservation may take. Longer, and the request waits in line again, where its own wait can end."""
LOOK_S = 2.0
"""How often is looked whether another process has ended its request, which does not tell us."""

WAIT_S_MAX = 60.0
"""At least so often is looked while something waits: a clock that jumps must neither flood nor stall."""


NOT_SENT = RequestResult(end=RequestEnd(kind=EndKind.OURS), status=OutcomeStatus.CANCELLED)


def _wanted(best: tuple[Priority, PendingRequest]) -> Wanted:
    rank, pending = best
    return (rank, pending.sequence), pending.priority is Priority.INTERACTIVE


@define(eq=False, kw_only=True)
class RateLimiter(Actor[None]):
    """Looks at its queue whenever something changes, and starts a worker when the best ticket may go."""

    environment: Environment = field(kw_only=False)
    requests: SourceRequests
    slots: SlotWaiters
    _workers: int = field(init=False, default=0)
    _is_bidding: bool = field(init=False, default=False)
    _known_since: float = field(init=False, default=0.0)
    _openings: OpeningTimes = field(init=False)
    _waits: WaitExpiry = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._openings = OpeningTimes(self.environment, self.requests)
        self._waits = WaitExpiry(self.environment, self.requests, self._openings)

    async def begin(self) -> None:
        """Begin. Nobody waits for the database: tickets do, until the state is known."""
        self.requests.open()
        self.nursery.start_soon(self._serve)

    @property
    def _limits(self) -> SourceLimits:
        return self._known.limits

    @property
    def _known(self) -> KnownState:
        assert self.requests.known is not None
        return self.requests.known

    async def _serve(self) -> None:
        await self._refresh()
        while True:
            if self.requests.is_stale:
                await self._refresh()
            now = self.environment.now()
            self._waits.expire_unreachable(now)
            self._start_worker(now)
            await self._wait(now)

    async def _refresh(self) -> None:
        """Read the state, however long the database is away. Waits end meanwhile as they must."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._end_overdue)
            await self._read()
            nursery.cancel_scope.cancel()

    async def _end_overdue(self) -> None:
        while True:
            await trio.sleep(RETRY_S)
            self._waits.end_expired(self.environment.now())

    async def _read(self) -> None:
        """Read the state, once the end of what an outage or a crash left open is recorded."""
        while True:
            self.requests.is_stale = False
            try:
                while self.requests.unrecorded:
                    await self.environment.database.run(record_result, self.requests.unrecorded[0])
                    self.requests.unrecorded.pop(0)
                while self.requests.left_over:
                    await self._record_left_over()
                self._learn(
                    await self.environment.database.run(
                        source_states.read, self.requests.record.id, configured=self.requests.record.limits
                    )
                )
            except StorageUnavailable:
                await trio.sleep(RETRY_S)
            except CommitUnknown:
                if self.requests.unrecorded:  # it may have happened: looked up before it is repeated
                    self.requests.unrecorded[0] = evolve(self.requests.unrecorded[0], is_in_doubt=True)
                await trio.sleep(RETRY_S)
            else:
                return

    async def _record_left_over(self) -> None:
        permit = self.requests.left_over[-1]
        await self.environment.database.run(
            source_states.finish,
            self.requests.record.id,
            permit,
            RequestEnd(kind=EndKind.OURS),
            configured=self.requests.record.limits,
            now=self.environment.now(),
        )
        self.requests.left_over.pop()

    def _learn(self, known: KnownState) -> None:
        self.requests.known = known
        self._known_since = trio.current_time()
        self._openings.forget()

    def _best(self, now: datetime) -> tuple[Priority, PendingRequest] | None:
        found = None
        for queue in self.requests.queues.values():
            best = queue.best(now, self._openings.of) if len(queue) else None
            if best is not None and (found is None or (best[0], best[1].sequence) < (found[0], found[1].sequence)):
                found = best
        return found

    def _start_worker(self, now: datetime) -> None:
        best = self._best(now) if not self.requests.is_closing else None
        if best is None:
            return
        rank, is_for_people = wanted = _wanted(best)
        if self._is_bidding:
            self.slots.change_bid(self.requests.name, rank, is_for_people=is_for_people)
        elif self._workers < self._limits.in_flight_max:
            self._workers += 1
            if self.slots.acquire_nowait(self.requests.name, rank, is_for_people=is_for_people):
                # A task that was started runs to its first wait, whatever happens: what it took is surely given back.
                self.requests.take(best[1])
                self.nursery.start_soon(self._work_on, best[1])
            else:
                self._is_bidding = True
                self.nursery.start_soon(self._work, wanted)

    async def _wait(self, now: datetime) -> None:
        if not self.requests.waiting() and self.requests.next_follower_end() is None:
            await self.requests.wake_up.wait()
            return
        times = [queue.next_event(now, self._openings.of) for queue in self.requests.queues.values() if len(queue)]
        times.append(self.requests.next_follower_end())
        soonest = min((time for time in times if time is not None), default=None)
        if soonest is not None and soonest <= now:
            if not self._is_bidding and not self._workers:
                await trio.lowlevel.checkpoint()
                return
            # What may go now waits for a slot, or for one of ours to end.
            soonest = min((time for time in times if time is not None and time > now), default=None)
        wait_s = WAIT_S_MAX if soonest is None else min(WAIT_S_MAX, (soonest - now).total_seconds())
        # With nothing in line there is nothing to look for.
        until = trio.current_time() + wait_s if self.requests.waiting() or soonest is not None else math.inf
        await self._wait_until(until)

    async def _wait_until(self, until: float) -> None:
        is_busy = self.requests.waiting() > 0 and self._is_busy_elsewhere()
        # Counted from the last look and not from now, or whoever keeps ringing would put it off for ever.
        look_at = self._known_since + LOOK_S if is_busy else math.inf
        if not await self.requests.wake_up.wait(min(until, look_at)):
            self._openings.forget()  # they hold for the clock as it was
        if trio.current_time() >= look_at:
            self.requests.is_stale = True

    def _is_busy_elsewhere(self) -> bool:
        state = self._known.state
        ours = {permit for permit in self.requests.running.values() if permit is not None}
        in_flight = sum(len(state.lane(lane).in_flight) for lane in Lane)
        return in_flight > len(ours)

    async def _work(self, wanted: Wanted) -> None:
        """Get a slot, then make the request that is the best by then."""
        try:
            try:
                await self.slots.acquire_for(self.requests.name, wanted, self._wanted_now)
            finally:
                self._is_bidding = False
            try:
                best = self._best(self.environment.now())
                if best is not None and not self.requests.is_closing:
                    self.requests.take(best[1])
                    await self._execute(best[1])
            finally:
                self.slots.free(self.requests.name)
        finally:
            self._ended_work()

    def _wanted_now(self) -> Wanted | None:
        best = self._best(self.environment.now())
        return None if best is None else _wanted(best)

    async def _work_on(self, pending: PendingRequest) -> None:
        """As `_work`, for what was taken with a slot that was free."""
        try:
            await self._execute(pending)
        finally:
            self.slots.free(self.requests.name)
            self._ended_work()

    def _ended_work(self) -> None:
        self._workers -= 1
        if self.requests.is_stale or self.requests.waiting():
            self.requests.wake_up.set()

    async def _execute(self, pending: PendingRequest) -> None:
        """Make a request that was just taken from its queue. The caller holds a slot."""
        try:
            holding_slot.set(True)
            reserved = await self._reserve(pending)
            if reserved is None:
                return
            permit = self.requests.running[pending] = reserved.permit
            # Paid for while the service began to stop: nothing is sent any more.
            result = NOT_SENT if self.requests.is_closing else await self._request(pending)
            await self._finish(pending, permit, result)
        finally:
            if pending in self.requests.running and pending.is_taken:
                self.requests.finished(pending)
                pending.end(OutcomeStatus.FAILED, ActorCrashed(f"rate_limiter:{self.requests.name}"))

    async def _reserve(self, pending: PendingRequest) -> Reserved | None:
        """Spend a request. None: it may not go, and waits again."""
        wanted = reservation_request_of(pending, self.environment.now())
        record = self.requests.record
        answer: Reserved | SourceClosedNow | CachedAnswer | None = None
        with trio.move_on_after(RESERVE_S), suppress(StorageUnavailable, CommitUnknown):
            answer, known = await self.environment.database.run(
                reserve_now,
                record.id,
                wanted,
                configured=record.limits,
                clock=self.environment.clock,
                hint=self.requests.known,
                key=self._cache_key(pending),
            )
            if known is not None:
                self._learn(known)
        if answer is None:
            # In doubt it counts as spent, and its lease runs out by itself.
            self.requests.put_back(pending)
            self.requests.is_stale = True
            return None
        if isinstance(answer, SourceClosedNow):
            self.requests.put_back(pending)
            return None
        if isinstance(answer, CachedAnswer):
            self.requests.answer_from_cache(pending, answer.results)
            return None
        if self.requests.waiting():
            self.requests.wake_up.set()  # the others wait for something else now
        return answer

    def _cache_key(self, pending: PendingRequest) -> str | None:
        """Under what another process may have kept the answer meanwhile. A feed is fetched for what is new."""
        return (
            pending.key
            if pending.queue_key is None and self.environment.settings.search.ttl_s(pending.priority) > 0
            else None
        )

    async def _request(self, pending: PendingRequest) -> RequestResult:
        # The last one left while it was reserved, or the service stops: what was not sent yet is not sent.
        if not pending.is_live or pending.is_stopped or self.requests.is_closing:
            return RequestResult(end=RequestEnd(kind=EndKind.OURS), status=OutcomeStatus.CANCELLED)
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
        """Record the end, then tell everyone. When the service stops around it, it may take a little longer."""
        status = OutcomeStatus.SHUT_DOWN if self.requests.is_closing and result.was_cancelled else result.status
        now, record = self.environment.now(), self.requests.record
        ended = EndedRequest(
            record=record,
            permit=permit,
            result=result,
            entries=[history_entry(ticket, record, result, now) for ticket in pending.living()],
            key=pending.key,
            ttl_s=self.environment.settings.search.ttl_s(pending.priority),
            now=now,
        )
        await self._record(pending, ended)
        if result.end.kind is EndKind.CREDENTIALS_REFUSED:
            self.environment.emit(SourceStopped(source=self.requests.name, because=result.end.because))
        self.environment.emit(result.request_finished(self.requests.name, pending.lane, status))
        for ticket in pending.living():
            self.environment.emit(finished(ticket, result, status))
        pending.finish(result.outcome(self.requests.name, status))
        self.requests.finished(pending)

    async def _record(self, pending: PendingRequest, ended: EndedRequest) -> None:
        is_in_doubt = True  # also when its time is over: it may have been done in that moment
        with trio.move_on_after(RECORD_S, shield=True):
            try:
                self._learn(await self.environment.database.run(record_result, ended, hint=self.requests.known))
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
