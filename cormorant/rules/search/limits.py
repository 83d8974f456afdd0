"""How fast and how often may a source be asked? What is configured, what it states itself, and the stricter of both."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import UTC, time, tzinfo
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final

from attrs import evolve, fields, frozen

__all__ = ["INTERVAL_S_MAX", "PRESETS", "Lane", "LearnedLimits", "SourceLimits", "stricter"]

SHARE_MAX: Final = 0.9
INTERVAL_S_MAX: Final = 86_400.0
COUNT_MAX: Final = 1_000_000


class Lane(StrEnum):
    """What is counted apart: asking a source, and fetching what it found."""

    QUERY = "query"
    GRAB = "grab"


_COUNTS: Final = (
    "per_minute",
    "per_hour",
    "per_day",
    "per_month",
    "grabs_per_hour",
    "grabs_per_day",
    "grabs_per_month",
)


@frozen(kw_only=True)
class LearnedLimits:
    """What a source says about itself (`apilimits`, headers). None, or a number below 1: it did not say."""

    spacing_s: float | None = None
    per_minute: int | None = None
    per_hour: int | None = None
    per_day: int | None = None
    per_month: int | None = None
    grabs_per_hour: int | None = None
    grabs_per_day: int | None = None
    grabs_per_month: int | None = None


@frozen(kw_only=True, cache_hash=True)
class SourceLimits:
    """The limits of one source. What is None is not limited.

    >>> SourceLimits(per_hour=0, reserve_interactive=1.5)
    Traceback (most recent call last):
    ValueError: per_hour is 0: give a whole number from 1 to 1000000, or leave it out
    reserve_interactive is 1.5: give a share from 0 to 0.9
    """

    spacing_s: float = 2.0
    """The site's own rule: a floor between two requests that nothing goes under."""
    pace_s: float = 60.0
    """Our courtesy: the distance that background work keeps. The other classes keep a share of it."""
    per_minute: int | None = None
    """A token bucket of this capacity, and never more than this in any 60 s. Queries and grabs each have their own."""
    per_hour: int | None = None
    per_day: int | None = None
    per_month: int | None = None
    grabs_per_hour: int | None = None
    grabs_per_day: int | None = None
    grabs_per_month: int | None = None
    reset: time | None = None
    """When the site's day begins. Without it a day is any 24 hours."""
    reset_zone: tzinfo = UTC
    """Where that time of day is read. Not in `reset`: times of two zones with summer time count as equal in Python."""
    in_flight_max: int = 1
    """How many requests may run at once, queries and grabs together."""
    reserve_interactive: float = 0.0
    """The share of each hour, day and month that is kept for people."""
    timeout_s: float | None = None
    """The longest a request may take, whoever waits for it."""

    def __attrs_post_init__(self) -> None:
        problems = list(_problems(self))
        if problems:
            raise ValueError("\n".join(problems))


def _problems(limits: SourceLimits) -> Iterator[str]:
    for name in ("spacing_s", "pace_s"):
        value = getattr(limits, name)
        if not _is_number(value) or not 0 <= value <= INTERVAL_S_MAX:
            yield f"{name} is {value!r}: give seconds from 0 to {INTERVAL_S_MAX:.0f}"
    if limits.timeout_s is not None and (not _is_number(limits.timeout_s) or not limits.timeout_s > 0):
        yield f"timeout_s is {limits.timeout_s!r}: give seconds, or leave it out"
    for name in _COUNTS:
        value = getattr(limits, name)
        if value is not None and not _is_count(value):
            yield f"{name} is {value!r}: give a whole number from 1 to {COUNT_MAX}, or leave it out"
    if limits.reset is not None and limits.reset.tzinfo not in {None, UTC}:
        yield f"reset is {limits.reset!r}: give the time of day alone, and its zone as reset_zone"
    if not _is_count(limits.in_flight_max):
        yield f"in_flight_max is {limits.in_flight_max!r}: give a whole number from 1 to {COUNT_MAX}"
    share = limits.reserve_interactive
    if not _is_number(share) or not 0 <= share <= SHARE_MAX:
        yield f"reserve_interactive is {share!r}: give a share from 0 to {SHARE_MAX}"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= COUNT_MAX


PRESETS: Final[Mapping[str, SourceLimits]] = {
    "default": SourceLimits(),
    "private": SourceLimits(spacing_s=10.0, per_hour=60, per_day=500, grabs_per_day=50, reserve_interactive=0.2),
    # Spotify counts over any 30 s and says no number; slskd takes one search at a time and asks its whole network.
    "spotify": SourceLimits(spacing_s=0.0, pace_s=0.0, per_minute=90, in_flight_max=4),
    "slskd": SourceLimits(spacing_s=2.0, pace_s=0.0, per_minute=10),
}


@lru_cache(maxsize=4096)
def stricter(configured: SourceLimits, stated: LearnedLimits) -> SourceLimits:
    """What holds when a source states limits of its own: of each pair the stricter.

    >>> held = stricter(SourceLimits(per_day=500), LearnedLimits(per_day=100, grabs_per_day=20, spacing_s=5))
    >>> held.per_day, held.grabs_per_day, held.spacing_s
    (100, 20, 5)
    >>> stricter(SourceLimits(per_day=50), LearnedLimits(per_day=100, per_hour=0)).per_day
    50
    """
    changes: dict[str, Any] = {}
    for attribute in fields(LearnedLimits):
        name = attribute.name
        ours, theirs = getattr(configured, name), getattr(stated, name)
        if theirs is None or not _is_number(theirs) or theirs < (0 if name == "spacing_s" else 1):
            continue
        if name == "spacing_s":
            changes[name] = min(max(ours, theirs), INTERVAL_S_MAX)
        elif ours is None or theirs < ours:
            changes[name] = min(int(theirs), COUNT_MAX)
    return evolve(configured, **changes)
