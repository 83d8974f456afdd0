"""How did a request to a source end, and what follows from that for the source?"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from attrs import frozen

from cormorant.rules.limits import LearnedLimits
from cormorant.rules.reservations import (
    FailureKind,
    Permit,
    credentials_refused,
    failed,
    limited,
    succeeded,
)
from cormorant.rules.source_errors import (
    CredentialsRefused,
    SourceError,
    SourceLimited,
    SourceRefused,
    SourceUnavailable,
)
from cormorant.rules.source_state import SourceState

__all__ = ["EndKind", "RequestEnd", "after", "end_of"]


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


def end_of(error: BaseException | None, *, learned: LearnedLimits | None = None) -> RequestEnd:
    """What an error, or none, says about the source. An error that no source raised is our own.

    >>> end_of(SourceLimited("slow down", retry_after_s=30)).kind, end_of(ValueError()).kind
    (<EndKind.LIMITED: 'limited'>, <EndKind.OURS: 'ours'>)
    """
    if error is None:
        return RequestEnd(kind=EndKind.ANSWERED, learned=learned)
    for cls, kind in _KINDS:
        if isinstance(error, cls):
            assert isinstance(error, SourceError)
            return RequestEnd(kind=kind, retry_after_s=error.retry_after_s, because=str(error))
    return RequestEnd(kind=EndKind.OURS)


def after(state: SourceState, permit: Permit, end: RequestEnd, *, now: datetime) -> SourceState:
    """The source once a request has ended like this."""
    match end.kind:
        case EndKind.ANSWERED:
            return succeeded(state, permit, now=now)
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
