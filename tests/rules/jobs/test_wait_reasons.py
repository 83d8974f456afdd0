"""Why a job waits: every reason, in the order in which somebody would have to act."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cormorant.rules.jobs.states import WAITING, JobState
from cormorant.rules.jobs.wait_reasons import QueueFacts, WaitReason, wait_reasons_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(microseconds=1)
SERVED = QueueFacts(is_all_paused=False, kinds_served={"tidy"})
OTHERS = QueueFacts(is_all_paused=False, kinds_served={"mail"})
EMPTY = QueueFacts(is_all_paused=False, kinds_served=None)
PAUSED = QueueFacts(is_all_paused=True, kinds_served={"tidy"})


@pytest.mark.parametrize(
    ("state", "held", "run_at", "around", "reasons"),
    [
        (JobState.PENDING, False, NOW, SERVED, [WaitReason.TURN]),
        (JobState.RETRYABLE, False, NOW, SERVED, [WaitReason.TURN]),
        (JobState.PENDING, False, LATER, SERVED, [WaitReason.NOT_DUE]),
        (JobState.RETRYABLE, False, LATER, SERVED, [WaitReason.RETRY]),
        (JobState.PENDING, True, NOW, SERVED, [WaitReason.KIND_PAUSED]),
        (JobState.PENDING, False, NOW, PAUSED, [WaitReason.ALL_PAUSED]),
        (JobState.PENDING, False, NOW, OTHERS, [WaitReason.KIND_UNKNOWN]),
        (JobState.PENDING, False, NOW, EMPTY, [WaitReason.NOBODY]),
        (JobState.RETRYABLE, True, LATER, PAUSED, [WaitReason.KIND_PAUSED, WaitReason.ALL_PAUSED, WaitReason.RETRY]),
        (JobState.PENDING, True, LATER, EMPTY, [WaitReason.KIND_PAUSED, WaitReason.NOBODY, WaitReason.NOT_DUE]),
    ],
)
def test_each_reason_is_given_in_order(
    state: JobState, run_at: datetime, around: QueueFacts, reasons: list[WaitReason], *, held: bool
) -> None:
    assert list(wait_reasons_of("tidy", state, is_held=held, run_at=run_at, around=around, now=NOW)) == reasons


@given(
    state=st.sampled_from(JobState),
    held=st.booleans(),
    run_at=st.sampled_from([NOW, LATER]),
    around=st.sampled_from([SERVED, OTHERS, EMPTY, PAUSED]),
)
def test_whoever_waits_has_a_reason_and_nobody_else(
    state: JobState, run_at: datetime, around: QueueFacts, *, held: bool
) -> None:
    reasons = wait_reasons_of("tidy", state, is_held=held, run_at=run_at, around=around, now=NOW)

    assert bool(reasons) is (state in WAITING)
    assert WaitReason.TURN not in reasons or len(reasons) == 1
