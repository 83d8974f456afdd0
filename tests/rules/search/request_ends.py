"""The source after its request has ended, in one word each."""

from __future__ import annotations

from datetime import datetime

from cormorant.rules.search.reservations import EndKind, RequestEnd, RequestPermit, after
from cormorant.rules.search.source_state import SourceState


def succeeded(state: SourceState, permit: RequestPermit, *, now: datetime) -> SourceState:
    return after(state, permit, RequestEnd(kind=EndKind.ANSWERED), now=now)


def failed(
    state: SourceState, kind: EndKind, permit: RequestPermit, *, now: datetime, retry_after_s: float | None = None
) -> SourceState:
    return after(state, permit, RequestEnd(kind=kind, retry_after_s=retry_after_s), now=now)


def limited(
    state: SourceState, permit: RequestPermit, *, now: datetime, retry_after_s: float | None = None
) -> SourceState:
    return failed(state, EndKind.LIMITED, permit, now=now, retry_after_s=retry_after_s)


def credentials_refused(state: SourceState, permit: RequestPermit, *, now: datetime, because: str) -> SourceState:
    return after(state, permit, RequestEnd(kind=EndKind.CREDENTIALS_REFUSED, because=because), now=now)
