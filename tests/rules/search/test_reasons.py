"""Gates: which stand in the way, in which order, when each opens, and in which words."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from cormorant.rules.search.breaker import Breaker, BreakerState, Cooldown
from cormorant.rules.search.limits import PRESETS, Edges, Lane, SourceLimits
from cormorant.rules.search.priorities import Priority
from cormorant.rules.search.reasons import (
    NextRequest,
    Reason,
    ReasonName,
    earliest_opening,
    explain,
    next_opening,
    openings,
    recheck_at,
)
from cormorant.rules.search.source_state import LaneState, RequestLease, SourceState

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def asked(seconds_ago: float = 0.0) -> SourceState:
    """A source whose last query began and ended so long ago."""
    then = after(-seconds_ago)
    return SourceState(query=LaneState(last_seq=1, last_at=then, last_end_at=then))


def look(
    state: SourceState, limits: SourceLimits, *, now: datetime = NOON, edges: Edges | None = None, **request: Any
) -> tuple[Reason, ...]:
    """What is in the way of a query of the least urgent class, unless the request says otherwise."""
    return openings(state, limits, NextRequest(**request), now=now, edges=edges or {})


def seen(reasons: tuple[Reason, ...]) -> list[tuple[str, float | None]]:
    """Names, and in how many seconds each opens."""
    return [
        (gate.name.value, None if gate.opens_at is None else (gate.opens_at - NOON).total_seconds()) for gate in reasons
    ]


def test_nothing_is_in_the_way_of_the_first_request() -> None:
    assert look(SourceState(), PRESETS["private"]) == ()


def test_every_gate_is_named_in_order() -> None:
    state = SourceState(
        is_enabled=False,
        is_paused=True,
        stopped_because="401",
        cooldown=Cooldown(until=after(50)),
        breaker=Breaker(state=BreakerState.OPEN, open_until=after(40)),
        query=LaneState(last_seq=4, last_at=NOON, last_end_at=NOON, tokens=0.5, tokens_at=NOON),
    )
    limits = SourceLimits(per_minute=4, per_hour=4, per_day=4, per_month=4)

    reasons = look(state, limits, edges={1: after(-30)})

    assert seen(reasons) == [
        ("enabled", None),
        ("stopped", None),
        ("paused", None),
        ("breaker", 40),
        ("cooldown", 50),
        ("spacing", 2),
        ("pace", 60),
        ("minute", 30),
        ("hour", 3_570),
        ("day", 86_370),
        ("month", 31 * 86_400 - 30),
    ]
    assert [gate.name for gate in reasons] == sorted((gate.name for gate in reasons), key=list(ReasonName).index)


@pytest.mark.parametrize(
    ("priority", "pace"),
    [(Priority.INTERACTIVE, 6), (Priority.RSS, 30), (Priority.COMPLETION, 42), (Priority.BACKGROUND, 60)],
)
def test_each_class_keeps_its_share_of_the_pace(priority: Priority, pace: float) -> None:
    assert seen(look(asked(), SourceLimits(spacing_s=0), priority=priority)) == [("pace", pace)]


def test_spacing_is_a_floor_that_no_class_goes_under() -> None:
    reasons = look(asked(3), SourceLimits(spacing_s=10), priority=Priority.INTERACTIVE)

    assert seen(reasons) == [("spacing", 7)]


def test_a_request_may_bring_its_own_pace_but_no_spacing() -> None:
    assert seen(look(asked(), SourceLimits(), pace_s=0)) == [("spacing", 2)]
    assert seen(look(asked(5), SourceLimits(), pace_s=600)) == [("pace", 595)]


def test_intervals_count_from_the_end_of_the_last_request() -> None:
    state = SourceState(query=LaneState(last_seq=1, last_at=after(-100), last_end_at=after(-1)))

    assert seen(look(state, SourceLimits())) == [("spacing", 1), ("pace", 59)]


def test_with_several_at_once_intervals_count_from_the_start() -> None:
    lane = LaneState(last_seq=1, last_at=after(-1), in_flight=(RequestLease(seq=1, expires_at=after(30)),))

    assert seen(look(SourceState(query=lane), SourceLimits(in_flight_max=2, pace_s=0))) == [("spacing", 1)]


def test_a_grab_keeps_the_spacing_after_a_query_but_not_its_pace() -> None:
    assert seen(look(asked(), SourceLimits(), lane=Lane.GRAB)) == [("spacing", 2)]


def test_while_a_request_is_in_flight_nobody_knows_the_opening() -> None:
    lane = LaneState(last_seq=1, last_at=after(-1), in_flight=(RequestLease(seq=1, expires_at=after(30)),))

    reasons = look(SourceState(query=lane), SourceLimits(), lane=Lane.GRAB)

    assert seen(reasons) == [("in_flight", None)]
    assert next_opening(reasons, now=NOON) is None
    assert recheck_at(reasons, now=NOON) == after(30)


def test_a_request_whose_end_was_never_recorded_may_have_lasted_until_its_lease_expired() -> None:
    lane = LaneState(last_seq=1, last_at=after(-60), in_flight=(RequestLease(seq=1, expires_at=after(-1)),))

    assert seen(look(SourceState(query=lane), SourceLimits(pace_s=0))) == [("spacing", 1)]


def test_a_pause_ends_by_itself_only_if_it_has_an_end() -> None:
    assert seen(look(SourceState(is_paused=True), SourceLimits())) == [("paused", None)]
    assert seen(look(SourceState(is_paused=True, paused_until=after(9)), SourceLimits())) == [("paused", 9)]
    assert look(SourceState(is_paused=True, paused_until=NOON), SourceLimits()) == ()


def test_only_a_person_opens_what_a_person_closed() -> None:
    reasons = look(SourceState(stopped_because="key refused", cooldown=Cooldown(until=after(9))), SourceLimits())

    assert recheck_at(reasons, now=NOON) is None


def test_a_day_with_a_reset_hour_opens_when_the_sites_day_begins() -> None:
    limits = SourceLimits(per_day=1, reset=time(5), pace_s=0)

    assert seen(look(asked(60), limits, edges={1: after(-60)})) == [("reset", 17 * 3_600)]


@given(st.integers(-10_000, 0), st.sampled_from(Priority))
def test_a_clock_that_goes_backward_opens_nothing(seconds: int, priority: Priority) -> None:
    state = evolve(asked(), cooldown=Cooldown(until=after(1)))
    limits = SourceLimits(per_hour=1)

    then = look(state, limits, priority=priority, now=after(seconds), edges={1: NOON})

    assert then == look(state, limits, priority=priority, edges={1: NOON})


def test_ageing_lends_the_pace_of_a_better_class_but_not_its_reserve() -> None:
    limits = SourceLimits(per_hour=10, reserve_interactive=0.5)
    state = evolve(asked(), query=LaneState(last_seq=5, last_at=NOON, last_end_at=NOON))

    reasons = look(state, limits, waited_s=900, edges={1: NOON})

    assert seen(reasons) == [("spacing", 2), ("pace", 6), ("hour", 3_600)]


@pytest.mark.parametrize(
    ("pace_s", "waited_s", "opens_s"),
    [(60, 0, 60), (1_000, 0, 600), (1_000, 290, 500), (10_000, 0, 1_000), (10_000, 900, 1_000), (600, 0, 420)],
)
def test_the_earliest_opening_counts_ageing_in(pace_s: float, waited_s: float, opens_s: float) -> None:
    opens_at = earliest_opening(
        asked(),
        SourceLimits(pace_s=pace_s),
        NextRequest(lane=Lane.QUERY, priority=Priority.BACKGROUND, waited_s=waited_s),
        now=NOON,
        edges={},
    )

    assert opens_at == after(opens_s)


@given(
    ago_s=st.floats(0, 100),
    spacing_s=st.floats(0, 50),
    pace_s=st.floats(0, 5_000),
    cooldown_s=st.floats(0, 50),
    priority=st.sampled_from(Priority),
)
def test_a_request_submitted_now_goes_at_exactly_the_time_that_is_told(
    ago_s: float, spacing_s: float, pace_s: float, cooldown_s: float, priority: Priority
) -> None:
    state = evolve(asked(ago_s), cooldown=Cooldown(until=after(cooldown_s)))
    limits = SourceLimits(spacing_s=spacing_s, pace_s=pace_s)
    told = explain(state, limits, NextRequest(lane=Lane.QUERY, priority=priority), now=NOON, edges={}).opens_at
    assert told is not None

    def is_open(at: datetime) -> bool:
        waited_s = (at - NOON).total_seconds()
        return not look(state, limits, priority=priority, now=at, waited_s=waited_s)

    assert is_open(told)
    assert told == NOON or not is_open(told - timedelta.resolution)


def test_the_words_say_what_why_and_until_when() -> None:
    state = evolve(
        asked(2),
        stopped_because="API key invalid",
        failure_streak=5,
        breaker=Breaker(state=BreakerState.OPEN, open_until=after(90.5)),
    )
    limits = SourceLimits(spacing_s=10, per_day=1, reset=time(0), pace_s=15)

    told = explain(
        state, limits, NextRequest(lane=Lane.QUERY, priority=Priority.BACKGROUND), now=NOON, edges={1: after(-2)}
    )

    assert told.opens_at is None
    assert told.lines == (
        "waits for new credentials: it refused our credentials (API key invalid); correct them and reset it",
        "waits for the breaker until 12:01:31: 5 requests in a row failed",
        "waits for spacing until 12:00:08: the last request ended 2 s ago and the site allows one every 10 s",
        "waits for pace until 12:00:13: the last query ended 2 s ago and background work keeps 15 s apart",
        "waits for the limit per day until 2026-03-02 00:00:00: 1 of 1 queries per day are spent; the site's day begins at 00:00 UTC",
    )


def test_the_words_say_when_nothing_is_in_the_way_and_when_ageing_helps() -> None:
    free = explain(
        SourceState(), SourceLimits(), NextRequest(lane=Lane.QUERY, priority=Priority.RSS), now=NOON, edges={}
    )
    slow = explain(
        asked(), SourceLimits(pace_s=900), NextRequest(lane=Lane.QUERY, priority=Priority.RSS), now=NOON, edges={}
    )

    assert (free.lines, free.opens_at) == (("may go now",), NOON)
    assert slow.opens_at == after(300)
    assert slow.lines[-1].startswith("goes at 12:05:00 all the same")


def test_the_share_kept_for_people_is_named() -> None:
    limits = SourceLimits(per_hour=10, reserve_interactive=0.2, pace_s=0, spacing_s=0)
    state = SourceState(query=LaneState(last_seq=8, last_at=NOON, last_end_at=NOON))

    told = explain(state, limits, NextRequest(lane=Lane.QUERY, priority=Priority.RSS), now=NOON, edges={1: NOON})

    assert told.lines == (
        "waits for the limit per hour until 13:00:00: 8 of 10 queries per hour are spent and 2 are kept for people",
    )
