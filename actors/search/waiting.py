"""Whose wait for a source is over, and whose will be before it opens? They are told at once."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice

from attrs import evolve, frozen

from actors.search.openings import OpeningTimes
from actors.search.request_execution import RequestResult
from actors.search.search import Ticket
from actors.search.source_requests import PendingRequest, SourceRequests
from cormorant.rules.ports import Emit
from cormorant.rules.search.outcomes import OutcomeStatus, RateLimitWaitError, SourceNotAsked
from cormorant.rules.search.priorities import aged
from cormorant.rules.search.reasons import GateName, look_again_at
from cormorant.rules.search.reservations import EndKind, RequestEnd

_NEVER = datetime.max.replace(tzinfo=UTC)
_FINAL = {GateName.ENABLED, GateName.STOPPED}
PACES_MAX = 16
"""Of so many different paces it is told at once that they cannot go in time; of the others when their wait is over."""


@frozen(eq=False)
class WaitExpiry:
    """Ends the waits at one source."""

    desk: SourceRequests
    openings: OpeningTimes
    emit: Emit

    def end_hopeless(self, now: datetime) -> None:
        """End what has waited too long, and what would."""
        self.end_expired(now)
        heads = [head for queue in self.desk.queues.values() if len(queue) for head in queue.heads()]
        horizons = [self._end_hopeless_of(head, now) for head in heads if head.is_live]
        opens_at = min(horizons, default=now)
        for ticket in self.desk.sharers_ending(opens_at):
            self._end_ticket(ticket, opens_at, now)

    def end_expired(self, now: datetime) -> None:
        """End what has waited too long."""
        for queue in self.desk.queues.values():
            if not len(queue):
                continue
            for flight in queue.expired(now):
                self._end_late(flight, self.openings.earliest(flight, now) if self.desk.known else None, now)
        for ticket in self.desk.sharers_ending(now):
            self._end_ticket(ticket, None, now)

    def _end_hopeless_of(self, head: PendingRequest, now: datetime) -> datetime:
        """End those of its class that would wait too long. Returns when the source opens for any of them, at the earliest."""
        opens_now_at = self.openings.of(head, aged(head.priority, (now - head.submitted_at).total_seconds()))
        if opens_now_at is not None and opens_now_at <= now and len(self.desk.paces) <= 1:
            return now  # those whose wait was over before are gone
        queue = self.desk.queues[head.lane]
        final = next((gate for gate in self.openings.gates(head, now) if gate.name in _FINAL), None)
        if final is not None:
            while (doomed := queue.head(head.priority)) is not None:
                queue.cancel(doomed)
                self.desk.forget(doomed)
                doomed.end(OutcomeStatus.REFUSED, SourceNotAsked(f"{self.desk.name} is not asked: {final.why}"))
            return now
        if len(self.desk.paces) > 1:
            return self._end_by_own_pace(head, now)
        opens_at = self._horizon(head, now)
        if opens_at > now:  # those whose wait was over before are gone
            for flight in queue.hopeless(opens_at, head.priority):
                self._end_late(flight, opens_at, now)
        return opens_at

    def _end_by_own_pace(self, head: PendingRequest, now: datetime) -> datetime:
        """As above, where not all keep the same pace: none of its class has waited longer than the head."""
        paces = islice(self.desk.paces, PACES_MAX)
        opens_at = {pace_s: self._horizon(evolve(head, pace_s=pace_s), now) for pace_s in paces}
        queue = self.desk.queues[head.lane]
        for flight in queue.hopeless(
            max(opens_at.values()), head.priority, opens_for=lambda flight: opens_at.get(flight.pace_s, now)
        ):
            self._end_late(flight, opens_at[flight.pace_s], now)
        return min(opens_at.values())

    def _horizon(self, flight: PendingRequest, now: datetime) -> datetime:
        """When the source opens for it at the earliest; now, where nobody can know."""
        gates = self.openings.gates(flight, now)
        if not gates:
            return now
        opens_at = self.openings.earliest(flight, now)
        if opens_at is None and look_again_at(gates, now=now) is not None:
            return now  # something will end, nobody knows when
        return opens_at or _NEVER

    def _end_late(self, flight: PendingRequest, opens_at: datetime | None, now: datetime) -> None:
        self.desk.forget(flight)
        for ticket in flight.living():
            self._end_ticket(ticket, opens_at, now)

    def _end_ticket(self, ticket: Ticket, opens_at: datetime | None, now: datetime) -> None:
        is_known = opens_at is not None and opens_at != _NEVER
        wait_s = max(0.0, (opens_at - now).total_seconds()) if opens_at and is_known else None
        waited_s = (now - ticket.submitted_at).total_seconds()
        error = RateLimitWaitError(
            self.desk.name, wait_s=wait_s, max_wait_s=ticket.max_wait_s, priority=ticket.priority
        )
        ticket.end(OutcomeStatus.RATE_LIMITED, error, waited_s=waited_s)
        never = RequestResult(
            end=RequestEnd(kind=EndKind.OURS), status=OutcomeStatus.RATE_LIMITED, error=error, waited_s=waited_s
        )
        self.emit(never.finished(ticket, never.status))
