"""Has a find arrived at its target? What a handover is, and what to do when nobody knows."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from attrs import field, frozen

__all__ = [
    "ASKED_MAX",
    "DOUBT_S",
    "FOLLOW_S",
    "GONE_S",
    "Handover",
    "HandoverState",
    "InDoubt",
    "NextStep",
    "doubt_s",
    "follow_again_s",
    "missed_s",
    "step_in_doubt",
    "told_gone",
]

DOUBT_S: Final = 10.0
"""How long after a sending in doubt its target is asked, and how long until it is asked again: some show an item late."""
DOUBT_S_MAX: Final = 3_600.0
ASKED_MAX: Final = 2
"""So often it is asked before its silence counts as a no."""
FOLLOW_S: Final = 60.0
"""How often a target is asked how far it is, at first."""
FOLLOW_S_MAX: Final = 900.0
GONE_S: Final = 3_600.0
"""So long a target that is missed is waited for: another process may know it, or somebody notices the mistake."""


class HandoverState(StrEnum):
    """Where a handover is."""

    SENDING = "sending"
    """It is about to be sent, or was: after a crash nobody knows."""
    IN_DOUBT = "in doubt"
    WAITING = "waiting"
    """The target could not be reached, so surely nothing has arrived; it is sent again."""
    HELD = "held"
    """It may have arrived, the target cannot be asked, and a person decides."""
    HANDED_OVER = "handed over"
    DONE = "done"
    FAILED = "failed"


class InDoubt(StrEnum):
    """What to do about a target that cannot be asked."""

    RESEND = "resend"
    """Send again under the same key; the target may get it twice."""
    HOLD = "hold"
    """Send no more until a person says so; the target may not have got it."""


@frozen(kw_only=True)
class Handover:
    """One candidate of a want given to one target, once."""

    id: int = 0
    want_id: int
    ref: str
    """Which candidate."""
    target: str
    key: str
    """What the target recognises it by: the same however often it is sent."""
    title: str
    state: HandoverState = HandoverState.SENDING
    reason: str = ""
    asked: int = 0
    """How often the target was asked since the last sending, and said no."""
    sent: int = 0
    facts: Mapping[str, Any] = field(factory=dict, hash=False)
    """The infohash, the peer: what the target is asked by."""
    target_id: str | None = None
    created_at: datetime
    changed_at: datetime
    next_at: datetime | None = None


class NextStep(StrEnum):
    """What comes next for a sending of which nobody knows whether it arrived."""

    ASK = "ask"
    SEND = "send"
    HOLD = "hold"


def step_in_doubt(*, can_be_asked: bool, asked: int, otherwise: InDoubt) -> NextStep:
    """What to do when it may have arrived. A target that twice does not know of it has not got it.

    >>> [step_in_doubt(can_be_asked=True, asked=n, otherwise=InDoubt.HOLD).value for n in (0, 1, 2)]
    ['ask', 'ask', 'send']
    >>> step_in_doubt(can_be_asked=False, asked=0, otherwise=InDoubt.HOLD).value
    'hold'
    """
    if can_be_asked:
        return NextStep.ASK if asked < ASKED_MAX else NextStep.SEND
    return NextStep.SEND if otherwise is InDoubt.RESEND else NextStep.HOLD


def doubt_s(sent: int) -> float:
    """How long after a sending that did not arrive it is sent again: longer each time, as that may go on for ever.

    >>> [doubt_s(sent) for sent in (1, 2, 5, 50)]
    [10.0, 20.0, 160.0, 3600.0]
    """
    return min(DOUBT_S_MAX, DOUBT_S * 2.0 ** min(max(0, sent - 1), 20))


def follow_again_s(age_s: float, *, least_s: float = FOLLOW_S) -> float:
    """After how long a target is asked again how far it is: a tenth of the time it took so far, within bounds.

    >>> [follow_again_s(age) for age in (0, 3_000, 86_400)]
    [60.0, 300.0, 900.0]
    """
    return min(FOLLOW_S_MAX, max(least_s, age_s / 10))


def missed_s(handover: Handover, *, now: datetime) -> float | None:
    """How long a target has been missed that is not known here. None: nobody has written that down, or who knows it came since."""
    age_s = (now - handover.changed_at).total_seconds()
    return age_s if handover.reason == told_gone(handover.target) and age_s >= 0 else None


def told_gone(target: str) -> str:
    """What is told of a target that has gone."""
    return f"target {target} is no longer configured"
