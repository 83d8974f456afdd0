"""What is ours, and what have we written? After a COMMIT in doubt, and after others have changed our jobs."""

from __future__ import annotations

from datetime import datetime

import pytest
from sqlalchemy import Connection

from cormorant.rules.jobs.states import JobState
from storage.jobs import jobs, workers
from storage.jobs.batch import Batch, leave, reconcile
from storage.jobs.jobs import ClaimedJob, JobEnd, Settled
from tests.storage.job_store import NOW, at, hire, put, settle, show, take, take_one


def errand(*done: ClaimedJob, owner: str = "me", now: datetime = NOW) -> Batch:
    """What lets go of jobs that are done."""
    claims = [(job.id, job.token) for job in done]
    return Batch(owner=owner, done=claims, endings=[], kinds=[], priorities=[], room=0, now=now)


def done(job: ClaimedJob, to: JobState = JobState.SUCCEEDED, *, uses_attempt: bool = False) -> JobEnd:
    return JobEnd(id=job.id, token=job.token, to=to, attempts=job.attempts, uses_attempt=uses_attempt)


def test_what_an_earlier_commit_wrote_is_told_from_what_it_did_not(connection: Connection) -> None:
    for number in range(3):
        put(connection, run_at=at(-number))
    claimed_since, still_ours, written = take(connection)
    settle(connection, written, JobState.RETRYABLE, uses_attempt=True, run_at=at(60))
    settle(connection, claimed_since, JobState.PENDING)
    take(connection)
    endings = [done(job, JobState.RETRYABLE, uses_attempt=True) for job in (claimed_since, still_ours, written)]

    found = jobs.settled_before(connection, endings)

    assert found == [Settled(id=written.id, token=written.token, state=JobState.RETRYABLE, attempts=1)]
    assert jobs.settled_before(connection, []) == []


@pytest.mark.parametrize(
    ("to", "uses_attempt"),
    [
        (JobState.SUCCEEDED, False),
        (JobState.FAILED, False),
        (JobState.CANCELLED, False),
        (JobState.PENDING, False),
        (JobState.RETRYABLE, True),
    ],
)
@pytest.mark.parametrize("max_attempts", [1, 3])
@pytest.mark.parametrize("is_enqueued_again", [False, True])
def test_every_ending_is_recognised(
    connection: Connection, to: JobState, max_attempts: int, *, uses_attempt: bool, is_enqueued_again: bool
) -> None:
    put(connection, dedupe_key="k", max_attempts=max_attempts)
    job = take_one(connection)
    if is_enqueued_again:
        put(connection, dedupe_key="k")
    (settled,) = settle(connection, job, to, uses_attempt=uses_attempt)

    assert jobs.settled_before(connection, [done(job, to, uses_attempt=uses_attempt)]) == [settled]


@pytest.mark.parametrize("to", [JobState.SUCCEEDED, JobState.FAILED, JobState.PENDING, JobState.RETRYABLE])
@pytest.mark.parametrize("what", ["cancel", "reclaim"])
def test_what_others_did_to_a_job_is_not_taken_for_our_ending(connection: Connection, to: JobState, what: str) -> None:
    put(connection)
    job = take_one(connection)
    if what == "cancel":
        jobs.cancel(connection, job.id, now=NOW)
    else:
        jobs.reclaim(connection, owner="me", limit=9, now=NOW)

    assert jobs.settled_before(connection, [done(job, to, uses_attempt=to is JobState.RETRYABLE)]) == []


def test_a_result_that_was_never_in_doubt_is_not_looked_for(connection: Connection) -> None:
    put(connection)
    job = take_one(connection)
    jobs.cancel(connection, job.id, now=NOW)

    cleared = reconcile(connection, errand(job), known=set())

    assert (list(cleared.completed), cleared.settled) == ([], [])


def test_what_an_owner_was_given_without_knowing_is_given_back(connection: Connection) -> None:
    for _ in range(3):
        put(connection)
    known, *unknown = take(connection)

    owned = jobs.release_unknown(connection, owner="me", known={(known.id, known.token), (10**6, 1)}, now=at(1))

    assert owned == {(job.id, job.token) for job in (known, *unknown)}
    assert [show(connection, job.id).state for job in unknown] == [JobState.PENDING] * 2
    assert show(connection, known.id).owner == "me"


def test_the_old_run_of_a_job_that_was_claimed_anew_is_lost_and_the_new_one_is_not(connection: Connection) -> None:
    put(connection)
    old = take_one(connection)
    assert jobs.cancel(connection, old.id, now=NOW) == old.token
    jobs.revive(connection, old.id, now=NOW)
    new = take_one(connection)
    known = {(job.id, job.token) for job in (old, new)}

    cleared = reconcile(connection, errand(), known=known)

    assert new.token == old.token + 1
    assert (cleared.lost, cleared.cancelled) == ({(old.id, old.token)}, set())
    assert show(connection, new.id).owner == "me"


def test_of_two_runs_of_a_job_that_end_together_the_newer_one_counts(connection: Connection) -> None:
    put(connection)
    old = take_one(connection)
    jobs.cancel(connection, old.id, now=NOW)
    jobs.revive(connection, old.id, now=NOW)
    new = take_one(connection)

    cleared = reconcile(connection, errand(old, new), known=set())

    told = {*cleared.completed, *((each.id, each.token) for each in cleared.settled)}
    assert told == {(new.id, new.token)}
    assert show(connection, new.id).state is JobState.SUCCEEDED


def test_only_those_of_the_lost_are_told_as_cancelled_that_were(connection: Connection) -> None:
    for _ in range(3):
        put(connection)
    cancelled, reclaimed, kept = take(connection)
    jobs.cancel(connection, cancelled.id, now=NOW)
    settle(connection, reclaimed, JobState.PENDING)

    cleared = reconcile(connection, errand(), known={(job.id, job.token) for job in (cancelled, reclaimed, kept)})

    assert cleared.lost == {(cancelled.id, cancelled.token), (reclaimed.id, reclaimed.token)}
    assert cleared.cancelled == {(cancelled.id, cancelled.token)}


@pytest.mark.parametrize(("is_orderly", "attempts"), [(True, 0), (False, 1)])
def test_who_leaves_gives_back_what_is_not_done(connection: Connection, attempts: int, *, is_orderly: bool) -> None:
    hire(connection, "you")
    for _ in range(2):
        put(connection)
    finished, unfinished = take(connection)

    harvest = leave(connection, errand(finished), is_orderly=is_orderly)

    assert list(harvest.completed) == [(finished.id, finished.token)]
    view = show(connection, unfinished.id)
    assert (view.state, view.attempts) == (JobState.PENDING, attempts)
    assert [worker.id for worker in workers.all_workers(connection)] == ["you"]
