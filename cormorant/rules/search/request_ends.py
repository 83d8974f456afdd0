"""How did a request to a source end, and what follows from that for the source?"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from attrs import evolve, frozen

from cormorant.rules.search.cooldowns import cooled
from cormorant.rules.search.limits import LearnedLimits
from cormorant.rules.search.requests import StatedLimits
from cormorant.rules.search.reservations import (
    FailureKind,
    RequestPermit,
    credentials_refused,
    failed,
    limited,
    succeeded,
)
from cormorant.rules.search.source_errors import (
    CredentialsRefused,
    SourceError,
    SourceLimited,
    SourceRefused,
    SourceUnavailable,
)
from cormorant.rules.search.source_state import SourceState, newest_time

__all__ = ["EndKind", "RequestEnd", "after", "end_of", "quota_wait_s"]


class EndKind(StrEnum):
    """What a request came to."""

    ANSWERED = "answered"
    UNAVAILABLE = "unavailable"
    LIMITED = "limited"
    REFUSED = "refused"
    CREDENTIALS_REFUSED = "credentials_refused"
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


def after(state: SourceState, permit: RequestPermit, end: RequestEnd, *, now: datetime) -> SourceState:
    """The source once a request has ended like this."""
    match end.kind:
        case EndKind.ANSWERED:
            return _answered(succeeded(state, permit, now=now), end, now)
        case EndKind.LIMITED:
            return limited(state, permit, now=now, retry_after_s=end.retry_after_s)
        case EndKind.CREDENTIALS_REFUSED:
            return credentials_refused(state, permit, now=now, because=end.because)
        case EndKind.UNAVAILABLE:
            return failed(state, FailureKind.UNAVAILABLE, permit, now=now, retry_after_s=end.retry_after_s)
        case EndKind.REFUSED:
            return failed(state, FailureKind.REFUSED, permit, now=now)
        case EndKind.OURS:
            return failed(state, FailureKind.OURS, permit, now=now)


def _answered(state: SourceState, end: RequestEnd, now: datetime) -> SourceState:
    if end.retry_after_s is None:
        return state
    return evolve(state, cooldown=cooled(state.cooldown, retry_after_s=end.retry_after_s, at=newest_time(state, now)))
