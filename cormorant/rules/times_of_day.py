"""How is a time of day written? "00:00 UTC" or "03:30 Europe/Berlin", and back; never without its zone."""

from __future__ import annotations

import re
from datetime import UTC, time, tzinfo

from attrs import frozen

from cormorant.rules.units import as_written

__all__ = ["TimeOfDay", "format_time_of_day", "parse_time_of_day", "zone_of"]

_WRITTEN = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9]) +([A-Za-z][A-Za-z0-9_+/-]{0,60})")


@frozen
class TimeOfDay:
    """A time of day somewhere. Whether there is such a zone is for whoever has the tz database."""

    at: time
    zone: str = "UTC"


def parse_time_of_day(value: object) -> TimeOfDay:
    """The time of day that was written.

    >>> parse_time_of_day("3:30 Europe/Berlin")
    TimeOfDay(at=datetime.time(3, 30), zone='Europe/Berlin')
    >>> parse_time_of_day("midnight")
    Traceback (most recent call last):
    ValueError: "midnight" is not a time of day with its zone; write it like "00:00 UTC" or "03:30 Europe/Berlin"
    """
    found = _WRITTEN.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        raise ValueError(
            f"{as_written(value)} is not a time of day with its zone; "
            'write it like "00:00 UTC" or "03:30 Europe/Berlin"'
        )
    return TimeOfDay(time(int(found[1]), int(found[2])), found[3])


def format_time_of_day(value: TimeOfDay) -> str:
    """The text of a time of day: `parse_time_of_day` gives the same back.

    >>> format_time_of_day(TimeOfDay(time(3, 30), "Europe/Berlin"))
    '03:30 Europe/Berlin'
    """
    return f"{value.at:%H:%M} {value.zone}"


def zone_of(name: str) -> tzinfo:
    """The zone of that name. Raises OSError, ValueError or KeyError where there is none."""
    if name == "UTC":
        return UTC  # also where the system has no tz database
    from zoneinfo import ZoneInfo  # noqa: PLC0415  # few need it, all would wait for it

    return ZoneInfo(name)
