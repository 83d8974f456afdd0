"""Why a job waits."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from enum import StrEnum

from attrs import frozen

from cormorant.rules.jobs.states import WAITING, JobState

__all__ = ["QueueFacts", "WaitReason", "wait_reasons_of"]


class WaitReason(StrEnum):
    """One reason why a job does not run now."""

    KIND_PAUSED = "kind_paused"
    ALL_PAUSED = "all_paused"
    NOT_DUE = "not_due"
    """It was enqueued, or has put itself off, for later."""
    RETRY = "retry"
    """An attempt failed; the next one is due later."""
    NOBODY = "nobody"
    """No living process works on jobs."""
    KIND_UNKNOWN = "kind_unknown"
    """Processes live, but none of them has a handler for its kind."""
    TURN = "turn"
    """It is due and nothing is in its way but those before it."""


@frozen(kw_only=True)
class QueueFacts:
    """What jobs wait for besides their own time. `kinds_served` is None when no process lives."""

    is_all_paused: bool
    kinds_served: Collection[str] | None


def wait_reasons_of(
    kind: str, state: JobState, *, is_held: bool, run_at: datetime, around: QueueFacts, now: datetime
) -> tuple[WaitReason, ...]:
    """What a job waits for, what a person must change first. Empty for one that does not wait.

    >>> from datetime import UTC, timedelta
    >>> now, served = datetime(2026, 1, 1, tzinfo=UTC), QueueFacts(is_all_paused=False, kinds_served={"tidy"})
    >>> later = now + timedelta(minutes=5)
    >>> [*map(str, wait_reasons_of("tidy", JobState.RETRYABLE, is_held=True, run_at=later, around=served, now=now))]
    ['kind_paused', 'retry']
    >>> [*map(str, wait_reasons_of("tidy", JobState.PENDING, is_held=False, run_at=now, around=served, now=now))]
    ['turn']
    """
    if state not in WAITING:
        return ()
    later = WaitReason.RETRY if state is JobState.RETRYABLE else WaitReason.NOT_DUE
    served = around.kinds_served
    closed = {
        WaitReason.KIND_PAUSED: is_held,
        WaitReason.ALL_PAUSED: around.is_all_paused,
        WaitReason.NOBODY: served is None,
        WaitReason.KIND_UNKNOWN: served is not None and kind not in served,
        later: run_at > now,
    }
    return tuple(gate for gate, is_closed in closed.items() if is_closed) or (WaitReason.TURN,)
