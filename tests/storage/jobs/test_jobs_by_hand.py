"""What a person may do to a job, in both databases: cancel the living, revive the dead, discard the finished."""

from __future__ import annotations

import pytest
from sqlalchemy import Connection

from cormorant.rules.errors import IllegalChange, KeyTaken
from cormorant.rules.jobs.states import JobState
from storage.jobs import jobs, reports
from tests.storage.job_store import (
    NOW,
    STATES,
    at,
    put,
    put_in_state,
    settle,
    show,
    take_one,
)


@pytest.mark.parametrize("state", STATES)
def test_only_a_live_job_can_be_cancelled(connection: Connection, state: JobState) -> None:
    job_id = put_in_state(connection, state)

    if state in {JobState.PENDING, JobState.RETRYABLE, JobState.RUNNING}:
        jobs.cancel(connection, job_id, now=at(5))
        view = show(connection, job_id)
        assert (view.state, view.finished_at, view.owner) == (JobState.CANCELLED, at(5), None)
    else:
        with pytest.raises(IllegalChange, match=state.value):
            jobs.cancel(connection, job_id, now=at(5))


def test_a_cancel_drops_the_run_that_was_to_follow_and_the_result_of_this_one(connection: Connection) -> None:
    put(connection, dedupe_key="k", payload='"old"')
    job = take_one(connection)
    put(connection, dedupe_key="k", payload='"new"')

    jobs.cancel(connection, job.id, now=NOW)

    assert settle(connection, job, JobState.SUCCEEDED) == []
    view = show(connection, job.id)
    assert (view.state, view.payload, view.runs_again) == (JobState.CANCELLED, "old", False)


@pytest.mark.parametrize("state", STATES)
def test_only_a_failed_or_cancelled_job_can_be_revived(connection: Connection, state: JobState) -> None:
    job_id = put_in_state(connection, state, run_at=at(-60))

    if state in {JobState.FAILED, JobState.CANCELLED}:
        jobs.revive(connection, job_id, now=at(5))
        view = show(connection, job_id)
        assert (view.state, view.attempts, view.run_at) == (JobState.PENDING, 0, at(5))
        assert view.finished_at is None
    else:
        with pytest.raises(IllegalChange, match=state.value):
            jobs.revive(connection, job_id, now=at(5))


def test_a_job_whose_key_is_taken_cannot_be_revived_and_the_transaction_goes_on(connection: Connection) -> None:
    dead = put_in_state(connection, JobState.FAILED, dedupe_key="k")
    living = put(connection, dedupe_key="k")

    with pytest.raises(KeyTaken, match="another job"):
        jobs.revive(connection, dead, now=NOW)

    assert show(connection, dead).state is JobState.FAILED
    jobs.cancel(connection, living, now=NOW)
    jobs.revive(connection, dead, now=NOW)
    assert show(connection, dead).state is JobState.PENDING


def test_a_revived_job_runs_under_a_new_token(connection: Connection) -> None:
    put(connection)
    first = take_one(connection)
    jobs.cancel(connection, first.id, now=NOW)
    jobs.revive(connection, first.id, now=NOW)

    second = take_one(connection)

    assert second.token > first.token
    assert settle(connection, first, JobState.SUCCEEDED) == []


@pytest.mark.parametrize("state", STATES)
def test_only_a_finished_job_can_be_discarded(connection: Connection, state: JobState) -> None:
    job_id = put_in_state(connection, state)

    if state in {JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED}:
        jobs.discard(connection, job_id)
        assert reports.show(connection, job_id) is None
    else:
        with pytest.raises(IllegalChange, match=state.value):
            jobs.discard(connection, job_id)


def test_a_job_that_is_not_there_is_unknown(connection: Connection) -> None:
    with pytest.raises(IllegalChange, match="unknown"):
        jobs.cancel(connection, 10**6, now=NOW)
    with pytest.raises(IllegalChange, match="unknown"):
        jobs.revive(connection, 10**6, now=NOW)
    with pytest.raises(IllegalChange, match="unknown"):
        jobs.discard(connection, 10**6)


def test_the_number_of_a_job_is_never_used_again(connection: Connection) -> None:
    forgotten = put_in_state(connection, JobState.SUCCEEDED)
    jobs.discard(connection, forgotten)

    assert put(connection) > forgotten
