"""Why a job waits: every reason, in the order in which somebody would have to act."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cormorant.rules.jobs.states import WAITING, JobState
from cormorant.rules.jobs.wait_reasons import Gate, Surroundings, gates_before

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(microseconds=1)
SERVED = Surroundings(is_all_paused=False, kinds_served={"tidy"})
OTHERS = Surroundings(is_all_paused=False, kinds_served={"mail"})
EMPTY = Surroundings(is_all_paused=False, kinds_served=None)
PAUSED = Surroundings(is_all_paused=True, kinds_served={"tidy"})


@pytest.mark.parametrize(
    ("state", "held", "run_at", "around", "gates"),
    [
        (JobState.PENDING, False, NOW, SERVED, [Gate.TURN]),
        (JobState.RETRYABLE, False, NOW, SERVED, [Gate.TURN]),
        (JobState.PENDING, False, LATER, SERVED, [Gate.NOT_DUE]),
        (JobState.RETRYABLE, False, LATER, SERVED, [Gate.RETRY]),
        (JobState.PENDING, True, NOW, SERVED, [Gate.KIND_PAUSED]),
        (JobState.PENDING, False, NOW, PAUSED, [Gate.ALL_PAUSED]),
        (JobState.PENDING, False, NOW, OTHERS, [Gate.KIND_UNKNOWN]),
        (JobState.PENDING, False, NOW, EMPTY, [Gate.NOBODY]),
        (JobState.RETRYABLE, True, LATER, PAUSED, [Gate.KIND_PAUSED, Gate.ALL_PAUSED, Gate.RETRY]),
        (JobState.PENDING, True, LATER, EMPTY, [Gate.KIND_PAUSED, Gate.NOBODY, Gate.NOT_DUE]),
    ],
)
def test_each_reason_is_given_in_order(
    state: JobState, run_at: datetime, around: Surroundings, gates: list[Gate], *, held: bool
) -> None:
    assert list(gates_before("tidy", state, is_held=held, run_at=run_at, around=around, now=NOW)) == gates


@given(
    state=st.sampled_from(JobState),
    held=st.booleans(),
    run_at=st.sampled_from([NOW, LATER]),
    around=st.sampled_from([SERVED, OTHERS, EMPTY, PAUSED]),
)
def test_whoever_waits_has_a_reason_and_nobody_else(
    state: JobState, run_at: datetime, around: Surroundings, *, held: bool
) -> None:
    gates = gates_before("tidy", state, is_held=held, run_at=run_at, around=around, now=NOW)

    assert bool(gates) is (state in WAITING)
    assert Gate.TURN not in gates or len(gates) == 1
