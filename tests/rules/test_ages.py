"""Ages in words: never more than what has passed, and always a unit that says something."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from cormorant.rules.units import clock_time, from_now, rough

NOW = datetime(2026, 7, 1, 23, 30, tzinfo=UTC)
SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86400}


@given(st.floats(0, 1e9))
def test_what_is_said_is_at_most_what_has_passed_and_more_than_half_of_it(seconds: float) -> None:
    number, unit = rough(seconds).split()

    said_s = int(number) * SECONDS[unit]
    assert said_s <= seconds < said_s + SECONDS[unit]
    assert said_s > seconds / 2 or seconds < 2


@given(st.integers(-(10**9), 10**9))
def test_the_past_and_the_future_are_told_apart(seconds: int) -> None:
    said = from_now(NOW + timedelta(seconds=seconds), NOW)

    assert (said == "now", said.endswith(" ago"), said.startswith("in ")) == (seconds == 0, seconds < 0, seconds > 0)


def test_today_is_the_day_of_the_zone() -> None:
    midnight_in_berlin = NOW - timedelta(minutes=90)

    assert clock_time(midnight_in_berlin, NOW, ZoneInfo("Europe/Berlin")) == "00:00:00"
    assert (
        clock_time(midnight_in_berlin - timedelta(seconds=1), NOW, ZoneInfo("Europe/Berlin")) == "2026-07-01 23:59:59"
    )
