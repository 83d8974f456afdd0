"""Configured and learned limits, sliding windows, the token bucket.

Requests of a source and lane are numbered. A window of limit L and width W is open iff request `last_seq + 1 - L` does not
exist or was made at least W ago: one look-up, exact, and a changed limit just works.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, time, timedelta, tzinfo
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final

from attrs import evolve, fields, frozen

from cormorant.rules.search.priorities import Priority

SHARE_MAX: Final = 0.9
INTERVAL_S_MAX: Final = 86_400.0
COUNT_MAX: Final = 1_000_000


class Lane(StrEnum):
    """What is counted apart: asking a source, and fetching what it found."""

    QUERY = "query"
    GRAB = "grab"


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


_COUNTS: Final = tuple(each.name for each in fields(LearnedLimits) if each.name != "spacing_s")


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


Edges = Mapping[int, datetime | None]
"""When the request of each number was made; None: there is no such request (any more)."""


class WindowName(StrEnum):
    """The spans in which requests are counted."""

    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"
    MONTH = "month"


WIDTHS: Final[Mapping[WindowName, timedelta]] = {
    WindowName.MINUTE: timedelta(minutes=1),
    WindowName.HOUR: timedelta(hours=1),
    WindowName.DAY: timedelta(days=1),
    # The longest month: whichever month the site counts, we stay within it.
    WindowName.MONTH: timedelta(days=31),
}
_DAY: Final = timedelta(days=1)
_ROUNDING: Final = 1e-9


@frozen(kw_only=True)
class Window:
    """One limit as it holds for one class of work."""

    name: WindowName
    limit: int
    """How many may go before this class has to wait."""
    whole: int
    """How many the site allows; more than `limit` where a part is kept for people."""
    reset: time | None = None
    reset_zone: tzinfo = UTC

    @property
    def width(self) -> timedelta:
        """How far back requests count."""
        return WIDTHS[self.name]


@lru_cache(maxsize=1024)
def windows_of(limits: SourceLimits, lane: Lane, priority: Priority) -> tuple[Window, ...]:
    """The windows that a request of this class has to pass, the narrowest first.

    >>> limits = SourceLimits(per_hour=60, grabs_per_day=1, reserve_interactive=0.2)
    >>> [(window.name.value, window.limit) for window in windows_of(limits, Lane.QUERY, Priority.RSS)]
    [('hour', 48)]
    >>> [(window.name.value, window.limit) for window in windows_of(limits, Lane.GRAB, Priority.RSS)]
    [('day', 1)]
    """
    found = []
    for name, whole in _configured(limits, lane):
        if whole is not None:
            is_shared = priority is not Priority.INTERACTIVE and name is not WindowName.MINUTE
            limit = _without_reserve(whole, limits.reserve_interactive) if is_shared else whole
            reset = limits.reset if name is WindowName.DAY else None
            found.append(Window(name=name, limit=limit, whole=whole, reset=reset, reset_zone=limits.reset_zone))
    return tuple(found)


@lru_cache(maxsize=1024)
def share_windows(limits: SourceLimits, lane: Lane, share: float) -> tuple[Window, ...]:
    """The windows of one app: its part of each hour, day and month, and at least one request of each.

    >>> limits = SourceLimits(per_minute=5, per_hour=60, per_day=100)
    >>> [(window.name.value, window.limit) for window in share_windows(limits, Lane.QUERY, 0.25)]
    [('hour', 15), ('day', 25)]
    >>> share_windows(limits, Lane.QUERY, 1.0)
    ()
    """
    if share >= 1:
        return ()
    return tuple(
        evolve(window, limit=max(1, math.floor(window.whole * share + _ROUNDING)))
        for window in windows_of(limits, lane, Priority.INTERACTIVE)
        if window.name is not WindowName.MINUTE
    )


def has_windows(limits: SourceLimits) -> bool:
    """Whether requests are counted at all, in either lane.

    >>> has_windows(SourceLimits()), has_windows(SourceLimits(grabs_per_day=1))
    (False, True)
    """
    return not (
        limits.per_minute is None
        and limits.per_hour is None
        and limits.per_day is None
        and limits.per_month is None
        and limits.grabs_per_hour is None
        and limits.grabs_per_day is None
        and limits.grabs_per_month is None
    )


def _configured(limits: SourceLimits, lane: Lane) -> tuple[tuple[WindowName, int | None], ...]:
    is_query = lane is Lane.QUERY
    return (
        (WindowName.MINUTE, limits.per_minute),
        (WindowName.HOUR, limits.per_hour if is_query else limits.grabs_per_hour),
        (WindowName.DAY, limits.per_day if is_query else limits.grabs_per_day),
        (WindowName.MONTH, limits.per_month if is_query else limits.grabs_per_month),
    )


def _without_reserve(whole: int, share: float) -> int:
    # At least one, or a small limit would shut everyone else out for ever; 10 x (1 - 0.9) is a little less than 1.
    return max(1, math.floor(whole * (1 - share) + _ROUNDING))


def edges_wanted(limits: SourceLimits, lane: Lane, *, last_seq: int) -> frozenset[int]:
    """The numbers of the requests that decide, for every class of work: what storage has to look up.

    >>> sorted(edges_wanted(SourceLimits(per_hour=60, reserve_interactive=0.5), Lane.QUERY, last_seq=100))
    [41, 71]
    """
    classes = (Priority.INTERACTIVE, Priority.BACKGROUND)
    numbers = {last_seq + 1 - window.limit for priority in classes for window in windows_of(limits, lane, priority)}
    return frozenset(number for number in numbers if number >= 1)


def edge_opens_at(window: Window, edges: Edges, *, last_seq: int) -> datetime | None:
    """When the window lets the next request go; None: it is not full.

    An edge that nobody has looked up raises KeyError: taken for absent, it would open the window.
    """
    number = last_seq + 1 - window.limit
    edge = edges[number] if number >= 1 else None
    if edge is None:
        return None
    if window.reset is None:
        return edge + window.width
    return next(begins_at for begins_at in _days_of(window, window.reset, edge, (0, 1, 2)) if begins_at > edge)


def _days_of(window: Window, reset: time, at: datetime, shifts: Iterable[int]) -> Iterator[datetime]:
    """When the site's days begin, so many days from that of `at`."""
    today = at.astimezone(window.reset_zone).date()
    # In UTC: within a zone Python compares what the clocks show, also where they are set back.
    return (datetime.combine(today + n * _DAY, reset, tzinfo=window.reset_zone).astimezone(UTC) for n in shifts)


def counts_since(window: Window, *, now: datetime) -> datetime:
    """Since when requests count in a window, for whoever wants to know how much of it is spent.

    >>> noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    >>> day = Window(name=WindowName.DAY, limit=9, whole=9)
    >>> f"{counts_since(day, now=noon):%d %H:%M}"
    '31 12:00'
    >>> f"{counts_since(Window(name=WindowName.DAY, limit=9, whole=9, reset=time(3, 30)), now=noon):%d %H:%M}"
    '01 03:30'
    """
    if window.reset is None:
        return now - window.width
    return next(began_at for began_at in _days_of(window, window.reset, now, (0, -1, -2)) if began_at <= now)


def tokens_at(tokens: float | None, *, since: datetime | None, per_minute: int, at: datetime) -> float:
    """How many tokens a bucket of `per_minute` holds that held so many then. A bucket never used is full.

    >>> noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    >>> tokens_at(0.0, since=noon, per_minute=6, at=noon + timedelta(seconds=15))
    1.5
    """
    if tokens is None or since is None:
        return float(per_minute)
    passed_s = max(0.0, (at - since).total_seconds())
    return min(float(per_minute), max(0.0, tokens) + passed_s * per_minute / 60)
