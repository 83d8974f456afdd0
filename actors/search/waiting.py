"""Opening times of a source, expiry of waits that cannot succeed, and waiting for a request slot."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from itertools import islice
from typing import TypeVar

import trio
from attrs import define, evolve, field, frozen

from actors.environment import Environment
from actors.search.request_execution import finished
from actors.search.search import AppLane, Ticket
from actors.search.source_requests import PendingRequest, SourceRequests
from cormorant.rules.search.outcomes import OutcomeStatus, RateLimitWaitError, SourceNotAsked
from cormorant.rules.search.priorities import Priority, aged
from cormorant.rules.search.reasons import (
    NextRequest,
    Reason,
    ReasonName,
    earliest_opening,
    next_opening,
    openings,
    recheck_at,
)
from cormorant.rules.search.reservations import EndKind, RequestEnd
from cormorant.rules.search.slots import Rank, SlotPool
from storage.search.requests import RequestResult

_NEVER = datetime.max.replace(tzinfo=UTC)
_FINAL = {ReasonName.ENABLED, ReasonName.STOPPED}
PACES_MAX = 16
"""Of so many different paces it is told at once that they cannot go in time; of the others when their wait is over."""


@frozen(eq=False)
class WaitExpiry:
    """Ends the waits at one source."""

    environment: Environment
    requests: SourceRequests
    openings: OpeningTimes

    def expire_unreachable(self, now: datetime) -> None:
        """End what has waited too long, and what would."""
        self.end_expired(now)
        heads = [head for queue in self.requests.queues.values() if len(queue) for head in queue.heads()]
        horizons = [self._expire_unreachable_of(head, now) for head in heads if head.is_live]
        opens_at = min(horizons, default=now)
        for ticket in self.requests.followers_ending(opens_at):
            self._end_ticket(ticket, opens_at, now)

    def end_expired(self, now: datetime) -> None:
        """End what has waited too long."""
        for queue in self.requests.queues.values():
            if not len(queue):
                continue
            for pending in queue.expired(now):
                self._end_late(pending, self.openings.earliest(pending, now) if self.requests.known else None, now)
        for ticket in self.requests.followers_ending(now):
            self._end_ticket(ticket, None, now)

    def _expire_unreachable_of(self, head: PendingRequest, now: datetime) -> datetime:
        """End those of its class that would wait too long. Returns when the source opens for any of them, at the earliest."""
        opens_now_at = self.openings.of(head, aged(head.priority, (now - head.submitted_at).total_seconds()))
        if opens_now_at is not None and opens_now_at <= now and len(self.requests.paces) <= 1:
            return now  # those whose wait was over before are gone
        queue = self.requests.queues[head.place]
        final = next((reason for reason in self.openings.reasons(head, now) if reason.name in _FINAL), None)
        if final is not None:
            while (doomed := queue.head(head.priority)) is not None:
                queue.cancel(doomed)
                self.requests.forget(doomed)
                doomed.end(OutcomeStatus.REFUSED, SourceNotAsked(f"{self.requests.name} is not asked: {final.why}"))
            return now
        if len(self.requests.paces) > 1:
            return self._end_by_own_pace(head, now)
        opens_at = self._horizon(head, now)
        if opens_at > now:  # those whose wait was over before are gone
            for pending in queue.unreachable(opens_at, head.priority):
                self._end_late(pending, opens_at, now)
        return opens_at

    def _end_by_own_pace(self, head: PendingRequest, now: datetime) -> datetime:
        """As above, where not all keep the same pace: none of its class has waited longer than the head."""
        paces = islice(self.requests.paces, PACES_MAX)
        terms = {pace_s: evolve(head.terms, pace_s=pace_s) for pace_s in paces}
        opens_at = {pace_s: self._horizon(evolve(head, terms=terms[pace_s]), now) for pace_s in terms}
        queue = self.requests.queues[head.place]
        for pending in queue.unreachable(
            max(opens_at.values()), head.priority, opens_for=lambda pending: opens_at.get(pending.terms.pace_s, now)
        ):
            self._end_late(pending, opens_at[pending.terms.pace_s], now)
        return min(opens_at.values())

    def _horizon(self, pending: PendingRequest, now: datetime) -> datetime:
        """When the source opens for it at the earliest; now, where nobody can know."""
        reasons = self.openings.reasons(pending, now)
        if not reasons:
            return now
        opens_at = self.openings.earliest(pending, now)
        if opens_at is None and recheck_at(reasons, now=now) is not None:
            return now  # something will end, nobody knows when
        return opens_at or _NEVER

    def _end_late(self, pending: PendingRequest, opens_at: datetime | None, now: datetime) -> None:
        self.requests.forget(pending)
        for ticket in pending.living():
            self._end_ticket(ticket, opens_at, now)

    def _end_ticket(self, ticket: Ticket, opens_at: datetime | None, now: datetime) -> None:
        is_known = opens_at is not None and opens_at != _NEVER
        wait_s = max(0.0, (opens_at - now).total_seconds()) if opens_at and is_known else None
        waited_s = (now - ticket.submitted_at).total_seconds()
        error = RateLimitWaitError(
            self.requests.name, wait_s=wait_s, max_wait_s=ticket.terms.max_wait_s, priority=ticket.priority
        )
        ticket.end(OutcomeStatus.RATE_LIMITED, error, waited_s=waited_s)
        never = RequestResult(
            end=RequestEnd(kind=EndKind.OURS), status=OutcomeStatus.RATE_LIMITED, error=error, waited_s=waited_s
        )
        self.environment.emit(finished(ticket, never, never.status))


T = TypeVar("T")

_ALREADY = datetime.min.replace(tzinfo=UTC)


@define(eq=False)
class OpeningTimes:
    """The openings of one source, remembered by place in line, class and age."""

    environment: Environment
    requests: SourceRequests
    _found: dict[tuple[AppLane, Priority, Priority, float | None], datetime | None] = field(init=False, factory=dict)

    def forget(self) -> None:
        """What is known has changed, or the clock may have."""
        self._found.clear()

    def reasons(self, pending: PendingRequest, now: datetime) -> tuple[Reason, ...]:
        """What is in the way of a request now."""
        return self._ask(openings, pending, now)

    def earliest(self, pending: PendingRequest, now: datetime) -> datetime | None:
        """When a request can go, its growing older counted in."""
        return self._ask(earliest_opening, pending, now)

    def _ask(self, rule: Callable[..., T], pending: PendingRequest, now: datetime) -> T:
        known = self.requests.known
        assert known is not None
        request = NextRequest(
            lane=pending.lane,
            priority=pending.priority,
            pace_s=pending.terms.pace_s,
            waited_s=(now - pending.submitted_at).total_seconds(),
            share_reason=self.requests.shares.get(pending.place),
        )
        return rule(known.state, known.limits, request, now=now, edges=known.edges[pending.lane])

    def of(self, pending: PendingRequest, rank: Priority) -> datetime | None:
        """When the source opens for a request that counts as this class by now."""
        key = (pending.place, pending.priority, rank, pending.terms.pace_s)
        if key in self._found:
            return self._found[key]
        now = self.environment.now()
        reasons = self.reasons(pending, now)
        # Not the time of this look: the turn it belongs to began a little earlier, and would find it closed.
        opens_at = next_opening(reasons, now=now) if reasons else _ALREADY
        if aged(pending.priority, (now - pending.submitted_at).total_seconds()) is rank:
            self._found[key] = opens_at
        return opens_at


Wanted = tuple[Rank, bool]
"""What is bid for a ticket: its rank, and whether it is for people."""


@define(eq=False)
class SlotWaiters:
    """The slots of a service, shared by all its sources. Belongs to the search supervisor and outlives limiters."""

    pool: SlotPool[str] = field(factory=SlotPool[str])
    _waiting: dict[str, trio.Event] = field(init=False, factory=dict)
    _for_people: set[str] = field(init=False, factory=set)
    """Who bids, or was last granted a slot, for a person."""

    async def acquire_for(self, source: str, wanted: Wanted, best: Callable[[], Wanted | None]) -> None:
        """Wait for a slot for what is the best by then: who was granted one for a person who has left bids anew."""
        while True:
            await self.acquire(source, wanted[0], is_for_people=wanted[1])
            with ExitStack() as slot:
                slot.callback(self.free, source)  # also if `best` raises
                now_wanted = best()
                if now_wanted is None or now_wanted[1] or source not in self._for_people:
                    slot.pop_all()
                    return
            wanted = now_wanted

    async def acquire(self, source: str, rank: Rank, *, is_for_people: bool) -> None:
        """Wait for a slot. Cancelled, it holds none."""
        self._note(source, is_for_people)
        granted = trio.Event()
        self._waiting[source] = granted
        is_taken = False
        try:
            self._grant(self.pool.bid(source, rank, is_for_people=is_for_people))
            await granted.wait()
            is_taken = True
        finally:
            del self._waiting[source]
            if not is_taken and not self.pool.withdraw(source):
                self.free(source)  # granted and cancelled in the same tick

    def acquire_nowait(self, source: str, rank: Rank, *, is_for_people: bool) -> bool:
        """Take a slot if one is free for it. False: it has none, and does not bid."""
        granted_to = self.pool.bid(source, rank, is_for_people=is_for_people)
        if source not in granted_to:
            self.pool.withdraw(source)
        self._grant(tuple(each for each in granted_to if each != source))
        return source in granted_to

    def change_bid(self, source: str, rank: Rank, *, is_for_people: bool) -> None:
        """Another ticket is the best now: a better one has come, or the best has left."""
        waiting = self._waiting.get(source)
        if waiting is not None and not waiting.is_set():
            self._note(source, is_for_people)
            self._grant(self.pool.change_bid(source, rank, is_for_people=is_for_people))

    def _note(self, source: str, is_for_people: bool) -> None:  # noqa: FBT001 - it is what is noted
        (self._for_people.add if is_for_people else self._for_people.discard)(source)

    def free(self, source: str) -> None:
        """Give a slot back."""
        self._grant(self.pool.free(source))

    def _grant(self, sources: tuple[str, ...]) -> None:
        for source in sources:
            self._waiting[source].set()
