"""Times of day with their zone, as people write them."""

from __future__ import annotations

from datetime import UTC, time
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cormorant.rules.units import TimeOfDay, format_time_of_day, parse_time_of_day, zone_of


@given(st.integers(0, 23), st.integers(0, 59), st.sampled_from(["UTC", "Europe/Berlin", "Etc/GMT+1"]))
def test_what_is_written_is_read_back(hour: int, minute: int, zone: str) -> None:
    moment = TimeOfDay(time(hour, minute), zone)

    assert parse_time_of_day(format_time_of_day(moment)) == moment


@pytest.mark.parametrize(
    "value", ["00:00", "24:00 UTC", "1:60 UTC", "12 UTC", "", "\u0661:00 UTC", 5, time(5), None, "00:00UTC"]
)
def test_anything_else_is_refused_with_the_remedy(value: object) -> None:
    with pytest.raises(ValueError, match='is not a time of day with its zone; write it like "00:00 UTC"'):
        parse_time_of_day(value)


def test_zones_are_found_by_name() -> None:
    assert (zone_of("UTC"), zone_of("Europe/Berlin")) == (UTC, ZoneInfo("Europe/Berlin"))
