"""Paused kinds, in both databases: held wherever they come from, and free again when resumed."""

from __future__ import annotations

import pytest
from sqlalchemy import Connection

from cormorant.rules.jobs.states import JobState
from storage import pauses
from storage.jobs import jobs, reports
from tests.storage.job_store import NOW, at, put, put_in_state, settle, show, take, take_one


def pause(connection: Connection, kind: str = "work") -> None:
    """Pause a kind and hold all that there is of it."""
    pauses.pause(connection, kind, now=NOW)
    while pauses.hold_some(connection, limit=1000):
        pass


def resume(connection: Connection, kind: str = "work") -> None:
    pauses.resume(connection, kind)
    while pauses.free_some(connection, limit=1000):
        pass


def test_a_kind_can_be_paused_twice_and_resumed_once(connection: Connection) -> None:
    for kind in ("work", "play", "work"):
        pauses.pause(connection, kind, now=NOW)

    assert [*reports.pauses(connection).kinds_since] == ["play", "work"]
    assert [pauses.resume(connection, "work") for _ in range(2)] == [True, False]
    assert [*reports.pauses(connection).kinds_since] == ["play"]


def test_what_waits_is_held_in_pages_and_freed_in_pages(connection: Connection) -> None:
    for _ in range(5):
        put(connection)
    other = put(connection, "play")
    pauses.pause(connection, "work", now=NOW)

    held = [len(pauses.hold_some(connection, limit=2)) for _ in range(4)]
    claimed = take(connection, kinds=["work", "play"])
    pauses.resume(connection, "work")
    freed = [len(pauses.free_some(connection, limit=3)) for _ in range(3)]

    assert (held, freed) == ([2, 2, 1, 0], [3, 2, 0])
    assert [job.id for job in claimed] == [other]
    assert len(take(connection)) == 5


def test_what_is_enqueued_while_its_kind_is_paused_is_held(connection: Connection) -> None:
    pause(connection)
    held, free = put(connection, dedupe_key="k"), put(connection, "play")

    claimed = take(connection, kinds=["work", "play"])

    assert [job.id for job in claimed] == [free]
    assert show(connection, held).held
    assert put(connection, dedupe_key="k") == held
    resume(connection)
    assert [job.id for job in take(connection)] == [held]


@pytest.mark.parametrize("to", [JobState.PENDING, JobState.RETRYABLE])
def test_what_runs_goes_on_and_is_held_when_it_comes_back(connection: Connection, to: JobState) -> None:
    put(connection)
    job = take_one(connection)

    pause(connection)
    settle(connection, job, to)

    assert take(connection) == []
    resume(connection)
    assert take_one(connection).id == job.id


@pytest.mark.parametrize("how", ["runs again", "reclaimed", "released"])
def test_what_comes_back_otherwise_is_held_too(connection: Connection, how: str) -> None:
    put(connection, dedupe_key="k")
    job = take_one(connection)
    pause(connection)

    match how:
        case "runs again":
            put(connection, dedupe_key="k")
            settle(connection, job, JobState.SUCCEEDED)
        case "reclaimed":
            jobs.reclaim(connection, owner="me", limit=9, now=NOW)
        case _:
            jobs.release_all(connection, owner="me", now=NOW)

    assert (show(connection, job.id).state, show(connection, job.id).held) == (JobState.PENDING, True)
    assert take(connection) == []


def test_a_job_revived_while_its_kind_is_paused_is_held(connection: Connection) -> None:
    job_id = put_in_state(connection, JobState.FAILED)
    pause(connection)

    jobs.revive(connection, job_id, now=NOW)

    assert show(connection, job_id).held
    assert take(connection) == []


def test_a_job_that_failed_while_held_is_free_when_revived_after_the_pause(connection: Connection) -> None:
    put(connection)
    job = take_one(connection)
    pause(connection)
    settle(connection, job, JobState.FAILED)
    resume(connection)

    jobs.revive(connection, job.id, now=NOW)

    assert not show(connection, job.id).held
    assert take_one(connection).id == job.id


def test_held_jobs_wake_nobody_and_have_no_priority_in_use(connection: Connection) -> None:
    put(connection, run_at=at(5), priority=0)
    put(connection, "play", run_at=at(9), priority=5)

    pause(connection)

    assert jobs.next_due(connection, priorities=[0, 5], now=NOW) == at(9)
    assert jobs.priorities_in_use(connection) == [5]


def test_a_held_job_can_be_cancelled(connection: Connection) -> None:
    pause(connection)
    job_id = put(connection)

    jobs.cancel(connection, job_id, now=NOW)

    assert show(connection, job_id).state is JobState.CANCELLED
