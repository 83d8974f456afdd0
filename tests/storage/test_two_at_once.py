"""Two processes change the same jobs at the same moment: PostgreSQL lets the second wait, and it must look again then."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import pytest
from sqlalchemy import Connection, text

from cormorant.rules.jobs.states import JobState
from storage import pauses
from storage.jobs import jobs, reports, workers
from storage.jobs.batch import Batch, leave, run_batch
from tests.bounds import WAIT_S
from tests.storage.job_store import NOW, PRIORITIES, JobStore, at, hire, new_job, put, put_in_state, show, take

T = TypeVar("T")

IS_WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


def after(store: JobStore, first: Callable[[Connection], object], second: Callable[[Connection], T]) -> T:
    """What the second gets that had to wait for the first to commit."""
    with ThreadPoolExecutor(max_workers=1) as pool, store.begin() as connection:
        first(connection)
        waiting: Future[T] = pool.submit(_run, store, second)
        while not waiting.done() and not _somebody_waits(store):
            time.sleep(0.005)
        connection.commit()
        return waiting.result(timeout=WAIT_S)


def _somebody_waits(store: JobStore) -> bool:
    # In a transaction of its own: within one PostgreSQL shows the same moment for ever.
    with store.begin() as connection:
        return bool(connection.execute(text(IS_WAITING)).scalar())


def _run(store: JobStore, function: Callable[[Connection], T]) -> T:
    with store.begin() as connection:
        return function(connection)


def test_two_sweepers_that_reclaim_from_one_owner_count_one_attempt(postgres_jobs: JobStore) -> None:
    def reclaim(connection: Connection) -> list[int]:
        return [job.id for job in jobs.reclaim(connection, owner="me", limit=10, now=NOW)]

    with postgres_jobs.begin() as connection:
        hire(connection)
        job_id = put(connection)
        take(connection)

    assert after(postgres_jobs, reclaim, reclaim) == []

    with postgres_jobs.begin() as connection:
        assert (show(connection, job_id).attempts, show(connection, job_id).reclaims) == (1, 1)


@pytest.mark.parametrize("is_claimed", [False, True])
def test_a_job_whose_first_try_commits_while_it_is_enqueued_again_is_there_once(
    postgres_jobs: JobStore, *, is_claimed: bool
) -> None:
    job = new_job()

    def enqueue(connection: Connection) -> None:
        jobs.enqueue(connection, job, now=NOW)
        if is_claimed:  # where the index of those that wait has it no more
            hire(connection)
            take(connection)

    again = after(postgres_jobs, enqueue, lambda connection: jobs.enqueue_again(connection, job, now=NOW))

    assert again.state is (JobState.RUNNING if is_claimed else JobState.PENDING)
    with postgres_jobs.begin() as connection:
        assert [each.id for each in reports.recent(connection, limit=9)] == [again.id]


def test_a_job_that_is_revived_while_it_is_pruned_is_kept(postgres_jobs: JobStore) -> None:
    with postgres_jobs.begin() as connection:
        hire(connection)
        job_id = put_in_state(connection, JobState.FAILED)

    pruned = after(
        postgres_jobs,
        lambda connection: jobs.revive(connection, job_id, now=NOW),
        lambda connection: jobs.prune(connection, state=JobState.FAILED, before=at(1000), limit=10),
    )

    assert pruned == 0
    with postgres_jobs.begin() as connection:
        assert show(connection, job_id).state is JobState.PENDING


def errand(*, room: int) -> Batch:
    return Batch(owner="me", endings=[], kinds=["work"], priorities=PRIORITIES, room=room, now=NOW)


def test_a_claim_that_is_still_under_way_when_its_owner_leaves_is_given_back(postgres_jobs: JobStore) -> None:
    """The line was cut at its COMMIT, so that the owner does not know of it."""
    with postgres_jobs.begin() as connection:
        hire(connection)
        job_id = put(connection)

    after(
        postgres_jobs,
        lambda connection: run_batch(connection, errand(room=5)),
        lambda connection: leave(connection, errand(room=0), is_orderly=True),
    )

    with postgres_jobs.begin() as connection:
        assert workers.all_workers(connection) == []
        assert (show(connection, job_id).state, show(connection, job_id).owner) == (JobState.PENDING, None)


def test_a_claim_that_comes_while_its_owner_leaves_finds_nothing(postgres_jobs: JobStore) -> None:
    with postgres_jobs.begin() as connection:
        hire(connection)
        job_id = put(connection)

    harvest = after(
        postgres_jobs,
        lambda connection: leave(connection, errand(room=0), is_orderly=True),
        lambda connection: run_batch(connection, errand(room=5)),
    )

    assert harvest.claimed == []
    with postgres_jobs.begin() as connection:
        assert show(connection, job_id).state is JobState.PENDING


def test_who_holds_jobs_while_their_kind_is_resumed_holds_none(postgres_jobs: JobStore) -> None:
    def resume(connection: Connection) -> None:
        pauses.resume(connection, "work")
        connection.execute(text("UPDATE jobs SET held = false"))

    with postgres_jobs.begin() as connection:
        job_id = put(connection)
        pauses.pause(connection, "work", now=NOW)

    held = after(postgres_jobs, resume, lambda connection: pauses.hold_some(connection, limit=100))

    assert held == []
    with postgres_jobs.begin() as connection:
        assert not show(connection, job_id).held


def test_who_frees_jobs_while_their_kind_is_paused_frees_none(postgres_jobs: JobStore) -> None:
    def pause(connection: Connection) -> None:
        pauses.pause(connection, "work", now=NOW)
        connection.execute(text("UPDATE jobs SET held = true"))

    with postgres_jobs.begin() as connection:
        pauses.pause(connection, "work", now=NOW)
        job_id = put(connection)
        pauses.resume(connection, "work")

    freed = after(postgres_jobs, pause, lambda connection: pauses.free_some(connection, limit=100))

    assert freed == []
    with postgres_jobs.begin() as connection:
        assert show(connection, job_id).held
