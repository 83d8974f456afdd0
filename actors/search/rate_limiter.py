"""When is one source asked, and for whom? One limiter for each; every request to the source goes through it."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from functools import partial

import trio
from attrs import define, evolve, field

from actors.actor import Actor
from actors.search.request_execution import (
    Ask,
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
from cormorant.rules.ports import Clock, Emit
from cormorant.rules.search.events import SourceStopped
from cormorant.rules.search.limits import Lane, SourceLimits
from cormorant.rules.search.outcomes import OutcomeStatus
from cormorant.rules.search.priorities import Priority
from cormorant.rules.search.reservations import EndKind, RequestEnd, RequestPermit, Reserved, SourceClosedNow
from storage.database import Database
from storage.search import source_states
from storage.search.requests import CachedAnswer, RequestResult, record_result, reserve_now
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
    rank, flight = best
    return (rank, flight.sequence), flight.priority is Priority.INTERACTIVE


@define(eq=False, kw_only=True)
class RateLimiter(Actor[None]):
    """Looks at its queue whenever something changes, and starts a worker when the best ticket may go."""

    desk: SourceRequests
    slots: SlotWaiters
    database: Database
    ask: Ask
    cache_ttl_s: Callable[[Priority], float]
    clock: Clock
    emit: Emit
    _workers: int = field(init=False, default=0)
    _is_bidding: bool = field(init=False, default=False)
    _known_since: float = field(init=False, default=0.0)
    _openings: OpeningTimes = field(init=False)
    _waits: WaitExpiry = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._openings = OpeningTimes(self.desk, self.clock)
        self._waits = WaitExpiry(self.desk, self._openings, self.emit)

    async def begin(self) -> None:
        """Begin. Nobody waits for the database: tickets do, until the state is known."""
        self.desk.open()
        self.nursery.start_soon(self._serve)

    @property
    def _limits(self) -> SourceLimits:
        return self._known.limits

    @property
    def _known(self) -> KnownState:
        assert self.desk.known is not None
        return self.desk.known

    async def _serve(self) -> None:
        await self._refresh()
        while True:
            if self.desk.is_stale:
                await self._refresh()
            now = self.clock.now()
            self._waits.end_hopeless(now)
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
            self._waits.end_expired(self.clock.now())

    async def _read(self) -> None:
        """Read the state, once the end of what an outage or a crash left open is recorded."""
        while True:
            self.desk.is_stale = False
            try:
                while self.desk.unrecorded:
                    await self.database.run(self.desk.unrecorded[0])
                    self.desk.unrecorded.pop(0)
                while self.desk.left_over:
                    await self._record_left_over()
                self._learn(
                    await self.database.run(source_states.look, self.desk.record.id, configured=self.desk.record.limits)
                )
            except StorageUnavailable:
                await trio.sleep(RETRY_S)
            except CommitUnknown:
                if self.desk.unrecorded:  # it may have happened: looked up before it is repeated
                    self.desk.unrecorded[0] = partial(self.desk.unrecorded[0], is_in_doubt=True)
                await trio.sleep(RETRY_S)
            else:
                return

    async def _record_left_over(self) -> None:
        permit = self.desk.left_over[-1]
        await self.database.run(
            source_states.finish,
            self.desk.record.id,
            permit,
            RequestEnd(kind=EndKind.OURS),
            configured=self.desk.record.limits,
            now=self.clock.now(),
        )
        self.desk.left_over.pop()

    def _learn(self, known: KnownState) -> None:
        self.desk.known = known
        self._known_since = trio.current_time()
        self._openings.forget()

    def _best(self, now: datetime) -> tuple[Priority, PendingRequest] | None:
        found = None
        for queue in self.desk.queues.values():
            best = queue.best(now, self._openings.of) if len(queue) else None
            if best is not None and (found is None or (best[0], best[1].sequence) < (found[0], found[1].sequence)):
                found = best
        return found

    def _start_worker(self, now: datetime) -> None:
        best = self._best(now) if not self.desk.is_closing else None
        if best is None:
            return
        rank, is_for_people = wanted = _wanted(best)
        if self._is_bidding:
            self.slots.change_bid(self.desk.name, rank, is_for_people=is_for_people)
        elif self._workers < self._limits.in_flight_max:
            self._workers += 1
            if self.slots.acquire_nowait(self.desk.name, rank, is_for_people=is_for_people):
                # A task that was started runs to its first wait, whatever happens: what it took is surely given back.
                self.desk.take(best[1])
                self.nursery.start_soon(self._work_on, best[1])
            else:
                self._is_bidding = True
                self.nursery.start_soon(self._work, wanted)

    async def _wait(self, now: datetime) -> None:
        if not self.desk.waiting() and self.desk.next_sharer_end() is None:
            await self.desk.bell.wait()
            return
        times = [queue.next_event(now, self._openings.of) for queue in self.desk.queues.values() if len(queue)]
        times.append(self.desk.next_sharer_end())
        soonest = min((time for time in times if time is not None), default=None)
        if soonest is not None and soonest <= now:
            if not self._is_bidding and not self._workers:
                await trio.lowlevel.checkpoint()
                return
            # What may go now waits for a slot, or for one of ours to end.
            soonest = min((time for time in times if time is not None and time > now), default=None)
        wait_s = WAIT_S_MAX if soonest is None else min(WAIT_S_MAX, (soonest - now).total_seconds())
        # With nothing in line there is nothing to look for.
        until = trio.current_time() + wait_s if self.desk.waiting() or soonest is not None else math.inf
        await self._wait_until(until)

    async def _wait_until(self, until: float) -> None:
        is_busy = self.desk.waiting() > 0 and self._is_busy_elsewhere()
        # Counted from the last look and not from now, or whoever keeps ringing would put it off for ever.
        look_at = self._known_since + LOOK_S if is_busy else math.inf
        if not await self.desk.bell.wait(min(until, look_at)):
            self._openings.forget()  # they hold for the clock as it was
        if trio.current_time() >= look_at:
            self.desk.is_stale = True

    def _is_busy_elsewhere(self) -> bool:
        state = self._known.state
        ours = {permit for permit in self.desk.running.values() if permit is not None}
        in_flight = sum(len(state.lane(lane).in_flight) for lane in Lane)
        return in_flight > len(ours)

    async def _work(self, wanted: Wanted) -> None:
        """Get a slot, then make the request that is the best by then."""
        try:
            try:
                await self.slots.acquire_for(self.desk.name, wanted, self._wanted_now)
            finally:
                self._is_bidding = False
            try:
                best = self._best(self.clock.now())
                if best is not None and not self.desk.is_closing:
                    self.desk.take(best[1])
                    await self._fly(best[1])
            finally:
                self.slots.free(self.desk.name)
        finally:
            self._ended_work()

    def _wanted_now(self) -> Wanted | None:
        best = self._best(self.clock.now())
        return None if best is None else _wanted(best)

    async def _work_on(self, flight: PendingRequest) -> None:
        """As `_work`, for what was taken with a slot that was free."""
        try:
            await self._fly(flight)
        finally:
            self.slots.free(self.desk.name)
            self._ended_work()

    def _ended_work(self) -> None:
        self._workers -= 1
        if self.desk.is_stale or self.desk.waiting():
            self.desk.bell.ring()

    async def _fly(self, flight: PendingRequest) -> None:
        """Make the request of a flight that was just taken, with a slot in hand."""
        try:
            holding_slot.set(True)
            reserved = await self._reserve(flight)
            if reserved is None:
                return
            permit = self.desk.running[flight] = reserved.permit
            # Paid for while the service began to stop: nothing is sent any more.
            landing = NOT_SENT if self.desk.is_closing else await self._request(flight)
            await self._land(flight, permit, landing)
        finally:
            if flight in self.desk.running and flight.is_taken:
                self.desk.landed(flight)
                flight.end(OutcomeStatus.FAILED, ActorCrashed(f"rate_limiter:{self.desk.name}"))

    async def _reserve(self, flight: PendingRequest) -> Reserved | None:
        """Spend a request. None: it may not go, and waits again."""
        wish = reservation_request_of(flight, self.clock.now())
        record = self.desk.record
        answer: Reserved | SourceClosedNow | CachedAnswer | None = None
        with trio.move_on_after(RESERVE_S), suppress(StorageUnavailable, CommitUnknown):
            answer, known = await self.database.run(
                reserve_now,
                record.id,
                wish,
                configured=record.limits,
                clock=self.clock,
                hint=self.desk.known,
                key=self._cache_key(flight),
            )
            if known is not None:
                self._learn(known)
        if answer is None:
            # In doubt it counts as spent, and its lease runs out by itself.
            self.desk.put_back(flight)
            self.desk.is_stale = True
            return None
        if isinstance(answer, SourceClosedNow):
            self.desk.put_back(flight)
            return None
        if isinstance(answer, CachedAnswer):
            self.desk.answer_from_cache(flight, answer.results)
            return None
        if self.desk.waiting():
            self.desk.bell.ring()  # the others wait for something else now
        return answer

    def _cache_key(self, flight: PendingRequest) -> str | None:
        """Under what another process may have kept the answer meanwhile. A feed is fetched for what is new."""
        return flight.key if flight.queue_key is None and self.cache_ttl_s(flight.priority) > 0 else None

    async def _request(self, flight: PendingRequest) -> RequestResult:
        # The last one left while it was reserved, or the service stops: what was not sent yet is not sent.
        if not flight.is_live or flight.is_stopped or self.desk.is_closing:
            return RequestResult(end=RequestEnd(kind=EndKind.OURS), status=OutcomeStatus.CANCELLED)
        waited_s = (self.clock.now() - flight.submitted_at).total_seconds()
        for ticket in flight.living():
            self.emit(started(ticket, waited_s))
        began = trio.current_time()
        ended = await execute(flight, self.desk.record, self.ask)
        took_s = trio.current_time() - began
        if ended.was_cancelled:
            return evolve(NOT_SENT, took_s=took_s)
        return result_of(ended, self.desk.name, took_s=took_s, waited_s=waited_s, now=self.clock.now())

    async def _land(self, flight: PendingRequest, permit: RequestPermit, landing: RequestResult) -> None:
        """Record the end, then tell everyone. When the service stops around it, it may take a little longer."""
        status = OutcomeStatus.SHUT_DOWN if self.desk.is_closing and landing.was_cancelled else landing.status
        now, record = self.clock.now(), self.desk.record
        await self._record(
            flight,
            partial(
                record_result,
                record=record,
                permit=permit,
                result=landing,
                entries=[history_entry(ticket, record, landing, now) for ticket in flight.living()],
                key=flight.key,
                ttl_s=self.cache_ttl_s(flight.priority),
                now=now,
                hint=self.desk.known,
            ),
        )
        if landing.end.kind is EndKind.CREDENTIALS_REFUSED:
            self.emit(SourceStopped(source=self.desk.name, because=landing.end.because))
        self.emit(landing.request_finished(self.desk.name, flight.lane, status))
        for ticket in flight.living():
            self.emit(finished(ticket, landing, status))
        flight.finish(landing.outcome(self.desk.name, status))
        self.desk.landed(flight)

    async def _record(self, flight: PendingRequest, statement: Callable[..., KnownState]) -> None:
        is_in_doubt = True  # also when its time is over: it may have been done in that moment
        with trio.move_on_after(RECORD_S, shield=True):
            try:
                self._learn(await self.database.run(statement))
            except StorageUnavailable:
                is_in_doubt = False
            except CommitUnknown:
                pass
            else:
                self.desk.running[flight] = None
                return
        # Kept, and recorded before the next request goes: what the source said must not be lost.
        self.desk.running[flight] = None
        self.desk.unrecorded.append(partial(statement, is_in_doubt=is_in_doubt))
        self.desk.is_stale = True
