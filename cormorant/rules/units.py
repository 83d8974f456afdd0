"""Durations, sizes, shares and times of day as people write them; rounded durations."""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, datetime, time, timedelta, tzinfo
from decimal import Decimal
from fractions import Fraction

from attrs import frozen

from cormorant.rules.secrets import redact_passwords

_MS_PER_UNIT = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_BYTES = {
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
_WHOLE = 100
_SHOWN_MAX = 60
_BYTES_BY_LOWER = {unit.lower(): count for unit, count in _BYTES.items()}

# ASCII digits only, and room for any float but not for a megabyte of them. Fractions, because Decimal rounds at 28 digits.
_NUMBER = r"(?<![0-9])[0-9]{1,400}+(?:\.[0-9]{1,400}+)?"
_DURATION = re.compile(rf"(?:{_NUMBER} *[a-z]+ *)+")
_DURATION_PART = re.compile(rf"({_NUMBER}) *([a-z]+)")
_SIZE = re.compile(rf"({_NUMBER}) *([A-Za-z]+)")
_SHARE = re.compile(rf"({_NUMBER}) *%")


def parse_duration(value: object) -> float:
    """Seconds of a written duration: one or more numbers, each with its unit.

    >>> [parse_duration(text) for text in ("10s", "1h 30m", "250ms", "1.5d")]
    [10.0, 5400.0, 0.25, 129600.0]
    >>> parse_duration(10)
    Traceback (most recent call last):
    ValueError: 10 is not a duration; write numbers with units (ms, s, m, h, d, w), such as "10s" or "1h 30m"
    """
    parts = _DURATION_PART.findall(value) if isinstance(value, str) and _DURATION.fullmatch(value.strip()) else []
    if not parts or any(unit not in _MS_PER_UNIT for _, unit in parts):
        raise ValueError(
            f"{as_written(value)} is not a duration; "
            f'write numbers with units ({", ".join(_MS_PER_UNIT)}), such as "10s" or "1h 30m"'
        )
    return float(sum(Fraction(number) * _MS_PER_UNIT[unit] for number, unit in parts) / 1000)


def format_duration(seconds: float) -> str:
    """The exact text of a duration: `parse_duration` gives the same number back.

    >>> [format_duration(seconds) for seconds in (0, 0.25, 10, 5400, 43200, 0.1234)]
    ['0s', '250ms', '10s', '1h 30m', '12h', '0.1234s']
    """
    _refuse_odd(seconds)
    exact = Decimal(repr(float(seconds)))
    if exact != int(exact):
        thousandths = exact * 1000
        whole_ms = thousandths == int(thousandths) and exact < 1
        return f"{int(thousandths)}ms" if whole_ms else f"{exact:f}s"
    left_ms = int(exact) * 1000
    words = []
    for unit in ("d", "h", "m", "s"):
        count, left_ms = divmod(left_ms, _MS_PER_UNIT[unit])
        if count:
            words.append(f"{count}{unit}")
    return " ".join(words) or "0s"


def parse_size(value: object) -> int:
    """Bytes of a written size. kB, MB, GB count in thousands; KiB, MiB, GiB in 1024s; case does not matter.

    >>> [parse_size(text) for text in ("100 MB", "64MiB", "1.5 kB", "7 b")]
    [100000000, 67108864, 1500, 7]
    >>> parse_size("3 apples")
    Traceback (most recent call last):
    ValueError: "3 apples" is not a size; write a number with a unit (B, kB, MB, GB, TB, KiB, MiB, GiB, TiB), such as "100 MB"
    """
    found = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    per_unit = _BYTES_BY_LOWER.get(found[2].lower()) if found else None
    if found is None or per_unit is None:
        raise ValueError(
            f'{as_written(value)} is not a size; write a number with a unit ({", ".join(_BYTES)}), such as "100 MB"'
        )
    size = Fraction(found[1]) * per_unit
    if size != int(size):
        raise ValueError(f"{as_written(value)} is not a whole number of bytes")
    return int(size)


def format_size(size_bytes: int) -> str:
    """The exact text of a size, in the largest unit that leaves no fraction.

    >>> [format_size(size) for size in (0, 100_000_000, 2**26, 1234567)]
    ['0 B', '100 MB', '64 MiB', '1234567 B']
    """
    _refuse_odd(size_bytes)
    fitting = [(per_unit, unit) for unit, per_unit in _BYTES.items() if size_bytes and size_bytes % per_unit == 0]
    per_unit, unit = max(fitting, default=(1, "B"))
    return f"{size_bytes // per_unit} {unit}"


def parse_share(value: object) -> float:
    """A written share of a whole as a number from 0 to 1.

    >>> [parse_share(text) for text in ("25%", "0 %", "12.5%", "100%")]
    [0.25, 0.0, 0.125, 1.0]
    >>> parse_share("130%")
    Traceback (most recent call last):
    ValueError: "130%" is not a share; write a percentage from 0% to 100%, such as "25%"
    """
    found = _SHARE.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None or Fraction(found[1]) > _WHOLE:
        raise ValueError(f'{as_written(value)} is not a share; write a percentage from 0% to 100%, such as "25%"')
    return float(Fraction(found[1]) / _WHOLE)


def format_share(share: float) -> str:
    """The exact text of a share: `parse_share` gives the same number back.

    >>> [format_share(share) for share in (0, 0.25, 0.125, 1)]
    ['0%', '25%', '12.5%', '100%']
    """
    _refuse_odd(share)
    if share > 1:
        raise ValueError(f"{share!r} is not a share: it is over 1")
    percent = Decimal(repr(float(share))) * _WHOLE
    return f"{percent.normalize():f}%"


def _refuse_odd(number: float) -> None:
    if not math.isfinite(number) or number < 0:
        raise ValueError(f"{number!r} is not a quantity: it must be finite and not negative")


def as_written(value: object) -> str:
    r"""A value as it stands in a settings file, cut to fit into one line of an error; a password in it is hidden.

    >>> print(as_written("two\nlines"), as_written(10), as_written(True))
    "two\nlines" 10 true
    """
    text = redact_passwords(json.dumps(value, ensure_ascii=False, default=str))
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"


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


_WITHOUT_DECIMALS = 100
"""From this number on a rounded size has no decimals."""
_SIZES = ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB"))


def rough_size(size_bytes: int) -> str:
    """A size in one number and one unit, with one decimal below 100.

    >>> [rough_size(size) for size in (999, 1_540, 312_400_000, 999_900_000)]
    ['999 B', '1.5 kB', '312 MB', '1000 MB']
    """
    unit, name = next((each for each in _SIZES if size_bytes >= each[0]), (1, "B"))
    decimals = 1 if unit > 1 and size_bytes < _WITHOUT_DECIMALS * unit else 0
    return f"{size_bytes / unit:.{decimals}f} {name}"


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
