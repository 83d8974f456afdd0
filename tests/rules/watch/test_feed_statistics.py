"""The statistics of checks against a plain list, and when the clock is set back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cormorant.rules.watch.feed_statistics import CheckStatistics

START = datetime(2026, 1, 1, tzinfo=UTC)
HOUR_MINUTES = 60

checks = st.lists(
    st.tuples(st.integers(0, 1_500), st.booleans(), st.integers(0, 9_000), st.integers(0, 50), st.integers(0, 9)),
    max_size=80,
)


@pytest.mark.slow("a hundred examples")
@given(checks, st.integers(0, 5_000))
def test_it_counts_what_a_list_counts(told: list[tuple[int, bool, int, int, int]], later_s: int) -> None:
    statistics, now, kept = CheckStatistics(), START, []
    for gap_s, success, duration_ms, items_found, new_items in told:
        now += timedelta(seconds=gap_s)
        statistics.record(
            at=now, success=success, duration_ms=duration_ms, items_found=items_found, new_items=new_items
        )
        kept.append((now, success, duration_ms, items_found, new_items))
    now += timedelta(seconds=later_s)
    minute = int(now.timestamp()) // 60

    got = statistics.summary(now=now)

    inside = [each for each in kept if int(each[0].timestamp()) // 60 > minute - HOUR_MINUTES]
    good = [each for each in inside if each[1]]
    assert got["total_checks"] == len(inside)
    assert got["successful_checks"] == len(good)
    assert got["failed_checks"] == len(inside) - len(good)
    assert got["total_items_found"] == sum(each[3] for each in good)
    assert got["total_new_items"] == sum(each[4] for each in good)
    assert got["average_duration_ms"] == (sum(each[2] for each in good) / len(good) if good else 0)
    assert got["success_rate"] == (100 * len(good) / len(inside) if inside else 0)
    assert 0 <= got["checks_per_minute"] <= len(inside)


def test_a_record_costs_the_same_however_many_there_are() -> None:
    statistics = CheckStatistics()
    for second in range(20_000):
        statistics.record(at=START + timedelta(seconds=second), success=True, duration_ms=1)

    assert len(statistics._minutes) <= HOUR_MINUTES  # noqa: SLF001 - what it keeps, not what it tells
    assert statistics.summary(now=START + timedelta(seconds=20_000))["total_checks"] <= 3_600


def test_after_the_clock_was_set_back_an_hour_is_an_hour_again() -> None:
    statistics = CheckStatistics()
    statistics.record(at=START, success=True, duration_ms=1)
    back = START - timedelta(days=3)

    for minute in range(180):
        statistics.record(at=back + timedelta(minutes=minute), success=True, duration_ms=1)

    assert statistics.summary(now=back + timedelta(minutes=179))["total_checks"] == HOUR_MINUTES
    assert statistics.summary(now=back - timedelta(days=1))["total_checks"] == HOUR_MINUTES
    assert statistics.summary(now=back - timedelta(days=1) + timedelta(hours=2))["total_checks"] == 0


def test_a_check_that_began_before_the_newest_minute_counts_with_it() -> None:
    statistics = CheckStatistics()
    statistics.record(at=START, success=True, duration_ms=1)
    statistics.record(at=START - timedelta(minutes=5), success=False, duration_ms=1)

    assert statistics.summary(now=START)["failed_checks"] == 1
    assert statistics.summary(now=START + timedelta(minutes=60))["total_checks"] == 0
