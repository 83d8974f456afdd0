"""Priority classes, ageing, default waits and time-outs."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

__all__ = [
    "AGEING_STEP_S",
    "MAX_WAIT_S",
    "PACE_MULTIPLIERS",
    "TIMEOUT_S",
    "Priority",
    "aged",
    "max_wait_s",
    "multiplier",
    "sorted_as",
    "timeout_s",
]


class Priority(IntEnum):
    """Who waits for the answer. The smaller goes first."""

    INTERACTIVE = 0
    """A person looks at the screen."""
    RSS = 1
    """A feed of what is new; the next poll brings what this one missed."""
    COMPLETION = 2
    """An app that looks for something it lacks."""
    BACKGROUND = 3
    """Nobody waits."""


PACE_MULTIPLIERS: Final[Mapping[Priority, float]] = {
    Priority.INTERACTIVE: 0.1,
    Priority.RSS: 0.5,
    Priority.COMPLETION: 0.7,
    Priority.BACKGROUND: 1.0,
}
"""The share of a source's pace that a class has to keep."""

MAX_WAIT_S: Final[Mapping[Priority, float | None]] = {
    Priority.INTERACTIVE: None,
    Priority.RSS: 15.0,
    Priority.COMPLETION: None,
    Priority.BACKGROUND: 60.0,
}
"""How long a search of a class waits for its turn when it does not say so itself. None: as long as it takes."""

TIMEOUT_S: Final[Mapping[Priority, float]] = {
    Priority.INTERACTIVE: 30.0,
    Priority.RSS: 15.0,
    Priority.COMPLETION: 45.0,
    Priority.BACKGROUND: 60.0,
}
"""How long the request itself may take, counted from dispatch."""

AGEING_STEP_S: Final = 300.0
"""How long a search waits until it counts as one class more urgent."""

_UNSTATED_TIMEOUT_S = 30.0
_BY_VALUE: Final = tuple(Priority)


def sorted_as(priority: Priority | None) -> Priority:
    """The class in which a search is sorted that may not have said one."""
    return Priority.BACKGROUND if priority is None else priority


def max_wait_s(priority: Priority | None) -> float | None:
    """How long a search waits for its turn. One that gave no options waits as long as it takes.

    >>> [max_wait_s(priority) for priority in (None, *Priority)]
    [None, None, 15.0, None, 60.0]
    """
    return None if priority is None else MAX_WAIT_S[priority]


def timeout_s(priority: Priority | None) -> float:
    """How long a request may take.

    >>> [timeout_s(priority) for priority in (None, *Priority)]
    [30.0, 30.0, 15.0, 45.0, 60.0]
    """
    return _UNSTATED_TIMEOUT_S if priority is None else TIMEOUT_S[priority]


def multiplier(priority: Priority) -> float:
    """The share of a source's pace that this class has to keep."""
    return PACE_MULTIPLIERS[priority]


def aged(priority: Priority, waited_s: float) -> Priority:
    """The class of a search that has waited: one class up for every 300 s, its multiplier with it.

    Ageing the order alone would not help: whoever searches every 6 s keeps the 60 s of quiet that background needs from
    ever coming.

    >>> [aged(Priority.BACKGROUND, waited_s).name for waited_s in (0, 299.9, 300, 600, 900, 1e9)]
    ['BACKGROUND', 'BACKGROUND', 'COMPLETION', 'RSS', 'INTERACTIVE', 'INTERACTIVE']
    """
    if waited_s < AGEING_STEP_S:
        return priority
    if waited_s >= priority * AGEING_STEP_S:
        return Priority.INTERACTIVE
    return _BY_VALUE[priority - int(waited_s // AGEING_STEP_S)]
