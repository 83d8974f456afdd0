"""When is nobody to be disturbed? "22:00-07:00 Europe/Berlin": written, read, and when such hours end."""

from __future__ import annotations

import re
from datetime import UTC, datetime, time, timedelta

from attrs import frozen

from cormorant.rules.times_of_day import parse_time_of_day, zone_of
from cormorant.rules.units import as_written

__all__ = ["QuietHours", "format_quiet_hours", "parse_quiet_hours", "quiet_until"]

_MINUTE = timedelta(minutes=1)
_WRITTEN = re.compile(r"([0-9:]{4,5}) *- *([0-9:]{4,5}) +(\S+)")


@frozen
class QuietHours:
    """From one time of day to another, that of the next day if it is earlier, somewhere."""

    begin: time
    end: time
    zone: str = "UTC"


def parse_quiet_hours(value: object) -> QuietHours:
    """The hours that were written.

    >>> parse_quiet_hours("22:00-7:00 Europe/Berlin")
    QuietHours(begin=datetime.time(22, 0), end=datetime.time(7, 0), zone='Europe/Berlin')
    """
    found = _WRITTEN.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        raise _refusal(value)
    try:
        begin, end = (parse_time_of_day(f"{found[number]} {found[3]}") for number in (1, 2))
    except ValueError:
        raise _refusal(value) from None
    if begin == end:
        raise ValueError(f"{as_written(value)} begins when it ends; give two times")
    return QuietHours(begin.at, end.at, begin.zone)


def _refusal(value: object) -> ValueError:
    how = 'write them like "22:00-07:00 Europe/Berlin"'
    return ValueError(f"{as_written(value)} are no hours of the day with their zone; {how}")


def format_quiet_hours(hours: QuietHours) -> str:
    """The text of quiet hours: `parse_quiet_hours` gives the same back.

    >>> format_quiet_hours(QuietHours(time(22), time(7), "Europe/Berlin"))
    '22:00-07:00 Europe/Berlin'
    """
    return f"{hours.begin:%H:%M}-{hours.end:%H:%M} {hours.zone}"


def quiet_until(hours: QuietHours | None, now: datetime) -> datetime | None:
    """When the quiet hours end that are now; None: there are none now.

    >>> quiet_until(QuietHours(time(22), time(7)), datetime(2026, 1, 1, 23, tzinfo=UTC))
    datetime.datetime(2026, 1, 2, 7, 0, tzinfo=datetime.timezone.utc)
    >>> quiet_until(QuietHours(time(22), time(7)), datetime(2026, 1, 1, 7, tzinfo=UTC))
    """
    if hours is None:
        return None
    zone = zone_of(hours.zone)
    local = now.astimezone(zone)
    at = local.time()
    spans_midnight = hours.end < hours.begin
    if not _is_quiet(hours, at):
        return None
    day = local.date() + timedelta(days=1 if spans_midnight and at >= hours.begin else 0)
    ends = datetime.combine(day, hours.end, zone).astimezone(UTC)
    if ends.astimezone(zone).utcoffset() == local.utcoffset():
        return ends
    # The clock changes meanwhile: what it shows decides, minute by minute.
    moment = now.replace(second=0, microsecond=0)
    while moment <= now or _is_quiet(hours, moment.astimezone(zone).time()):
        moment += _MINUTE
    return moment


def _is_quiet(hours: QuietHours, at: time) -> bool:
    if hours.end < hours.begin:
        return at >= hours.begin or at < hours.end
    return hours.begin <= at < hours.end
