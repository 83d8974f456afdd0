"""Spends a request, and the state of a source after its end.

A request is paid for before it is sent and never refunded: nobody can know whether a request that was cut off has arrived.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum

from attrs import evolve, frozen

from cormorant.rules.search.breaker import (
    Breaker,
    BreakerState,
    Cooldown,
    admitted,
    closed_after_success,
    opened_after_failure,
    released,
    with_cooldown,
)
from cormorant.rules.search.limits import Edges, Lane, LearnedLimits, SourceLimits, tokens_at
from cormorant.rules.search.outcomes import (
    CredentialsRefused,
    SourceError,
    SourceLimited,
    SourceRefused,
    SourceUnavailable,
)
from cormorant.rules.search.reasons import NextRequest, Reason, ReasonName, next_opening, openings, recheck_at
from cormorant.rules.search.requests import StatedLimits
from cormorant.rules.search.source_state import LaneState, RequestLease, SourceState, newest_time

PROBE_GRACE_S = 30.0
"""How much longer than its execution time-out a request is waited for: give it to `reserve` within `lease_s`."""


@frozen(kw_only=True)
class RequestPermit:
    """The right to send one request, named again when it has ended."""

    lane: Lane
    seq: int
    generation: int

    @property
    def key(self) -> str:
        """Its name among the requests of both lanes."""
        return f"{self.lane}:{self.seq}"


@frozen(kw_only=True)
class Reserved:
    """The request may go. Write the state and the request, commit, and only then send."""

    state: SourceState
    permit: RequestPermit
    """What its end will name."""
    at: datetime
    expires_at: datetime
    share_reason: Reason | None = None
    """Until when the app has used its share, this request counted in."""


@frozen(kw_only=True)
class SourceClosedNow:
    """The request may not go now, and nothing was changed."""

    reasons: tuple[Reason, ...]
    opens_at: datetime | None
    recheck_at: datetime | None

    @property
    def share_reason(self) -> Reason | None:
        """Until when the app has used its share; None: that is not in the way."""
        return next((reason for reason in self.reasons if reason.name is ReasonName.APP_SHARE), None)


def reserve(
    state: SourceState,
    limits: SourceLimits,
    request: NextRequest,
    *,
    now: datetime,
    edges: Edges,
    lease_s: float,
) -> Reserved | SourceClosedNow:
    """Spend one request, or say what is in the way.

    `lease_s` is how long the request may take at most; a process that dies with it keeps the source busy no longer.

    >>> from datetime import UTC
    >>> noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    >>> got = reserve(SourceState(), SourceLimits(), NextRequest(), now=noon, edges={}, lease_s=45)
    >>> got.permit.seq, f"{got.expires_at:%H:%M:%S}"
    (1, '12:00:45')
    """
    reasons = openings(state, limits, request, now=now, edges=edges)
    if reasons:
        return SourceClosedNow(
            reasons=reasons, opens_at=next_opening(reasons, now=now), recheck_at=recheck_at(reasons, now=now)
        )
    at = newest_time(state, now)
    expires_at = at + timedelta(seconds=lease_s)
    lane = request.lane
    own = state.lane(lane)
    seq = own.last_seq + 1
    spent = _spent(own, limits, at=at, lease=RequestLease(seq=seq, expires_at=expires_at))
    breaker = state.breaker
    if breaker.state is not BreakerState.CLOSED:
        key = RequestPermit(lane=lane, seq=seq, generation=0).key
        breaker = admitted(breaker, key=key, at=at, expires_at=expires_at)
    after = state.with_lane(lane, spent, breaker=breaker)
    permit = RequestPermit(lane=lane, seq=seq, generation=breaker.generation)
    return Reserved(state=after, permit=permit, at=at, expires_at=expires_at)


def _spent(own: LaneState, limits: SourceLimits, *, at: datetime, lease: RequestLease) -> LaneState:
    tokens: float | None = None
    if limits.per_minute is not None:
        left = tokens_at(own.tokens, since=own.tokens_at, per_minute=limits.per_minute, at=at)
        tokens = max(0.0, left - 1)
    ended_at, in_flight = own.last_end_at, own.in_flight
    if in_flight:
        over = [each.expires_at for each in in_flight if each.expires_at <= at]
        ended_at = max([*over, *([ended_at] if ended_at else [])], default=None)
        in_flight = tuple(each for each in in_flight if each.expires_at > at)
    return LaneState(
        last_seq=lease.seq,
        last_at=at,
        last_end_at=ended_at,
        tokens=tokens,
        tokens_at=None if tokens is None else at,
        in_flight=(*in_flight, lease),
    )


def pause(state: SourceState, *, until: datetime | None = None) -> SourceState:
    """The source once a person has paused it, for good or for a while."""
    return evolve(state, is_paused=True, paused_until=until)


def resume(state: SourceState) -> SourceState:
    """The source once a person has ended its pause."""
    return evolve(state, is_paused=False, paused_until=None)


def reset_cooldown(state: SourceState) -> SourceState:
    """The source once a person has ended its cooldown; the ladder begins at its foot again."""
    return evolve(state, cooldown=Cooldown())


def reset_breaker(state: SourceState) -> SourceState:
    """The source once a person has closed its breaker. Answers to requests made before no longer count."""
    return evolve(state, breaker=Breaker(generation=state.generation + 1), failure_streak=0)


def reset(state: SourceState) -> SourceState:
    """The source once a person has vouched for it: no cooldown, breaker closed, its credentials tried again.

    What was spent stays spent, and a pause stays a pause.
    """
    return evolve(reset_breaker(reset_cooldown(state)), stopped_because=None)


class EndKind(StrEnum):
    """What a request came to."""

    ANSWERED = "answered"
    UNAVAILABLE = "unavailable"
    """It could not serve us: no connection, a server error, no answer in time, nonsense. Counts."""
    LIMITED = "limited"
    """It told us to slow down. Counts."""
    REFUSED = "refused"
    """It understood us and said no: it is well. Clears the streak like a success."""
    CREDENTIALS_REFUSED = "credentials_refused"
    """It is stopped until a person has corrected them: hammering with a dead key is how accounts are lost."""
    OURS = "ours"
    """It was cancelled, or we crashed: nothing is known about the source."""


@frozen(kw_only=True)
class RequestEnd:
    """What is recorded at the end of a request."""

    kind: EndKind
    retry_after_s: float | None = None
    because: str = ""
    learned: LearnedLimits | None = None


_KINDS = (
    (CredentialsRefused, EndKind.CREDENTIALS_REFUSED),
    (SourceLimited, EndKind.LIMITED),
    (SourceRefused, EndKind.REFUSED),
    (SourceUnavailable, EndKind.UNAVAILABLE),
)


QUOTA_WAIT_S = 3_600.0
"""How long a source is left alone that says its quota is used up and not until when."""
_DAY_S = 86_400.0


def quota_wait_s(stated: StatedLimits | None, *, now: datetime) -> float | None:
    """How long to leave a source alone that says, in a good answer, that its quota is used up. None: it is not.

    Others may use the same account, so that our own count is not all. The count is that of a rolling day, which frees a
    call when the oldest is a day old.

    >>> from datetime import UTC, timedelta
    >>> noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    >>> quota_wait_s(StatedLimits(api_current=100, api_max=100, api_oldest_at=noon - timedelta(hours=23)), now=noon)
    3600.0
    >>> quota_wait_s(StatedLimits(api_current=99, api_max=100), now=noon)
    """
    if stated is None or stated.api_max is None or stated.api_current is None or stated.api_max < 1:
        return None
    if stated.api_current < stated.api_max:
        return None
    if stated.api_oldest_at is None:
        return QUOTA_WAIT_S
    return min(_DAY_S, max(60.0, _DAY_S - (now - stated.api_oldest_at).total_seconds()))


def end_of(
    error: BaseException | None, *, learned: LearnedLimits | None = None, quota_wait_s: float | None = None
) -> RequestEnd:
    """What an error, or none, says about the source. An error that no source raised is our own.

    >>> end_of(SourceLimited("slow down", retry_after_s=30)).kind, end_of(ValueError()).kind
    (<EndKind.LIMITED: 'limited'>, <EndKind.OURS: 'ours'>)
    """
    if error is None:
        return RequestEnd(kind=EndKind.ANSWERED, learned=learned, retry_after_s=quota_wait_s)
    for cls, kind in _KINDS:
        if isinstance(error, cls):
            assert isinstance(error, SourceError)
            return RequestEnd(kind=kind, retry_after_s=error.retry_after_s, because=str(error))
    return RequestEnd(kind=EndKind.OURS)


def after(  # noqa: PLR0911 - one for each way in which a request ends
    state: SourceState, permit: RequestPermit, end: RequestEnd, *, now: datetime
) -> SourceState:
    """The source once a request has ended like this."""
    at = newest_time(state, now)
    ended = _ended(state, permit, at)
    counts = permit.generation == state.generation
    match end.kind:
        case EndKind.LIMITED:
            return _after_limit(ended, end, at, counts=counts)
        case EndKind.CREDENTIALS_REFUSED:
            return _after_refused_credentials(ended, end, at, counts=counts)
        case EndKind.ANSWERED:
            well = ended.well(at=at, breaker=closed_after_success(ended.breaker)) if counts else ended
            return well if end.retry_after_s is None else _cooling(well, end, at)
        case _ if not counts:
            return ended
        case EndKind.UNAVAILABLE:
            # Without a time no cooldown follows, only the breaker counts.
            has_time = end.retry_after_s is not None and end.retry_after_s > 0
            return _counted(_cooling(ended, end, at) if has_time else ended, at)
        case EndKind.REFUSED:
            return evolve(ended, breaker=closed_after_success(ended.breaker), failure_streak=0)
        case EndKind.OURS:
            return evolve(ended, breaker=released(ended.breaker, key=permit.key))


def _after_limit(ended: SourceState, end: RequestEnd, at: datetime, *, counts: bool) -> SourceState:
    if not counts and end.retry_after_s is None:
        return ended
    # The generation is the breaker's business; what the site asks for holds whoever is told.
    cooling = _cooling(ended, end, at)
    return _counted(cooling, at) if counts else cooling


def _after_refused_credentials(ended: SourceState, end: RequestEnd, at: datetime, *, counts: bool) -> SourceState:
    if counts:
        return evolve(_counted(ended, at), stopped_because=end.because)
    # Late because the breaker has opened since, it still holds; late because a person has reset the source, it does not.
    is_closed = ended.breaker.state is BreakerState.CLOSED
    return ended if is_closed else evolve(ended, stopped_because=end.because)


def _cooling(state: SourceState, end: RequestEnd, at: datetime) -> SourceState:
    return evolve(state, cooldown=with_cooldown(state.cooldown, retry_after_s=end.retry_after_s, at=at))


def _ended(state: SourceState, permit: RequestPermit, at: datetime) -> SourceState:
    """The lease given back: answers of an older generation change nothing else."""
    own = state.lane(permit.lane)
    freed = LaneState(
        last_seq=own.last_seq,
        last_at=own.last_at,
        last_end_at=at,
        tokens=own.tokens,
        tokens_at=own.tokens_at,
        in_flight=tuple([lease for lease in own.in_flight if lease.seq != permit.seq]),
    )
    return state.with_lane(permit.lane, freed)


def _counted(state: SourceState, at: datetime) -> SourceState:
    return evolve(
        state,
        breaker=opened_after_failure(state.breaker, at=at),
        failure_streak=state.failure_streak + 1,
        last_failure_at=at,
    )
