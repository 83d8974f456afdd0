"""What is known of a source: everything that its row in the database holds and that the gates look at."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from attrs import field, frozen

from cormorant.rules.search.breaker import Breaker, Cooldown
from cormorant.rules.search.limits import Lane

__all__ = ["LaneState", "RequestLease", "SourceState", "leases_of", "newest_time"]


@frozen(kw_only=True)
class RequestLease:
    """A request in flight, and when it is given up if its end is never recorded."""

    seq: int
    expires_at: datetime


@frozen(kw_only=True)
class LaneState:
    """What was spent in one lane."""

    last_seq: int = 0
    last_at: datetime | None = None
    last_end_at: datetime | None = None
    tokens: float | None = None
    """Left in the minute bucket at `tokens_at`; None: never used, so full."""
    tokens_at: datetime | None = None
    in_flight: tuple[RequestLease, ...] = ()


@frozen(kw_only=True)
class SourceState:
    """The state of one source. Changed only by the functions of `reservations`, under the lock of its row."""

    is_enabled: bool = True
    is_paused: bool = False
    """By hand, and without an end unless `paused_until` names one."""
    paused_until: datetime | None = None
    stopped_because: str | None = None
    """Why its credentials were refused; None: they were not."""
    cooldown: Cooldown = field(factory=Cooldown)
    breaker: Breaker = field(factory=Breaker)
    failure_streak: int = 0
    last_success_at: datetime | None = None
    last_failure_at: datetime | None = None
    query: LaneState = field(factory=LaneState)
    grab: LaneState = field(factory=LaneState)

    @property
    def generation(self) -> int:
        """Rises whenever answers to earlier requests must no longer count."""
        return self.breaker.generation

    def lane(self, lane: Lane) -> LaneState:
        """What was spent in a lane."""
        return self.query if lane is Lane.QUERY else self.grab

    def with_lane(self, lane: Lane, state: LaneState, *, breaker: Breaker | None = None) -> SourceState:
        """The same source after a lane has changed, and perhaps its breaker."""
        # Not `evolve`, which looks all fields up by name: this is done twice for each request.
        return SourceState(
            is_enabled=self.is_enabled,
            is_paused=self.is_paused,
            paused_until=self.paused_until,
            stopped_because=self.stopped_because,
            cooldown=self.cooldown,
            breaker=self.breaker if breaker is None else breaker,
            failure_streak=self.failure_streak,
            last_success_at=self.last_success_at,
            last_failure_at=self.last_failure_at,
            query=state if lane is Lane.QUERY else self.query,
            grab=state if lane is Lane.GRAB else self.grab,
        )

    def well(self, *, at: datetime, breaker: Breaker) -> SourceState:
        """The same source after it has answered.

        A cooldown that runs is not over: nothing is sent in one, so that the answer is to an older request.
        """
        is_cooling = self.cooldown.until is not None and at < self.cooldown.until
        return SourceState(
            is_enabled=self.is_enabled,
            is_paused=self.is_paused,
            paused_until=self.paused_until,
            stopped_because=self.stopped_because,
            cooldown=self.cooldown if is_cooling else _NO_COOLDOWN,
            breaker=breaker,
            failure_streak=0,
            last_success_at=at,
            last_failure_at=self.last_failure_at,
            query=self.query,
            grab=self.grab,
        )


_NO_COOLDOWN: Final = Cooldown()


def newest_time(state: SourceState, now: datetime) -> datetime:
    """The time that counts: `now`, or what was written last if the clock has gone backward since.

    So a clock that is set back opens nothing that was closed; after one that was ahead the source waits until the time
    that was written is reached.
    """
    newest = now
    for lane in (state.query, state.grab):
        if lane.last_at is not None and lane.last_at > newest:
            newest = lane.last_at
        if lane.last_end_at is not None and lane.last_end_at > newest:
            newest = lane.last_end_at
    return newest


def leases_of(state: SourceState, at: datetime) -> tuple[RequestLease, ...]:
    """The requests in flight in both lanes."""
    if not state.query.in_flight and not state.grab.in_flight:
        return ()
    return tuple(lease for lane in (state.query, state.grab) for lease in lane.in_flight if at < lease.expires_at)
