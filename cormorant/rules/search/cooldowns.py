"""How long is a source left alone that told us to slow down?"""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import Final

from attrs import evolve, frozen

__all__ = ["LADDER_S", "RETRY_AFTER_S_MAX", "Cooldown", "cooled"]

LADDER_S: Final = (60, 300, 900, 1_800, 3_600, 10_800, 21_600, 43_200, 86_400)
"""1, 5, 15, 30 minutes, 1, 3, 6, 12, 24 hours: for a source that does not say for how long."""

RETRY_AFTER_S_MAX: Final = 31 * 86_400.0
"""What a source asks for beyond a month is cut: it is a mistake of theirs, and a person can look at it by then."""


@frozen(kw_only=True)
class Cooldown:
    """Until when a source is left alone, and how far up the ladder it is."""

    until: datetime | None = None
    level: int = 0


def cooled(cooldown: Cooldown, *, retry_after_s: float | None, at: datetime) -> Cooldown:
    """The cooldown after the source limited us at `at`.

    What it asks for holds and leaves the ladder alone; without a word (or with one that names no time to come) the next
    step of the ladder holds. A shorter cooldown never replaces a longer one. An answer that comes while a cooldown runs
    belongs to the same trouble and does not climb.

    >>> from datetime import UTC
    >>> noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    >>> first = cooled(Cooldown(), retry_after_s=None, at=noon)
    >>> second = cooled(first, retry_after_s=None, at=noon + timedelta(minutes=1))
    >>> f"{first.until:%H:%M} {second.until:%H:%M}", second.level
    ('12:01 12:06', 2)
    """
    stated_s = _stated(retry_after_s)
    if stated_s is not None:
        return evolve(cooldown, until=_later(cooldown.until, at + timedelta(seconds=stated_s)))
    if cooldown.until is not None and at < cooldown.until:
        return cooldown
    wait_s = LADDER_S[min(cooldown.level, len(LADDER_S) - 1)]
    level = min(cooldown.level + 1, len(LADDER_S))
    return Cooldown(until=_later(cooldown.until, at + timedelta(seconds=wait_s)), level=level)


def _stated(retry_after_s: float | None) -> float | None:
    if retry_after_s is None or math.isnan(retry_after_s) or retry_after_s <= 0:
        return None
    return min(retry_after_s, RETRY_AFTER_S_MAX)


def _later(one: datetime | None, other: datetime) -> datetime:
    return other if one is None else max(one, other)
