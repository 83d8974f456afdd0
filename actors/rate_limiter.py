"""When is one source asked, and for whom? One limiter for each; every request to the source goes through it."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime, timedelta

import trio
from attrs import define, field

from actors.actor import Actor
from actors.flying import Ask, Landing, execute, holding_slot, landing_of, record_landing
from actors.slots import Slots
from actors.source_desk import Flight, SourceDesk
from cormorant.rules.errors import CommitUnknown, StorageUnavailable
from cormorant.rules.gates import Gate, GateName, earliest_opening, look_again_at, next_opening, openings
from cormorant.rules.limits import Lane, SourceLimits
from cormorant.rules.outcomes import OutcomeStatus, RateLimitWaitError
from cormorant.rules.ports import Clock, Emit
from cormorant.rules.priorities import Priority, aged
from cormorant.rules.request_ends import EndKind, RequestEnd
from cormorant.rules.reservations import PROBE_GRACE_S, Closed, Reserved
from cormorant.rules.search_events import SearchFinished, SearchStarted, SourceStopped
from cormorant.rules.source_errors import SourceRefused
from storage import source_states
from storage.database import Database
from storage.source_states import Known, Wish

RETRY_S = 1.0
RECORD_S = 5.0
"""How long the end of a request may take to be recorded when the service stops around it."""
LOOK_S = 2.0
"""How often is looked whether another process has ended its request, which does not tell us."""

WAIT_S_MAX = 60.0
"""At least so often is looked while something waits: a clock that jumps must neither flood nor stall."""

_FINAL = {GateName.ENABLED, GateName.STOPPED}


@define(eq=False, kw_only=True)
class RateLimiter(Actor[None]):
    """Looks at its queue whenever something changes, and starts a worker when the best ticket may go."""

    desk: SourceDesk
    slots: Slots
    database: Database
    ask: Ask
    cache_ttl_s: Callable[[Priority], float]
    clock: Clock
    emit: Emit
    _workers: int = field(init=False, default=0)
    _is_bidding: bool = field(init=False, default=False)
    _openings: dict[tuple[Lane, Priority, Priority, float | None], datetime | None] = field(init=False, factory=dict)

    async def begin(self) -> None:
        """Begin. Nobody waits for the database: tickets do, until the state is known."""
        self.nursery.start_soon(self._serve)

    @property
    def _limits(self) -> SourceLimits:
        return self._known.limits(self.desk.record.limits)

    @property
    def _known(self) -> Known:
        assert self.desk.known is not None
        return self.desk.known

    async def _serve(self) -> None:
        await self._refresh()
        while True:
            if self.desk.is_stale:
                await self._refresh()
            now = self.clock.now()
            self._end_hopeless(now)
            self._start_worker(now)
            await self._wait(now)

    async def _refresh(self) -> None:
        """Read the state, and record the end of what a crash left open."""
        while True:
            self.desk.is_stale = False
            try:
                while self.desk.left_over:
                    await self._record_left_over()
                self._learn(
                    await self.database.run(source_states.look, self.desk.record.id, configured=self.desk.record.limits)
                )
            except (StorageUnavailable, CommitUnknown):
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

    def _learn(self, known: Known) -> None:
        self.desk.known = known
        self._openings.clear()

    def _end_hopeless(self, now: datetime) -> None:
        """End what has waited too long, and what would."""
        for lane, queue in self.desk.queues.items():
            for flight in queue.expired(now):
                self._end_late(flight, lane, now)
            for priority in Priority:
                head = queue.head(priority)
                if head is not None:
                    self._end_hopeless_of(head, lane, now)
        for ticket in self.desk.followers_ending(now):
            ticket.end(OutcomeStatus.RATE_LIMITED, self._wait_error(ticket.priority, ticket.max_wait_s, None))

    def _end_hopeless_of(self, head: Flight, lane: Lane, now: datetime) -> None:
        queue = self.desk.queues[lane]
        gates = self._gates(head, lane, now)
        final = next((gate for gate in gates if gate.name in _FINAL), None)
        if final is not None:
            while (doomed := queue.head(head.priority)) is not None:
                queue.cancel(doomed)
                doomed.end(OutcomeStatus.REFUSED, SourceRefused(f"{self.desk.name} is not asked: {final.why}"))
            return
        opens_at = self._earliest(head, lane, now)
        if opens_at is None and look_again_at(gates, now=now) is not None:
            return  # something will end, nobody knows when
        horizon = opens_at or datetime.max.replace(tzinfo=now.tzinfo)
        for flight in queue.hopeless(horizon, head.priority):
            self._end_late(flight, lane, now)

    def _end_late(self, flight: Flight, lane: Lane, now: datetime) -> None:
        opens_at = self._earliest(flight, lane, now)
        wait_s = None if opens_at is None else max(0.0, (opens_at - now).total_seconds())
        for ticket in flight.living():
            waited_s = (now - ticket.submitted_at).total_seconds()
            error = self._wait_error(ticket.priority, ticket.max_wait_s, wait_s)
            ticket.end(OutcomeStatus.RATE_LIMITED, error, waited_s=waited_s)
            self.emit(
                SearchFinished(
                    search_id=ticket.search.id,
                    source=self.desk.name,
                    status=OutcomeStatus.RATE_LIMITED.value,
                    results=0,
                    waited_s=waited_s,
                    took_s=0.0,
                    error=str(error),
                )
            )

    def _wait_error(self, priority: Priority, max_wait_s: float | None, wait_s: float | None) -> RateLimitWaitError:
        return RateLimitWaitError(self.desk.name, wait_s=wait_s, max_wait_s=max_wait_s, priority=priority)

    def _gates(self, flight: Flight, lane: Lane, now: datetime) -> tuple[Gate, ...]:
        known = self._known
        return openings(
            known.state,
            self._limits,
            lane=lane,
            priority=flight.priority,
            now=now,
            edges=known.edges[lane],
            pace_s=flight.pace_s,
            waited_s=(now - flight.submitted_at).total_seconds(),
        )

    def _earliest(self, flight: Flight, lane: Lane, now: datetime) -> datetime | None:
        known = self._known
        return earliest_opening(
            known.state,
            self._limits,
            lane=lane,
            priority=flight.priority,
            now=now,
            edges=known.edges[lane],
            pace_s=flight.pace_s,
            waited_s=(now - flight.submitted_at).total_seconds(),
        )

    def _opening_of(self, flight: Flight, rank: Priority) -> datetime | None:
        """When the source opens for it. The same for all of a class and age, until the state changes."""
        key = (flight.lane, flight.priority, rank, flight.pace_s)
        if key in self._openings:
            return self._openings[key]
        now = self.clock.now()
        gates = self._gates(flight, flight.lane, now)
        opens_at = next_opening(gates, now=now)
        if aged(flight.priority, (now - flight.submitted_at).total_seconds()) is rank:
            self._openings[key] = opens_at
        return opens_at

    def _best(self, now: datetime) -> tuple[Priority, Flight] | None:
        found = [best for queue in self.desk.queues.values() if (best := queue.best(now, self._opening_of))]
        return min(found, key=lambda each: (each[0], each[1].sequence), default=None)

    def _start_worker(self, now: datetime) -> None:
        best = self._best(now) if not self.desk.is_closing else None
        if best is None:
            return
        rank = (best[0], best[1].sequence)
        is_for_people = best[1].priority is Priority.INTERACTIVE
        if self._is_bidding:
            self.slots.raise_bid(self.desk.name, rank, is_for_people=is_for_people)
        elif self._workers < self._limits.in_flight_max:
            self._workers += 1
            self._is_bidding = True
            self.nursery.start_soon(self._work, rank, is_for_people)

    async def _wait(self, now: datetime) -> None:
        times = [queue.next_event(now, self._opening_of) for queue in self.desk.queues.values()]
        times.append(self.desk.next_follower_end())
        if self.desk.waiting() and self._is_busy_elsewhere():
            times.append(now + timedelta(seconds=LOOK_S))
        soonest = min((time for time in times if time is not None), default=None)
        if soonest is not None and soonest <= now:
            if not self._is_bidding and not self._workers:
                await trio.lowlevel.checkpoint()
                return
            soonest = None  # what may go now waits for a slot, or for one of ours to end
            later = [time for time in times if time is not None and time > now]
            soonest = min(later, default=None)
        wait_s = WAIT_S_MAX if soonest is None else min(WAIT_S_MAX, (soonest - now).total_seconds())
        # With nothing in line there is nothing to look for.
        until = trio.current_time() + wait_s if self.desk.waiting() or soonest is not None else math.inf
        rang = await self.desk.bell.wait(until)
        if not rang and self._is_busy_elsewhere():
            self.desk.is_stale = True

    def _is_busy_elsewhere(self) -> bool:
        state = self._known.state
        ours = {permit for permit in self.desk.running.values() if permit is not None}
        in_flight = sum(len(state.lane(lane).in_flight) for lane in Lane)
        return in_flight > len(ours)

    async def _work(self, rank: tuple[Priority, int], is_for_people: bool) -> None:  # noqa: FBT001 - start_soon takes no names
        """Get a slot, then make the request that is the best by then."""
        try:
            try:
                await self.slots.acquire(self.desk.name, rank, is_for_people=is_for_people)
            finally:
                self._is_bidding = False
            try:
                holding_slot.set(True)
                best = self._best(self.clock.now())
                if best is not None and not self.desk.is_closing:
                    await self._fly(best[1])
            finally:
                self.slots.free(self.desk.name)
        finally:
            self._workers -= 1
            self.desk.bell.ring()

    async def _fly(self, flight: Flight) -> None:
        self.desk.take(flight)
        try:
            reserved = await self._reserve(flight)
            if reserved is None:
                return
            self.desk.running[flight] = reserved.permit
            landing = await self._request(flight)
            await self._land(flight, reserved, landing)
        finally:
            if flight in self.desk.running and flight.is_taken:
                self.desk.landed(flight)
                flight.end(OutcomeStatus.FAILED, SourceRefused(f"the request to {self.desk.name} was not completed"))

    async def _reserve(self, flight: Flight) -> Reserved | None:
        """Spend a request. None: it may not go, and waits again."""
        now = self.clock.now()
        wish = Wish(
            lane=flight.lane,
            priority=flight.priority,
            lease_s=flight.timeout_s + PROBE_GRACE_S,
            pace_s=flight.pace_s,
            waited_s=(now - flight.submitted_at).total_seconds(),
            consumer=flight.consumer,
        )
        record = self.desk.record
        try:
            answer, known = await self.database.run(
                source_states.reserve, record.id, wish, configured=record.limits, now=now
            )
        except (StorageUnavailable, CommitUnknown):
            # In doubt it counts as spent, and its lease runs out by itself.
            self.desk.put_back(flight)
            self.desk.is_stale = True
            await trio.sleep(RETRY_S)
            return None
        self._learn(known)
        if isinstance(answer, Closed):
            self.desk.put_back(flight)
            return None
        self.desk.bell.ring()  # the others wait for something else now
        return answer

    async def _request(self, flight: Flight) -> Landing:
        waited_s = (self.clock.now() - flight.submitted_at).total_seconds()
        for ticket in flight.living():
            self.emit(
                SearchStarted(
                    search_id=ticket.search.id,
                    source=self.desk.name,
                    priority=ticket.priority.name.lower(),
                    waited_s=waited_s,
                )
            )
        began = trio.current_time()
        with trio.CancelScope() as flight.scope:
            if not flight.is_live:
                flight.scope.cancel()
            ended = await execute(flight, self.desk.record, self.ask)
        was_cancelled = flight.scope.cancelled_caught
        took_s = trio.current_time() - began
        if was_cancelled:
            return Landing(end=RequestEnd(kind=EndKind.OURS), status=OutcomeStatus.CANCELLED, took_s=took_s)
        return landing_of(ended, self.desk.name, took_s=took_s, waited_s=waited_s, now=self.clock.now())

    async def _land(self, flight: Flight, reserved: Reserved, landing: Landing) -> None:
        """Record the end, then tell everyone. When the service stops around it, it may take a little longer."""
        status = OutcomeStatus.SHUT_DOWN if self.desk.is_closing and landing.was_cancelled else landing.status
        record = self.desk.record
        with trio.move_on_after(RECORD_S, shield=True):
            try:
                known = await self.database.run(
                    record_landing,
                    record,
                    reserved.permit,
                    landing,
                    tickets=flight.living(),
                    key=flight.key,
                    ttl_s=self.cache_ttl_s(flight.priority),
                    now=self.clock.now(),
                )
            except (StorageUnavailable, CommitUnknown):
                self.desk.is_stale = True  # `landed` keeps the permit, and it is recorded later
            else:
                self.desk.running[flight] = None
                self._learn(known)
                if known.state.stopped_because is not None and landing.end.kind is EndKind.CREDENTIALS_REFUSED:
                    self.emit(SourceStopped(source=self.desk.name, because=known.state.stopped_because))
        self._tell_all(flight, landing, status)
        self.desk.landed(flight)

    def _tell_all(self, flight: Flight, landing: Landing, status: OutcomeStatus) -> None:
        for ticket in flight.living():
            self.emit(
                SearchFinished(
                    search_id=ticket.search.id,
                    source=self.desk.name,
                    status=status.value,
                    results=len(landing.results),
                    waited_s=landing.waited_s,
                    took_s=landing.took_s,
                    error=None if landing.error is None else str(landing.error),
                )
            )
        flight.finish(landing.outcome(self.desk.name, status))
