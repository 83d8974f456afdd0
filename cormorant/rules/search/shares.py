"""The share of a quota that one app may use, and when it may continue."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import datetime

import attrs

from cormorant.rules.search.limits import Lane, SourceLimits, Window, WindowName, edge_opens_at, windows_of
from cormorant.rules.search.outcomes import RateLimitWaitError
from cormorant.rules.search.priorities import Priority

__all__ = ["ShareUsedUp", "share_opens_at", "share_windows"]

_ROUNDING = 1e-9


class ShareUsedUp(RateLimitWaitError):
    """The source may be open, but this app has used its part of what the source allows."""


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
        attrs.evolve(window, limit=max(1, math.floor(window.whole * share + _ROUNDING)))
        for window in windows_of(limits, lane, Priority.INTERACTIVE)
        if window.name is not WindowName.MINUTE
    )


def share_opens_at(
    windows: Iterable[Window], nth_latest: Mapping[int, datetime | None], *, now: datetime
) -> datetime | None:
    """When the app may ask again; None: now. `nth_latest` has, for each limit, when its so-manieth latest request was.

    >>> from datetime import UTC, timedelta
    >>> noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    >>> windows = share_windows(SourceLimits(per_hour=60), Lane.QUERY, 0.25)
    >>> share_opens_at(windows, {15: noon - timedelta(minutes=20)}, now=noon) - noon
    datetime.timedelta(seconds=2400)
    >>> share_opens_at(windows, {15: noon - timedelta(minutes=60)}, now=noon)
    """
    # The app's own requests, numbered so that the one that decides is the first.
    openings = [edge_opens_at(each, {1: nth_latest[each.limit]}, last_seq=each.limit) for each in windows]
    return max((opens_at for opens_at in openings if opens_at is not None and opens_at > now), default=None)
