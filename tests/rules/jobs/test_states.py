"""The states of a job: which changes are legal, where they lead, and how long a failed attempt waits."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cormorant.rules.errors import IllegalChange
from cormorant.rules.jobs.states import (
    FINISHED,
    LIVE,
    SPREAD,
    WAITING,
    JobState,
    RetryPolicy,
    Verb,
    allowed_from,
    delay_before_retry,
)
from tests.storage.jobs_model import AttemptCount, state_after

FRESH = AttemptCount(attempts=0, attempts_max=10)
ROUNDING = 1e-9
LAST = AttemptCount(attempts=9, attempts_max=10)

# (change, state before) -> state after, for a job with attempts left that nobody enqueued again. All others are illegal.
LEGAL = {
    (Verb.CLAIM, JobState.PENDING): JobState.RUNNING,
    (Verb.CLAIM, JobState.RETRYABLE): JobState.RUNNING,
    (Verb.COMPLETE, JobState.RUNNING): JobState.SUCCEEDED,
    (Verb.RETRY, JobState.RUNNING): JobState.RETRYABLE,
    (Verb.SNOOZE, JobState.RUNNING): JobState.PENDING,
    (Verb.FAIL, JobState.RUNNING): JobState.FAILED,
    (Verb.RECLAIM, JobState.RUNNING): JobState.PENDING,
    (Verb.RELEASE, JobState.RUNNING): JobState.PENDING,
    (Verb.CANCEL, JobState.PENDING): JobState.CANCELLED,
    (Verb.CANCEL, JobState.RETRYABLE): JobState.CANCELLED,
    (Verb.CANCEL, JobState.RUNNING): JobState.CANCELLED,
    (Verb.REVIVE, JobState.FAILED): JobState.PENDING,
    (Verb.REVIVE, JobState.CANCELLED): JobState.PENDING,
}
ILLEGAL = [(verb, state) for verb in Verb for state in JobState if (verb, state) not in LEGAL]

policies = st.builds(RetryPolicy, base_s=st.floats(0.001, 1e6), cap_s=st.floats(0.001, 1e7))
jitters = st.floats(0, 1, exclude_max=True)


@pytest.mark.parametrize(("verb", "state"), LEGAL)
def test_a_legal_change_leads_where_the_table_says(verb: Verb, state: JobState) -> None:
    assert state_after(verb, state, effort=FRESH) is LEGAL[verb, state]


@pytest.mark.parametrize(("verb", "state"), ILLEGAL)
def test_an_illegal_change_is_refused_and_says_what_and_from_where(verb: Verb, state: JobState) -> None:
    with pytest.raises(IllegalChange) as refused:
        state_after(verb, state, effort=FRESH)

    assert (refused.value.verb, refused.value.state) == (verb.value, state.value)
    assert state.value in str(refused.value)
    assert verb.value in str(refused.value)


def test_every_state_is_either_waiting_or_running_or_finished() -> None:
    assert sorted([*WAITING, JobState.RUNNING, *FINISHED]) == sorted(JobState)
    assert WAITING | {JobState.RUNNING} == LIVE
    assert all(allowed_from(verb) for verb in Verb)


@pytest.mark.parametrize("verb", [Verb.RETRY, Verb.RECLAIM])
def test_the_last_attempt_ends_the_job_as_failed(verb: Verb) -> None:
    assert state_after(verb, JobState.RUNNING, effort=LAST) is JobState.FAILED


def test_a_job_that_never_started_is_reclaimed_however_often() -> None:
    worn_out = AttemptCount(attempts=100, attempts_max=10)

    assert state_after(Verb.RECLAIM, JobState.RUNNING, effort=worn_out, started=False) is JobState.PENDING


@pytest.mark.parametrize("verb", [Verb.SNOOZE, Verb.RELEASE, Verb.COMPLETE])
def test_a_change_that_uses_no_attempt_never_fails_the_job(verb: Verb) -> None:
    worn_out = AttemptCount(attempts=100, attempts_max=10)

    assert state_after(verb, JobState.RUNNING, effort=worn_out) is LEGAL[verb, JobState.RUNNING]


@pytest.mark.parametrize("verb", [Verb.COMPLETE, Verb.FAIL, Verb.RETRY, Verb.RECLAIM])
def test_a_job_that_was_enqueued_again_starts_afresh_instead_of_ending(verb: Verb) -> None:
    assert state_after(verb, JobState.RUNNING, effort=LAST, runs_again=True) is JobState.PENDING


def test_a_cancelled_job_does_not_run_again() -> None:
    after = state_after(Verb.CANCEL, JobState.RUNNING, effort=FRESH, runs_again=True)

    assert after is JobState.CANCELLED


@pytest.mark.slow("a hundred combinations")
@given(st.sampled_from(Verb), st.sampled_from(JobState), st.integers(0, 20), st.integers(1, 20), st.data())
def test_only_an_owner_who_is_done_or_a_cancel_ends_a_job(
    verb: Verb, state: JobState, attempts: int, attempts_max: int, data: st.DataObject
) -> None:
    effort = AttemptCount(attempts=attempts, attempts_max=attempts_max)
    started, runs_again = data.draw(st.booleans()), data.draw(st.booleans())
    if state not in allowed_from(verb):
        return

    after = state_after(verb, state, effort=effort, started=started, runs_again=runs_again)

    uses_last = verb in {Verb.RETRY, Verb.RECLAIM} and attempts + 1 >= attempts_max
    if after in FINISHED:
        assert verb in {Verb.COMPLETE, Verb.FAIL, Verb.CANCEL} or uses_last
        assert verb is Verb.CANCEL or not runs_again


@pytest.mark.slow("a hundred policies")
@given(policies, st.integers(1, 10**9), jitters)
@example(RetryPolicy(base_s=300.0, cap_s=171.7), 9, 1 - 2**-53)
def test_a_delay_is_within_a_fifth_of_its_step_and_never_over_the_cap(
    policy: RetryPolicy, attempts: int, jitter: float
) -> None:
    delay_s = delay_before_retry(policy, attempts=attempts, jitter=jitter)

    middle_s = delay_before_retry(policy, attempts=attempts, jitter=0.5)
    assert 0 < delay_s <= policy.cap_s
    assert (1 - SPREAD) * middle_s * (1 - ROUNDING) <= delay_s <= (1 + SPREAD) * middle_s * (1 + ROUNDING)


@pytest.mark.slow("a hundred policies")
@given(policies, st.integers(1, 10_000), jitters, jitters)
def test_a_delay_never_shrinks_with_more_attempts_or_more_jitter(
    policy: RetryPolicy, attempts: int, one: float, other: float
) -> None:
    low, high = sorted((one, other))

    first = delay_before_retry(policy, attempts=attempts, jitter=low)

    assert delay_before_retry(policy, attempts=attempts, jitter=high) >= first
    assert delay_before_retry(policy, attempts=attempts + 1, jitter=low) >= first


@pytest.mark.slow("a hundred policies")
@given(policies, st.integers(1, 30))
def test_below_the_cap_each_delay_is_twice_the_one_before(policy: RetryPolicy, attempts: int) -> None:
    this_s = delay_before_retry(policy, attempts=attempts, jitter=0.5)
    next_s = delay_before_retry(policy, attempts=attempts + 1, jitter=0.5)

    if next_s < policy.cap_s / (1 + SPREAD):
        assert next_s == pytest.approx(2 * this_s)


def test_the_first_retry_comes_after_four_to_six_minutes() -> None:
    policy = RetryPolicy()

    assert delay_before_retry(policy, attempts=1, jitter=0.0) == pytest.approx(240)
    assert delay_before_retry(policy, attempts=1, jitter=1.0) == pytest.approx(360)


def test_jobs_at_the_cap_do_not_come_back_together() -> None:
    policy = RetryPolicy()

    at_the_cap = {delay_before_retry(policy, attempts=50, jitter=n / 10) for n in range(10)}

    assert len(at_the_cap) == 10
