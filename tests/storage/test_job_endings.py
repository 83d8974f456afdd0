"""How jobs are let go of, in both databases: by their owner, by whoever buries it, and never by anybody else."""

from __future__ import annotations

import pytest
from sqlalchemy import Connection

from cormorant.rules.jobs.states import JobState
from storage.jobs import jobs, reports
from storage.jobs.jobs import JobEnd, Settled
from tests.storage.job_store import (
    NOW,
    STATES,
    at,
    hire,
    put,
    settle,
    show,
    take,
    take_one,
)


def test_a_completed_job_has_succeeded_and_has_no_owner(connection: Connection) -> None:
    put(connection)
    job = take_one(connection)

    settled = settle(connection, job, JobState.SUCCEEDED, now=at(3), run_at=at(99))

    view = show(connection, job.id)
    assert settled == [Settled(id=job.id, token=job.token, state=JobState.SUCCEEDED, attempts=0)]
    assert (view.state, view.owner, view.finished_at, view.run_at) == (JobState.SUCCEEDED, None, at(3), NOW)


def test_a_failed_attempt_is_tried_again_later_and_remembered(connection: Connection) -> None:
    put(connection)
    job = take_one(connection)

    settle(connection, job, JobState.RETRYABLE, uses_attempt=True, run_at=at(300), last_errors='[{"n":1}]')

    view = show(connection, job.id)
    assert (view.state, view.attempts, view.run_at) == (JobState.RETRYABLE, 1, at(300))
    assert (view.finished_at, view.last_errors) == (None, ({"n": 1},))
    assert take(connection, now=at(299)) == []
    assert take_one(connection, now=at(300)).last_errors == '[{"n":1}]'


def test_with_the_last_attempt_it_has_failed(connection: Connection) -> None:
    put(connection, max_attempts=3)
    states = []

    for _ in range(3):
        (settled,) = settle(connection, take_one(connection), JobState.RETRYABLE, uses_attempt=True)
        states.append((settled.state, settled.attempts))

    assert states == [(JobState.RETRYABLE, 1), (JobState.RETRYABLE, 2), (JobState.FAILED, 3)]
    assert take(connection) == []
    assert reports.recent(connection, limit=1)[0].finished_at == NOW


def test_a_snooze_and_a_release_use_no_attempt_however_often(connection: Connection) -> None:
    job_id = put(connection, max_attempts=1)

    for number in range(5):
        job = take_one(connection, now=at(number))
        assert settle(connection, job, JobState.PENDING, run_at=at(number + 1))[0].state is JobState.PENDING

    assert (show(connection, job_id).attempts, show(connection, job_id).run_at) == (0, at(5))


def test_a_job_that_gives_up_has_failed_at_once_and_keeps_its_error(connection: Connection) -> None:
    put(connection)
    job = take_one(connection)

    settle(connection, job, JobState.FAILED, last_errors='[{"why":"gone"}]', now=at(1))

    view = show(connection, job.id)
    assert (view.state, view.attempts, view.finished_at) == (JobState.FAILED, 0, at(1))
    assert view.last_errors == ({"why": "gone"},)


def test_errors_of_before_are_kept_when_there_is_no_new_one(connection: Connection) -> None:
    put(connection)
    settle(connection, take_one(connection), JobState.RETRYABLE, uses_attempt=True, last_errors='[{"n":1}]')

    settle(connection, take_one(connection), JobState.SUCCEEDED)

    assert reports.recent(connection, limit=1)[0].last_errors == ({"n": 1},)


def test_a_job_that_its_handler_cancelled_is_finished_and_drops_the_run_that_was_to_follow(
    connection: Connection,
) -> None:
    put(connection, dedupe_key="k", payload='"old"')
    job = take_one(connection)
    put(connection, dedupe_key="k", payload='"new"')

    settle(connection, job, JobState.CANCELLED, now=at(5))

    view = show(connection, job.id)
    assert (view.state, view.finished_at, view.owner) == (JobState.CANCELLED, at(5), None)
    assert (view.payload, view.runs_again) == ("old", False)
    assert jobs.prune(connection, state=JobState.CANCELLED, before=at(6), limit=9) == 1


@pytest.mark.parametrize(
    ("to", "uses_attempt"),
    [(JobState.SUCCEEDED, False), (JobState.FAILED, False), (JobState.RETRYABLE, True)],
    ids=["complete", "fail", "last retry"],
)
def test_what_was_enqueued_again_starts_afresh_instead_of_ending(
    connection: Connection, to: JobState, *, uses_attempt: bool
) -> None:
    put(connection, dedupe_key="k", payload='"old"', max_attempts=2)
    settle(connection, take_one(connection), JobState.RETRYABLE, uses_attempt=True)
    job = take_one(connection)
    put(connection, dedupe_key="k", payload='"new"')

    settled = settle(connection, job, to, uses_attempt=uses_attempt, now=at(7), run_at=at(300))

    view = show(connection, job.id)
    assert settled == [Settled(id=job.id, token=job.token, state=JobState.PENDING, attempts=0)]
    assert (view.payload, view.runs_again, view.run_at, view.finished_at) == ("new", False, at(7), None)


