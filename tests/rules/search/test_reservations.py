"""What a reservation spends, and what follows from how a request ended."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from cormorant.rules.search.breaker import BreakerState, Cooldown
from cormorant.rules.search.limits import Lane, SourceLimits
from cormorant.rules.search.priorities import Priority
from cormorant.rules.search.reasons import NextRequest, ReasonName
from cormorant.rules.search.reservations import (
    EndKind,
    Reserved,
    SourceClosedNow,
    pause,
    reserve,
    reset,
    resume,
)
from cormorant.rules.search.source_state import SourceState
from tests.rules.search.request_ends import credentials_refused, failed, limited, succeeded

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
LATER = NOON + timedelta(hours=1)
FREE = SourceLimits(spacing_s=0, pace_s=0)


def ask(
    state: SourceState, *, now: datetime = NOON, limits: SourceLimits = FREE, lane: Lane = Lane.QUERY
) -> Reserved | SourceClosedNow:
    return reserve(state, limits, NextRequest(lane=lane, priority=Priority.RSS), now=now, edges={}, lease_s=45)


def begun(state: SourceState | None = None, *, now: datetime = NOON, lane: Lane = Lane.QUERY) -> Reserved:
    got = ask(state or SourceState(), now=now, lane=lane)
    assert isinstance(got, Reserved)
    return got


def test_a_reservation_takes_the_next_number_and_a_lease() -> None:
    got = begun()

    assert (got.permit.seq, got.at, got.expires_at) == (1, NOON, NOON + timedelta(seconds=45))
    assert (got.state.query.last_seq, got.state.query.last_at) == (1, NOON)
    assert [lease.seq for lease in got.state.query.in_flight] == [1]


def test_lanes_are_numbered_apart_and_run_one_after_the_other() -> None:
    query = begun()

    meanwhile = ask(query.state, lane=Lane.GRAB)
    grab = begun(succeeded(query.state, query.permit, now=NOON), lane=Lane.GRAB)

    assert isinstance(meanwhile, SourceClosedNow)
    assert [gate.name for gate in meanwhile.reasons] == [ReasonName.IN_FLIGHT]
    assert (grab.permit.seq, grab.state.query.last_seq) == (1, 1)


def test_a_process_that_died_keeps_the_source_busy_until_its_lease_expires() -> None:
    lost = begun()

    early = ask(lost.state, now=lost.expires_at - timedelta.resolution)
    late = ask(lost.state, now=lost.expires_at)

    assert isinstance(early, SourceClosedNow)
    assert early.recheck_at == lost.expires_at
    assert isinstance(late, Reserved)
    assert [lease.seq for lease in late.state.query.in_flight] == [2]
    assert late.state.query.last_end_at == lost.expires_at


def test_what_was_spent_is_never_refunded() -> None:
    got = begun()

    for ended in (
        succeeded(got.state, got.permit, now=NOON),
        failed(got.state, EndKind.OURS, got.permit, now=NOON),
        failed(got.state, EndKind.UNAVAILABLE, got.permit, now=NOON),
        reset(got.state),
        resume(pause(got.state)),
    ):
        assert (ended.query.last_seq, ended.query.last_at) == (1, NOON)


def test_a_clock_that_goes_backward_writes_no_earlier_time() -> None:
    state = succeeded(begun(now=LATER).state, begun(now=LATER).permit, now=NOON)

    got = begun(state, now=NOON)

    assert (state.query.last_end_at, got.at) == (LATER, LATER)


def test_a_success_clears_streak_and_cooldown() -> None:
    got = begun()
    ill = evolve(got.state, failure_streak=3, cooldown=Cooldown(until=NOON, level=4))

    well = succeeded(ill, got.permit, now=NOON)

    assert (well.failure_streak, well.cooldown, well.last_success_at) == (0, Cooldown(), NOON)
    assert well.query.in_flight == ()


def test_an_unavailable_source_gets_a_streak_and_a_cooldown_only_if_it_asked_for_one() -> None:
    got = begun()

    plain = failed(got.state, EndKind.UNAVAILABLE, got.permit, now=NOON)
    asked = failed(got.state, EndKind.UNAVAILABLE, got.permit, now=NOON, retry_after_s=120)

    assert (plain.failure_streak, plain.last_failure_at, plain.cooldown.until) == (1, NOON, None)
    assert asked.cooldown.until == NOON + timedelta(minutes=2)


def test_a_source_that_says_no_is_well() -> None:
    got = begun(evolve(SourceState(), failure_streak=4))

    ended = failed(got.state, EndKind.REFUSED, got.permit, now=NOON)

    assert (ended.failure_streak, ended.last_failure_at, ended.breaker.failures) == (0, None, 0)


def test_our_own_crash_says_nothing_about_the_source() -> None:
    got = begun(evolve(SourceState(), failure_streak=4))

    ended = failed(got.state, EndKind.OURS, got.permit, now=NOON)

    assert (ended.failure_streak, ended.breaker, ended.query.in_flight) == (4, got.state.breaker, ())


def test_a_limit_is_a_cooldown_and_a_failure() -> None:
    got = begun()

    ended = limited(got.state, got.permit, now=NOON)

    assert ended.cooldown == Cooldown(until=NOON + timedelta(minutes=1), level=1)
    assert (ended.failure_streak, ended.breaker.failures) == (1, 1)


def test_refused_credentials_stop_the_source_until_a_person_resets_it() -> None:
    got = begun()

    stopped = credentials_refused(got.state, got.permit, now=NOON, because="code 100")
    closed = ask(stopped, now=LATER)

    assert isinstance(closed, SourceClosedNow)
    assert (closed.opens_at, closed.recheck_at) == (None, None)
    assert isinstance(ask(reset(stopped), now=LATER), Reserved)


def test_an_answer_with_the_old_key_does_not_stop_a_source_that_was_reset() -> None:
    got = begun()

    late = credentials_refused(reset(got.state), got.permit, now=NOON, because="code 100")

    assert late.stopped_because is None
    assert late.query.in_flight == ()


def test_pause_and_resume() -> None:
    state = SourceState()

    assert isinstance(ask(pause(state)), SourceClosedNow)
    assert isinstance(ask(pause(state, until=LATER), now=LATER), Reserved)
    assert resume(pause(state, until=LATER)) == state


@pytest.mark.slow("a hundred histories")
@given(st.lists(st.sampled_from(["well", "limited", "ill"]), max_size=20))
def test_five_bad_answers_in_a_row_open_the_breaker_whatever_they_were(answers: list[str]) -> None:
    state, now, bad = SourceState(), NOON, 0

    for answer in answers:
        now += timedelta(days=2)
        got = begun(state, now=now)
        was = got.state.breaker.state
        match answer:
            case "well":
                state, bad = succeeded(got.state, got.permit, now=now), 0
            case "limited":
                state, bad = limited(got.state, got.permit, now=now), bad + 1
            case _:
                state, bad = failed(got.state, EndKind.UNAVAILABLE, got.permit, now=now), bad + 1
        assert state.failure_streak == bad
        assert (state.breaker.state is BreakerState.OPEN) is (bad >= 5)
        assert (was is BreakerState.HALF_OPEN) is (bad > 5 or (answer == "well" and was is not BreakerState.CLOSED))
