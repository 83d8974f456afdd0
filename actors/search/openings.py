"""When does a source open for a request that waits? By what is known of it, and the same for all alike until that changes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeVar

from attrs import define, field

from actors.search.source_requests import PendingRequest, SourceRequests
from cormorant.rules.ports import Clock
from cormorant.rules.search.limits import Lane
from cormorant.rules.search.priorities import Priority, aged
from cormorant.rules.search.reasons import Reason, earliest_opening, next_opening, openings

T = TypeVar("T")

_ALREADY = datetime.min.replace(tzinfo=UTC)


@define(eq=False)
class OpeningTimes:
    """The openings of one source, remembered by class and age."""

    desk: SourceRequests
    clock: Clock
    _found: dict[tuple[Lane, Priority, Priority, float | None], datetime | None] = field(init=False, factory=dict)

    def forget(self) -> None:
        """What is known has changed, or the clock may have."""
        self._found.clear()

    def gates(self, flight: PendingRequest, now: datetime) -> tuple[Reason, ...]:
        """What is in the way of a request now."""
        return self._ask(openings, flight, now)

    def earliest(self, flight: PendingRequest, now: datetime) -> datetime | None:
        """When a request can go, its growing older counted in."""
        return self._ask(earliest_opening, flight, now)

    def _ask(self, rule: Callable[..., T], flight: PendingRequest, now: datetime) -> T:
        known = self.desk.known
        assert known is not None
        return rule(
            known.state,
            known.limits,
            lane=flight.lane,
            priority=flight.priority,
            now=now,
            edges=known.edges[flight.lane],
            pace_s=flight.pace_s,
            waited_s=(now - flight.submitted_at).total_seconds(),
        )

    def of(self, flight: PendingRequest, rank: Priority) -> datetime | None:
        """When the source opens for a request that counts as this class by now."""
        key = (flight.lane, flight.priority, rank, flight.pace_s)
        if key in self._found:
            return self._found[key]
        now = self.clock.now()
        gates = self.gates(flight, now)
        # Not the time of this look: the turn it belongs to began a little earlier, and would find it closed.
        opens_at = next_opening(gates, now=now) if gates else _ALREADY
        if aged(flight.priority, (now - flight.submitted_at).total_seconds()) is rank:
            self._found[key] = opens_at
        return opens_at