@pytest.mark.parametrize(("to", "attempts"), [(JobState.RETRYABLE, 1), (JobState.PENDING, 0)], ids=["retry", "snooze"])
def test_what_is_tried_again_has_the_newer_payload_and_keeps_its_count(
    connection: Connection, to: JobState, attempts: int
) -> None:
    put(connection, dedupe_key="k", payload='"old"')
    job = take_one(connection)
    put(connection, dedupe_key="k", payload='"new"')

    settle(connection, job, to, uses_attempt=to is JobState.RETRYABLE, run_at=at(60))

    view = show(connection, job.id)
    assert (view.state, view.attempts, view.run_at) == (to, attempts, at(60))
    assert (view.payload, view.runs_again) == ("new", False)


@pytest.mark.parametrize("to", [state for state in STATES if state is not JobState.RUNNING])
def test_another_owner_or_an_old_token_changes_nothing(connection: Connection, to: JobState) -> None:
    put(connection)
    stale = take_one(connection)
    settle(connection, stale, JobState.PENDING)
    job = take_one(connection)
    before = show(connection, job.id)

    assert settle(connection, stale, to, uses_attempt=True, last_errors="[]") == []
    assert settle(connection, job, to, owner="you", uses_attempt=True, last_errors="[]") == []

    assert show(connection, job.id) == before


@pytest.mark.parametrize("state", [state for state in STATES if state is not JobState.RUNNING])
def test_a_job_that_does_not_run_cannot_be_let_go_of(connection: Connection, state: JobState) -> None:
    put(connection)
    job = take_one(connection)
    settle(connection, job, state)
    before = show(connection, job.id)

    assert settle(connection, job, JobState.SUCCEEDED, now=at(1)) == []

    assert show(connection, job.id) == before


def test_of_many_endings_each_has_its_own_fate(connection: Connection) -> None:
    for _ in range(5):
        put(connection, max_attempts=1)
    done, tried, put_off, lost, kept = take(connection)
    jobs.cancel(connection, lost.id, now=NOW)

    settled = jobs.settle(
        connection,
        owner="me",
        endings=[
            JobEnd(id=lost.id, token=lost.token, to=JobState.SUCCEEDED),
            JobEnd(id=put_off.id, token=put_off.token, to=JobState.PENDING, run_at=at(9)),
            JobEnd(id=tried.id, token=tried.token, to=JobState.RETRYABLE, uses_attempt=True, last_errors="[1]"),
            JobEnd(id=done.id, token=done.token, to=JobState.SUCCEEDED),
        ],
        now=NOW,
    )

    fates = {done.id: JobState.SUCCEEDED, tried.id: JobState.FAILED, put_off.id: JobState.PENDING}
    assert {each.id: each.state for each in settled} == fates
    assert show(connection, lost.id).state is JobState.CANCELLED
    assert show(connection, kept.id).state is JobState.RUNNING
    assert jobs.settle(connection, owner="me", endings=[], now=NOW) == []


def test_who_stops_in_good_order_gives_everything_back_as_it_was(connection: Connection) -> None:
    hire(connection, "you")
    ids = [put(connection, run_at=at(-number)) for number in range(3)]
    theirs = take_one(connection, "you")
    take(connection)

    assert jobs.release_all(connection, owner="me", now=at(9)) == 2

    views = [show(connection, job_id) for job_id in ids if job_id != theirs.id]
    assert [(view.state, view.attempts, view.owner) for view in views] == [(JobState.PENDING, 0, None)] * 2
    assert [view.run_at for view in views] == [at(0), at(-1)]
    assert show(connection, theirs.id).owner == "you"


def test_the_jobs_of_the_dead_are_reclaimed_in_pages_oldest_first(connection: Connection) -> None:
    ids = [put(connection, correlation_id=f"c{number}") for number in range(5)]
    take(connection)

    pages = [jobs.reclaim(connection, owner="me", limit=2, now=at(9)) for _ in range(4)]

    assert [[job.id for job in page] for page in pages] == [ids[:2], ids[2:4], ids[4:], []]
    assert [job.correlation_id for job in pages[0]] == ["c0", "c1"]
    view = show(connection, ids[0])
    assert (view.state, view.attempts, view.reclaims, view.run_at) == (JobState.PENDING, 1, 1, at(9))


def test_a_job_that_dies_with_every_worker_ends_as_failed(connection: Connection) -> None:
    job_id = put(connection, max_attempts=2)

    reclaimed = []
    for _ in range(2):
        take(connection, now=at(9))
        reclaimed += jobs.reclaim(connection, owner="me", limit=9, now=at(9))

    view = show(connection, job_id)
    assert [(job.state, job.attempts) for job in reclaimed] == [(JobState.PENDING, 1), (JobState.FAILED, 2)]
    assert (view.state, view.reclaims, view.finished_at, view.owner) == (JobState.FAILED, 2, at(9), None)


def test_whoever_was_given_up_changes_nothing_any_more(connection: Connection) -> None:
    hire(connection, "heir")
    put(connection)
    stale = take_one(connection)
    jobs.reclaim(connection, owner="me", limit=9, now=NOW)
    heirs = take_one(connection, "heir")

    assert settle(connection, stale, JobState.SUCCEEDED) == []
    assert jobs.release_all(connection, owner="me", now=NOW) == 0
    assert jobs.reclaim(connection, owner="me", limit=9, now=NOW) == []

    assert show(connection, heirs.id).owner == "heir"
