"""Times by interval and cron: across changes of the clock, and what holds for all of them."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cormorant.rules.schedules import (
    DAY_S,
    INTERVAL_S_MAX,
    INTERVAL_S_MIN,
    Schedule,
    ScheduleProblem,
    adapted_s,
    after_failure_s,
    is_misfire,
    next_due,
    overdue_delay_s,
    runs_within,
    spread_over,
)
from cormorant.rules.watch.feeds import DueFeed, after_check

START = datetime(2026, 1, 1, tzinfo=UTC)
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"]
CRONS = ["0 */6 * * *", "30 2 * * *", "15 1 * * *", "*/15 * * * *", "0 9 * * MON", "0 0 29 2 *", "59 23 31 12 *"]

# What the clock on the wall shows at each run, with its offset, written by hand: Berlin goes from 2 to 3 on 29 March and
# from 3 to 2 on 25 October; New York from 2 to 3 on 8 March and from 2 to 1 on 1 November; Lord Howe, by half an hour,
# from 2 to 1:30 on 5 April and from 2 to 2:30 on 4 October; Sydney from 3 to 2 on 5 April and from 2 to 3 on 4 October;
# Santiago from midnight to 23 of 4 April, and from midnight to 1 on 6 September; Dublin, which calls its winter the
# change, as London: from 1 to 2 on 29 March and from 2 to 1 on 25 October. What falls into a gap runs once right after it;
# what stands there twice runs once, the first time. Where minutes or hours begin with a star it goes by what the clock shows,
# as cron does: not in the gap, and both times.
CHANGES: list[tuple[str, str, str, list[str]]] = [
    (
        "Europe/Berlin",
        "30 2 * * *",
        "2026-03-28T00:00Z",
        ["03-28T02:30+01:00", "03-29T03:00+02:00", "03-30T02:30+02:00"],
    ),
    (
        "Europe/Berlin",
        "30 2 * * *",
        "2026-10-24T00:00Z",
        ["10-24T02:30+02:00", "10-25T02:30+02:00", "10-26T02:30+01:00"],
    ),
    ("Europe/Berlin", "0 9 * * *", "2026-03-28T00:00Z", ["03-28T09:00+01:00", "03-29T09:00+02:00"]),
    ("Europe/Berlin", "0 * * * *", "2026-03-29T00:30Z", ["03-29T03:00+02:00", "03-29T04:00+02:00"]),
    ("Europe/Berlin", "0 * * * *", "2026-10-25T00:30Z", ["10-25T02:00+01:00", "10-25T03:00+01:00"]),
    ("America/New_York", "30 2 * * *", "2026-03-07T12:00Z", ["03-08T03:00-04:00", "03-09T02:30-04:00"]),
    ("America/New_York", "30 1 * * *", "2026-10-31T12:00Z", ["11-01T01:30-04:00", "11-02T01:30-05:00"]),
    ("America/New_York", "0 */6 * * *", "2026-11-01T03:00Z", ["11-01T00:00-04:00", "11-01T06:00-05:00"]),
    ("Australia/Lord_Howe", "15 2 * * *", "2026-10-03T00:00Z", ["10-04T02:30+11:00", "10-05T02:15+11:00"]),
    ("Australia/Lord_Howe", "45 1 * * *", "2026-04-04T00:00Z", ["04-05T01:45+11:00", "04-06T01:45+10:30"]),
    ("Australia/Lord_Howe", "0 12 * * *", "2026-04-04T00:00Z", ["04-04T12:00+11:00", "04-05T12:00+10:30"]),
    ("Australia/Lord_Howe", "0 * * * *", "2026-10-03T14:00Z", ["10-04T01:00+10:30", "10-04T03:00+11:00"]),
    ("Australia/Lord_Howe", "0 * * * *", "2026-04-04T13:30Z", ["04-05T01:00+11:00", "04-05T02:00+10:30"]),
    (
        "Australia/Lord_Howe",
        "*/30 * * * *",
        "2026-04-04T14:10Z",
        ["04-05T01:30+11:00", "04-05T01:30+10:30", "04-05T02:00+10:30"],
    ),
    (
        "Australia/Lord_Howe",
        "*/30 * * * *",
        "2026-10-03T14:40Z",
        ["10-04T01:30+10:30", "10-04T02:30+11:00", "10-04T03:00+11:00"],
    ),
    ("Australia/Sydney", "30 2 * * *", "2026-10-03T00:00Z", ["10-04T03:00+11:00", "10-05T02:30+11:00"]),
    ("Australia/Sydney", "30 2 * * *", "2026-04-04T00:00Z", ["04-05T02:30+11:00", "04-06T02:30+10:00"]),
    ("America/Santiago", "0 0 * * *", "2026-09-05T12:00Z", ["09-06T01:00-03:00", "09-07T00:00-03:00"]),
    (
        "America/Santiago",
        "30 23 * * *",
        "2026-04-04T12:00Z",
        ["04-04T23:30-03:00", "04-05T23:30-04:00", "04-06T23:30-04:00"],
    ),
    ("Europe/Dublin", "30 1 * * *", "2026-03-28T12:00Z", ["03-29T02:00+01:00", "03-30T01:30+01:00"]),
    ("Europe/Dublin", "30 1 * * *", "2026-10-24T12:00Z", ["10-25T01:30+01:00", "10-26T01:30+00:00"]),
    (
        "Europe/Berlin",
        "0 */2 * * *",
        "2026-03-28T22:30Z",
        ["03-29T00:00+01:00", "03-29T04:00+02:00", "03-29T06:00+02:00"],
    ),
    (
        "Europe/Berlin",
        "0 */2 * * *",
        "2026-10-24T21:30Z",
        ["10-25T00:00+02:00", "10-25T02:00+02:00", "10-25T02:00+01:00", "10-25T04:00+01:00"],
    ),
    (
        "Europe/Berlin",
        "*/20 2 * * *",
        "2026-03-28T12:00Z",
        ["03-30T02:00+02:00", "03-30T02:20+02:00"],
    ),
    (
        "Europe/Berlin",
        "*/20 2 * * *",
        "2026-10-24T12:00Z",
        ["10-25T02:00+02:00", "10-25T02:20+02:00", "10-25T02:40+02:00", "10-25T02:00+01:00"],
    ),
    (
        "Europe/Berlin",
        "*/20 * * * *",
        "2026-10-25T00:30Z",
        ["10-25T02:40+02:00", "10-25T02:00+01:00", "10-25T02:20+01:00"],
    ),
    ("Europe/Berlin", "30 2 * * SUN", "2026-03-23T00:00Z", ["03-29T03:00+02:00", "04-05T02:30+02:00"]),
    ("America/New_York", "0 * * * *", "2026-03-08T06:30Z", ["03-08T03:00-04:00", "03-08T04:00-04:00"]),
    ("America/New_York", "0 * * * *", "2026-11-01T05:30Z", ["11-01T01:00-05:00", "11-01T02:00-05:00"]),
    ("UTC", "30 2 * * *", "2026-03-29T00:00Z", ["03-29T02:30+00:00", "03-30T02:30+00:00"]),
]


@pytest.mark.parametrize(("zone", "cron", "after", "right"), CHANGES)
def test_cron_keeps_the_time_on_the_wall_across_changes_of_the_clock(
    zone: str, cron: str, after: str, right: list[str]
) -> None:
    schedule, at, found = Schedule(cron=cron, zone=zone), datetime.fromisoformat(after), []

    for _ in right:
        at = next_due(schedule, due=at, now=at)
        found.append(at)

    assert found == [datetime.fromisoformat(f"2026-{words}") for words in right]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ({"cron": "0 9 * *"}, "has not five fields"),
        ({"cron": "0 0 0 9 * *"}, "has not five fields"),
        ({"cron": ""}, "has not five fields"),
        ({"cron": "60 * * * *"}, "cannot be kept"),
        ({"cron": "* 24 * * *"}, "cannot be kept"),
        ({"cron": "*/0 * * * *"}, "cannot be kept"),
        ({"cron": "a b c d e"}, "cannot be kept"),
        ({"cron": "0 0 * * NIX"}, "cannot be kept"),
        ({"cron": "5-1 * * * *"}, "cannot be kept"),
        ({"cron": "0 0 31 2 *"}, "cannot be kept|never comes"),
        ({"cron": "0 0 * * *", "zone": "Mars/Base"}, "'Mars/Base' is no time zone"),
        ({"cron": "0 0 * * *", "zone": "Europe"}, "'Europe' is no time zone"),
        ({"cron": "0 0 * * *", "zone": "../../etc/passwd"}, "is no time zone"),
        ({"every_s": 3600, "zone": ""}, "is no time zone"),
        ({"every_s": 59.9}, "59.9 s; allowed: 60 s"),
        ({"every_s": INTERVAL_S_MAX + 1}, "allowed: 60 s to 365 days"),
        ({"every_s": float("nan")}, "the interval is nan"),
        ({"every_s": 3600, "cron": "* * * * *"}, "either an interval or a cron"),
        ({}, "either an interval or a cron"),
    ],
)
def test_a_schedule_that_cannot_be_kept_says_what_is_wrong(words: dict[str, Any], named: str) -> None:
    with pytest.raises(ScheduleProblem, match=named):
        Schedule(**words)


@pytest.mark.slow("a hundred examples")
@given(st.text(alphabet="0123456789*/,-LMON# ", max_size=30))
def test_any_text_is_a_schedule_or_a_problem(cron: str) -> None:
    try:
        schedule = Schedule(cron=cron)
    except ScheduleProblem:
        return
    assert next_due(schedule, due=START, now=START) > START


moments = st.integers(0, 3 * 365 * 86_400).map(lambda seconds: START + timedelta(seconds=seconds))
intervals = st.floats(INTERVAL_S_MIN, 30 * DAY_S).map(lambda every_s: Schedule(every_s=every_s))
crons = st.builds(lambda cron, zone: Schedule(cron=cron, zone=zone), st.sampled_from(CRONS), st.sampled_from(ZONES))


@pytest.mark.slow("a hundred examples")
@given(intervals | crons, moments, moments)
def test_the_next_time_is_always_to_come_and_later_checks_are_never_due_earlier(
    schedule: Schedule, due: datetime, now: datetime
) -> None:
    following = next_due(schedule, due=due, now=now)

    assert following > now
    assert following <= next_due(schedule, due=due, now=now + timedelta(hours=1)) or due > now


@pytest.mark.slow("a hundred examples")
@given(intervals, moments, st.floats(0, 1, exclude_max=True))
def test_a_check_in_time_keeps_the_cadence(schedule: Schedule, due: datetime, share: float) -> None:
    assert schedule.every_s is not None
    every = timedelta(seconds=schedule.every_s)

    assert next_due(schedule, due=due, now=due + share * every) in {due + every, due + share * every + every}
    assert next_due(schedule, due=due, now=due + 0.9 * share * every) == due + every


@pytest.mark.slow("a hundred examples")
@given(intervals, moments, moments)
def test_a_check_by_hand_begins_the_interval_anew(schedule: Schedule, due: datetime, now: datetime) -> None:
    assert schedule.every_s is not None

    following = next_due(schedule, due=max(due, now), now=now)

    assert following == now + timedelta(seconds=schedule.every_s)


@pytest.mark.slow("a hundred examples")
@given(crons, moments)
def test_a_check_by_hand_leaves_the_times_of_cron_alone(schedule: Schedule, now: datetime) -> None:
    due = next_due(schedule, due=now, now=now)

    assert next_due(schedule, due=due, now=now) == due
    assert next_due(schedule, due=due + timedelta(days=9), now=now) == due  # it was put off, and need not be any more


def test_a_feed_that_was_told_to_wait_keeps_the_times_of_cron_again_after_a_success_and_only_then() -> None:
    now = datetime(2026, 1, 1, 12, 30, tzinfo=UTC)
    week = now + timedelta(days=7)
    feed = DueFeed(
        name="n", url="http://x.test/", schedule=Schedule(cron="0 * * * *"), next_attempt_at=week, failures=1
    )

    assert after_check(feed, error=None, now=now).next_check_at == now + timedelta(minutes=30)
    assert after_check(feed, error="again", now=now).next_check_at == week


@pytest.mark.slow("a hundred examples")
@given(crons, moments)
def test_runs_come_in_order_and_none_is_left_out(schedule: Schedule, first: datetime) -> None:
    runs = list(runs_within(schedule, first=first, until=first + timedelta(days=2), most=50))

    for before, after in pairwise(runs):
        assert before < after == next_due(schedule, due=before, now=after - timedelta(seconds=1))


@given(st.integers(0, 2**63))
def test_the_delay_of_an_overdue_one_is_stable_and_under_a_minute(number: int) -> None:
    assert 0 <= overdue_delay_s(number) == overdue_delay_s(number) < 60


def test_delays_are_spread_evenly() -> None:
    counts = Counter(int(overdue_delay_s(number)) for number in range(6_000))

    assert len(counts) == 60
    assert all(60 <= count <= 145 for count in counts.values())


@given(st.floats(INTERVAL_S_MIN, INTERVAL_S_MAX), st.integers(0, 10_000))
def test_failures_never_shorten_the_interval_nor_stretch_it_beyond_a_day(base_s: float, failures: int) -> None:
    got = after_failure_s(base_s=base_s, failures=failures)

    assert base_s <= got <= max(base_s, DAY_S)
    assert got <= after_failure_s(base_s=base_s, failures=failures + 1)
    assert failures >= 3 or got == base_s


@given(st.floats(INTERVAL_S_MIN, INTERVAL_S_MAX), st.lists(st.integers(0, 1_000), max_size=10))
def test_activity_halves_or_doubles_within_its_bounds(base_s: float, items: list[int]) -> None:
    got = adapted_s(base_s=base_s, new_items=items)

    assert base_s / 2 <= got <= 2 * base_s
    assert got <= max(base_s, DAY_S)
    assert got >= min(base_s, 900)


def test_a_misfire_is_later_than_its_grace() -> None:
    assert not is_misfire(due=START, now=START + timedelta(seconds=300), grace_s=300)
    assert is_misfire(due=START, now=START + timedelta(seconds=300.001), grace_s=300)


@given(st.lists(st.integers(), unique=True, max_size=50), st.floats(1, 86_400))
def test_spreading_gives_even_times_within_the_window(numbers: list[int], window_s: float) -> None:
    times = list(spread_over(numbers, start=START, window_s=window_s).values())

    assert all(START <= at <= START + timedelta(seconds=window_s) for at in times)
    gaps = [(after - before).total_seconds() for before, after in pairwise(times)]
    assert all(gap == pytest.approx(window_s / len(numbers), abs=1e-5) for gap in gaps)
