"""How long is that, in words for people? Rounded; the exact texts of durations are in `quantities`."""

from __future__ import annotations

from datetime import datetime, timedelta, tzinfo

__all__ = ["clock_time", "from_now", "rough"]

_UNITS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"))
_ENOUGH = 2
"""A unit is used when the span holds this many of it: 90 s say more than 1 min."""


def rough(seconds: float) -> str:
    """A span in one number and one unit, rounded down.

    >>> [rough(seconds) for seconds in (0.2, 59, 119, 120, 7_199, 7_200, 86_400, 1e7)]
    ['0 s', '59 s', '119 s', '2 min', '119 min', '2 h', '24 h', '115 d']
    """
    span_s = abs(seconds)
    unit_s, unit = next((each for each in _UNITS if span_s >= _ENOUGH * each[0]), _UNITS[-1])
    return f"{int(span_s // unit_s)} {unit}"


def from_now(moment: datetime, now: datetime) -> str:
    """When something was or will be, as seen from now.

    >>> from datetime import UTC
    >>> now = datetime(2026, 1, 1, 12, tzinfo=UTC)
    >>> [from_now(now + timedelta(seconds=s), now) for s in (-300, 0, 0.4, 90)]
    ['5 min ago', 'now', 'now', 'in 90 s']
    """
    seconds = (moment - now) / timedelta(seconds=1)
    if abs(seconds) < 1:
        return "now"
    return f"in {rough(seconds)}" if seconds > 0 else f"{rough(seconds)} ago"


def clock_time(moment: datetime, now: datetime, zone: tzinfo) -> str:
    """The time of day in a zone, with the date unless it is today's.

    >>> from datetime import UTC
    >>> now = datetime(2026, 1, 1, 12, tzinfo=UTC)
    >>> clock_time(now, now, UTC), clock_time(now + timedelta(days=1), now, UTC)
    ('12:00:00', '2026-01-02 12:00:00')
    """
    local = moment.astimezone(zone)
    is_today = local.date() == now.astimezone(zone).date()
    return f"{local:%H:%M:%S}" if is_today else f"{local:%Y-%m-%d %H:%M:%S}"
