"""Windows against a plain list of timestamps, with clocks that go backward and limits that change in between."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, time, timedelta
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from cormorant.rules.search.limits import (
    WIDTHS,
    Edges,
    Lane,
    SourceLimits,
    WindowName,
    edge_opens_at,
    edges_wanted,
    share_windows,
    tokens_at,
    windows_of,
)
from cormorant.rules.search.priorities import Priority
from cormorant.rules.search.reasons import NextRequest, next_opening, openings, share_reason
from cormorant.rules.search.reservations import EndKind, Reserved, reserve
from cormorant.rules.search.source_state import SourceState
from tests.rules.search.request_ends import failed

RSS = Priority.RSS
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
FREE = SourceLimits(spacing_s=0.0, pace_s=0.0)


def edges_of(limits: SourceLimits, made: Sequence[datetime]) -> Edges:
    """What storage would look up: request number n was made at `made[n - 1]`."""
    return {number: made[number - 1] for number in edges_wanted(limits, Lane.QUERY, last_seq=len(made))}


def ask(
    state: SourceState,
    limits: SourceLimits,
    made: list[datetime],
    *,
    now: datetime,
    priority: Priority = Priority.INTERACTIVE,
) -> SourceState:
    """One request that ends at once, if it may go; noted in `made`."""
    got = reserve(
        state,
        limits,
        NextRequest(lane=Lane.QUERY, priority=priority),
        now=now,
        edges=edges_of(limits, made),
        lease_s=60,
    )
    if not isinstance(got, Reserved):
        return state
    made.append(got.at)
    assert got.permit.seq == len(made)
    return failed(got.state, EndKind.OURS, got.permit, now=now)


def at_most(limit: int, width: timedelta, made: Sequence[datetime]) -> bool:
    """Whether no span of that width, its end left out, holds more than `limit`."""
    return all(sum(first <= each < first + width for each in made) <= limit for first in made)


# Steps of a clock in units of a sixth of the window, sometimes backward; and a limit for each step.
STEPS = st.lists(st.tuples(st.integers(-8, 8), st.integers(1, 4)), max_size=60)


@pytest.mark.slow("a hundred histories, each counted by hand at every step")
@given(steps=STEPS, name=st.sampled_from([WindowName.MINUTE, WindowName.HOUR, WindowName.DAY, WindowName.MONTH]))
def test_no_span_ever_sees_more_than_the_limit_then_in_force(steps: list[tuple[int, int]], name: WindowName) -> None:
    width = WIDTHS[name]
    state, made, now = SourceState(), list[datetime](), NOON

    for step, limit in steps:
        now += width / 6 * step
        before = list(made)
        changes: dict[str, Any] = {f"per_{name}": limit}
        limits = evolve(FREE, **changes)
        state = ask(state, limits, made, now=now)
        if len(made) > len(before):
            assert sum(made[-1] - width < each for each in made) <= limit
        elif now >= max(before) and name is not WindowName.MINUTE:  # its bucket fills only bit by bit
            assert sum(now - width < each for each in before) >= limit

    assert made == sorted(made)


@pytest.mark.slow("a hundred histories")
@given(st.lists(st.integers(-90, 90), max_size=80), st.integers(1, 5), st.integers(1, 8))
def test_several_windows_hold_together(steps: list[int], per_minute: int, per_hour: int) -> None:
    limits = evolve(FREE, per_minute=per_minute, per_hour=per_hour)
    state, made, now = SourceState(), list[datetime](), NOON

    for step in steps:
        now += timedelta(seconds=step * 7)
        state = ask(state, limits, made, now=now)

    assert at_most(per_minute, timedelta(minutes=1), made)
    assert at_most(per_hour, timedelta(hours=1), made)


@pytest.mark.slow("a hundred histories")
@given(st.integers(1, 6), st.integers(1, 20))
def test_whoever_comes_at_the_opening_goes_and_a_moment_before_does_not(limit: int, rounds: int) -> None:
    limits = evolve(FREE, per_minute=limit, per_hour=2 * limit)
    state, made, now = SourceState(), list[datetime](), NOON

    for _ in range(rounds):
        look = partial(openings, state, limits, NextRequest(priority=RSS), edges=edges_of(limits, made))
        opens_at = next_opening(look(now=now), now=now)
        assert opens_at is not None
        if opens_at > now:
            assert look(now=opens_at - timedelta.resolution)
        now = opens_at
        state = ask(state, limits, made, now=now)

    assert len(made) == rounds


def test_a_minute_holds_its_rate_and_opens_exactly_a_minute_later() -> None:
    limits, state, made = evolve(FREE, per_minute=3), SourceState(), list[datetime]()

    for second in range(130):
        state = ask(state, limits, made, now=NOON + timedelta(seconds=second))

    assert [(each - NOON).total_seconds() for each in made] == [0, 1, 2, 60, 61, 62, 120, 121, 122]


@pytest.mark.slow("a hundred histories")
@given(st.lists(st.integers(0, 40), max_size=60), st.integers(0, 23), st.integers(1, 4))
def test_with_a_reset_hour_each_day_of_the_site_has_its_own_limit(steps: list[int], hour: int, limit: int) -> None:
    limits = evolve(FREE, per_day=limit, reset=time(hour))
    state, made, now = SourceState(), list[datetime](), NOON

    for step in steps:
        now += timedelta(hours=step / 4)
        before = len(made)
        state = ask(state, limits, made, now=now)
        day = [each for each in made[:before] if (each - timedelta(hours=hour)).date() == _day(now, hour)]
        assert (len(made) > before) is (len(day) < limit)


BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("asked", "reset", "opens"),
    [
        ("2026-01-10T22:59+00:00", time(0), "2026-01-10T23:00+00:00"),
        ("2026-01-10T23:00+00:00", time(0), "2026-01-11T23:00+00:00"),
        ("2026-07-10T21:59+00:00", time(0), "2026-07-10T22:00+00:00"),
        # The day on which the clocks go forward has 23 hours, the one on which they go back 25.
        ("2026-03-28T23:00+00:00", time(0), "2026-03-29T22:00+00:00"),
        ("2026-10-24T22:00+00:00", time(0), "2026-10-25T23:00+00:00"),
        # 02:30 comes twice; the first counts.
        ("2026-10-25T00:29+00:00", time(2, 30), "2026-10-25T00:30+00:00"),
        ("2026-10-25T00:45+00:00", time(2, 30), "2026-10-26T01:30+00:00"),
    ],
)
def test_the_day_of_a_site_begins_by_the_clocks_of_its_zone(asked: str, reset: time, opens: str) -> None:
    limits = evolve(FREE, per_day=1, reset=reset, reset_zone=BERLIN)
    (window,) = windows_of(limits, Lane.QUERY, Priority.INTERACTIVE)

    opens_at = edge_opens_at(window, {1: datetime.fromisoformat(asked)}, last_seq=1)

    assert opens_at == datetime.fromisoformat(opens)


def test_the_same_time_of_day_in_two_zones_is_not_the_same_limit() -> None:
    berlin, tokyo = (
        evolve(FREE, per_day=1, reset=time(0), reset_zone=ZoneInfo(name)) for name in ("Europe/Berlin", "Asia/Tokyo")
    )

    assert berlin != tokyo
    assert windows_of(berlin, Lane.QUERY, RSS) != windows_of(tokyo, Lane.QUERY, RSS)


def _day(moment: datetime, hour: int) -> object:
    return (moment - timedelta(hours=hour)).date()


@pytest.mark.parametrize(("share", "others"), [(0.0, 10), (0.2, 8), (0.25, 7), (0.9, 1)])
def test_a_share_of_each_window_is_kept_for_people(share: float, others: int) -> None:
    limits = evolve(FREE, per_hour=10, reserve_interactive=share)
    state, made = SourceState(), list[datetime]()

    for _ in range(20):
        state = ask(state, limits, made, now=NOON, priority=Priority.RSS)
    by_others = len(made)
    for _ in range(20):
        state = ask(state, limits, made, now=NOON)

    assert (by_others, len(made)) == (others, 10)


def test_a_limit_of_one_is_not_closed_to_others_by_a_reserve() -> None:
    limits = SourceLimits(per_day=1, reserve_interactive=0.9)

    assert [window.limit for window in windows_of(limits, Lane.QUERY, Priority.BACKGROUND)] == [1]


def test_an_edge_that_nobody_looked_up_opens_nothing() -> None:
    limits, state, made = evolve(FREE, per_hour=1), SourceState(), list[datetime]()
    state = ask(state, limits, made, now=NOON)

    with pytest.raises(KeyError):
        openings(state, limits, NextRequest(lane=Lane.QUERY, priority=Priority.RSS), now=NOON, edges={})


@given(st.floats(0, 10), st.integers(1, 10), st.floats(0, 600))
def test_a_bucket_never_holds_more_than_it_can(tokens: float, per_minute: int, passed_s: float) -> None:
    later = NOON + timedelta(seconds=passed_s)

    assert 0 <= tokens_at(tokens, since=NOON, per_minute=per_minute, at=later) <= per_minute
    assert tokens_at(None, since=None, per_minute=per_minute, at=NOON) == per_minute


@settings(max_examples=30)
@given(st.integers(1, 200), st.integers(1, 50))
def test_few_numbers_are_looked_up_whatever_was_spent(last_seq: int, limit: int) -> None:
    limits = SourceLimits(per_minute=limit, per_hour=limit, per_day=limit, per_month=limit, reserve_interactive=0.5)

    wanted = edges_wanted(limits, Lane.QUERY, last_seq=last_seq)

    assert len(wanted) <= 8
    assert all(1 <= number <= last_seq for number in wanted)


@given(
    st.lists(st.integers(0, 90_000), max_size=30),
    st.integers(0, 100_000),
    st.sampled_from([0.05, 0.1, 0.25, 0.4, 0.9]),
    st.integers(1, 12),
    st.integers(1, 40),
)
def test_an_app_may_go_exactly_while_its_part_of_every_window_is_not_spent(
    made_s: list[int], now_s: int, share: float, per_hour: int, per_day: int
) -> None:
    limits = evolve(FREE, per_hour=per_hour, per_day=per_day, per_minute=1)
    now = NOON + timedelta(seconds=now_s)
    made = [NOON + timedelta(seconds=each) for each in sorted(made_s) if each <= now_s]
    windows = share_windows(limits, Lane.QUERY, share)
    nth_latest = {each.limit: made[-each.limit] if each.limit <= len(made) else None for each in windows}

    request = NextRequest(share_reason=share_reason("sonarr", Lane.QUERY, windows, nth_latest))
    reasons = openings(SourceState(), FREE, request, now=now, edges={})

    parts = {
        timedelta(hours=1): max(1, int(per_hour * share + 1e-9)),
        timedelta(days=1): max(1, int(per_day * share + 1e-9)),
    }
    spent = {width: [at for at in made if at > now - width] for width in parts}
    assert bool(reasons) == any(len(spent[width]) >= most for width, most in parts.items())
    if reasons:
        opens_at = next_opening(reasons, now=now)
        assert opens_at is not None
        full = {width: [at for at in made if at > opens_at - width] for width in parts}
        assert all(len(full[width]) < most for width, most in parts.items())
