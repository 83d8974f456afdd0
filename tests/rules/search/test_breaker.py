"""The breaker: a table of its changes, and a machine of requests that end late, out of order or never."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from cormorant.rules.search.breaker import (
    FAILURES_MAX,
    OPEN_S,
    PROBES_MAX,
    Breaker,
    BreakerState,
    closed_after_success,
    opened_after_failure,
)
from cormorant.rules.search.limits import Lane, SourceLimits
from cormorant.rules.search.priorities import Priority
from cormorant.rules.search.reasons import NextRequest, ReasonName
from cormorant.rules.search.reservations import (
    EndKind,
    RequestPermit,
    Reserved,
    SourceClosedNow,
    reserve,
    reset_breaker,
    reset_cooldown,
)
from cormorant.rules.search.source_state import SourceState
from tests.rules.search.request_ends import failed, limited, succeeded

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
FREE = SourceLimits(spacing_s=0, pace_s=0, in_flight_max=100)
LEASE_S = 60
CLOSED, OPEN, HALF_OPEN = BreakerState


@pytest.mark.parametrize(
    ("state", "failures", "after_success", "after_failure"),
    [
        (CLOSED, 0, (CLOSED, 0), (CLOSED, 1)),
        (CLOSED, 3, (CLOSED, 0), (CLOSED, 4)),
        (CLOSED, 4, (CLOSED, 0), (OPEN, 0)),
        (HALF_OPEN, 0, (CLOSED, 0), (OPEN, 0)),
    ],
)
def test_what_one_answer_changes(
    state: BreakerState,
    failures: int,
    after_success: tuple[BreakerState, int],
    after_failure: tuple[BreakerState, int],
) -> None:
    breaker = Breaker(state=state, failures=failures)

    well, ill = closed_after_success(breaker), opened_after_failure(breaker, at=NOON)

    assert (well.state, well.failures) == after_success
    assert (ill.state, ill.failures) == after_failure
    assert all((after.generation > 0) is (after.state is not state) for after in (well, ill))


def ask(state: SourceState, now: datetime) -> Reserved | SourceClosedNow:
    return reserve(state, FREE, NextRequest(lane=Lane.QUERY, priority=Priority.RSS), now=now, edges={}, lease_s=LEASE_S)


def open_breaker() -> SourceState:
    state = SourceState()
    for _ in range(FAILURES_MAX):
        got = ask(state, NOON)
        assert isinstance(got, Reserved)
        state = failed(got.state, EndKind.UNAVAILABLE, got.permit, now=NOON)
    return state


def test_five_failures_in_a_row_close_the_source_for_300_s() -> None:
    state = open_breaker()

    got = ask(state, NOON + timedelta(seconds=OPEN_S) - timedelta.resolution)

    assert isinstance(got, SourceClosedNow)
    assert [gate.name for gate in got.reasons] == [ReasonName.BREAKER]
    assert got.opens_at == NOON + timedelta(seconds=OPEN_S)
    assert isinstance(ask(state, got.opens_at), Reserved)


def test_three_probes_go_and_the_fourth_when_one_of_them_has_expired() -> None:
    state, now = open_breaker(), NOON + timedelta(seconds=OPEN_S)
    for second in range(PROBES_MAX):
        got = ask(state, now + timedelta(seconds=second))
        assert isinstance(got, Reserved)
        state = got.state

    refused = ask(state, now + timedelta(seconds=3))

    assert isinstance(refused, SourceClosedNow)
    assert refused.opens_at is None
    assert refused.recheck_at == now + timedelta(seconds=LEASE_S)
    assert isinstance(ask(state, refused.recheck_at), Reserved)


def test_the_answer_to_a_request_made_before_the_breaker_opened_changes_nothing() -> None:
    early = ask(SourceState(), NOON)
    assert isinstance(early, Reserved)
    state = early.state
    for _ in range(FAILURES_MAX):
        got = ask(state, NOON)
        assert isinstance(got, Reserved)
        state = reset_cooldown(limited(got.state, got.permit, now=NOON))

    late = succeeded(state, early.permit, now=NOON)

    assert late.breaker == state.breaker
    assert late.breaker.state is OPEN
    assert late.cooldown == state.cooldown
    assert late.query.in_flight == ()


class Requests(RuleBasedStateMachine):
    """Requests that are let through, and answer in any order, late or never."""

    @initialize()
    def begin(self) -> None:
        self.now = NOON
        self.state = SourceState()
        self.running: list[RequestPermit] = []

    @rule(seconds=st.integers(0, 400))
    def wait(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    @rule()
    def ask(self) -> None:
        breaker = self.state.breaker
        got = ask(self.state, self.now)
        if isinstance(got, Reserved):
            assert breaker.state is not OPEN or breaker.open_until is None or self.now >= breaker.open_until
            self.state = got.state
            self.running.append(got.permit)
        else:
            assert breaker.state is not CLOSED

    @precondition(lambda self: self.running)
    @rule(data=st.data(), answer=st.sampled_from(["well", "ill", "limited", "ours", "lost"]))
    def answer(self, data: st.DataObject, answer: str) -> None:
        permit = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        before = self.state
        match answer:
            case "well":
                self.state = succeeded(before, permit, now=self.now)
            case "ill":
                self.state = failed(before, EndKind.UNAVAILABLE, permit, now=self.now)
            case "limited":
                self.state = reset_cooldown(limited(before, permit, now=self.now))
            case "ours":
                self.state = failed(before, EndKind.OURS, permit, now=self.now)
            case _:
                pass
        if permit.generation != before.generation:
            assert self.state.breaker == before.breaker
            assert self.state.failure_streak == before.failure_streak
        elif answer == "well":
            assert (self.state.breaker.state, self.state.failure_streak) == (CLOSED, 0)
        elif answer in {"ill", "limited"}:
            was_on_the_edge = before.breaker.state is HALF_OPEN or before.breaker.failures == FAILURES_MAX - 1
            assert (self.state.breaker.state is OPEN) is was_on_the_edge

    @rule()
    def reset(self) -> None:
        self.state = reset_breaker(self.state)

    @invariant()
    def never_more_probes_than_allowed_nor_a_closed_source_for_ever(self) -> None:
        breaker = self.state.breaker
        assert len(breaker.probes_out(self.now)) <= PROBES_MAX
        assert breaker.failures < FAILURES_MAX
        assert (breaker.state is OPEN) is (breaker.open_until is not None)
        far = self.now + timedelta(seconds=OPEN_S + LEASE_S)
        assert isinstance(ask(self.state, far), Reserved)


@pytest.mark.slow("dozens of histories of forty steps")
def test_no_history_of_answers_breaks_the_breaker() -> None:
    run_state_machine_as_test(Requests, settings=settings(max_examples=60, stateful_step_count=40, deadline=None))
