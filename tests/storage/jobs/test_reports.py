"""What is told about jobs, in both databases: lists in pages, one job with its owner's heartbeat, counts, the stuck."""

from __future__ import annotations

from sqlalchemy import Connection

from cormorant.rules.jobs.states import JobState
from storage import pauses
from storage.jobs import reports, workers
from storage.jobs.reports import KindCount
from tests.storage.job_store import NOW, at, hire, put, put_in_state, settle, show, take, take_one


def test_the_newest_jobs_come_first_a_page_at_a_time(connection: Connection) -> None:
    ids = [put(connection) for _ in range(5)]

    first = reports.recent(connection, limit=2)
    second = reports.recent(connection, limit=2, before=first[-1].id)
    third = reports.recent(connection, limit=2, before=second[-1].id)

    assert [view.id for view in first + second + third] == ids[::-1]


def test_a_list_can_be_of_one_state_and_one_kind(connection: Connection) -> None:
    failed = put_in_state(connection, JobState.FAILED)
    put_in_state(connection, JobState.SUCCEEDED)
    waiting, other = put(connection), put(connection, "play")

    def ids(state: JobState | None = None, kind: str | None = None, before: int | None = None) -> list[int]:
        return [view.id for view in reports.recent(connection, state=state, kind=kind, before=before, limit=9)]

    assert ids(JobState.FAILED) == [failed]
    assert ids(JobState.PENDING) == [other, waiting]
    assert ids(JobState.PENDING, "work") == [waiting]
    assert ids(JobState.PENDING, before=other) == [waiting]
    assert ids(JobState.CANCELLED) == ids(kind="unheard of") == []


def test_the_heartbeat_of_a_job_is_its_owners(connection: Connection) -> None:
    job_id = put(connection)
    before = show(connection, job_id)
    take(connection)

    workers.beat(connection, "me", now=at(20))

    after = show(connection, job_id)
    assert (before.owner, before.heartbeat_at) == (None, None)
    assert (after.owner, after.heartbeat_at) == ("me", at(20))


def test_a_job_is_shown_with_its_errors_and_whether_it_runs_again(connection: Connection) -> None:
    job_id = put(connection, dedupe_key="k", payload='{"a":[1]}')
    settle(connection, take_one(connection), JobState.RETRYABLE, uses_attempt=True, last_errors='[{"type":"OSError"}]')
    take(connection)
    put(connection, dedupe_key="k")

    view = show(connection, job_id)

    assert (view.payload, view.runs_again, view.attempts) == ({"a": [1]}, True, 1)
    assert view.last_errors == ({"type": "OSError"},)


def test_a_job_that_is_not_there_is_not_shown(connection: Connection) -> None:
    assert reports.show(connection, 10**6) is None


def test_running_jobs_of_the_silent_the_dead_and_the_forgotten_are_stuck(connection: Connection) -> None:
    ids = []
    for owner in ("lively", "silent", "dead", "forgotten"):
        hire(connection, owner)
        ids.append(put(connection))
        take(connection, owner)
    put(connection)
    workers.beat(connection, "lively", now=at(100))
    workers.beat(connection, "dead", now=at(100))
    workers.mark_dead(connection, "dead", beat=1, now=at(100))
    workers.retire(connection, "forgotten")

    stuck = reports.owned_by_the_silent(connection, beat_before=at(50), limit=9)

    assert [view.id for view in stuck] == ids[1:]
    assert [view.heartbeat_at for view in stuck] == [NOW, at(100), None]
    assert len(reports.owned_by_the_silent(connection, beat_before=at(50), limit=2)) == 2


def test_jobs_are_counted_by_kind_and_state(connection: Connection) -> None:
    put_in_state(connection, JobState.SUCCEEDED)
    for number in range(3):
        put(connection, run_at=at(-number))
    pauses.pause(connection, "play", now=NOW)
    put(connection, "play")

    counted = reports.count_by_kind(connection)

    assert counted == [
        KindCount(kind="play", state=JobState.PENDING, held=True, count=1, oldest_run_at=NOW),
        KindCount(kind="work", state=JobState.PENDING, held=False, count=3, oldest_run_at=at(-2)),
        KindCount(kind="work", state=JobState.SUCCEEDED, held=False, count=1, oldest_run_at=NOW),
    ]


def test_of_the_waiting_only_those_count_that_could_run(connection: Connection) -> None:
    put_in_state(connection, JobState.RETRYABLE)
    put_in_state(connection, JobState.FAILED, priority=0)
    put(connection, run_at=at(999))
    put(connection, "rest")
    pauses.pause(connection, "play", now=NOW)
    put(connection, "play")

    assert reports.waiting_kinds(connection) == {"rest": 1, "work": 2}


def test_looking_at_jobs_changes_nothing(connection: Connection) -> None:
    put(connection)
    take(connection)
    before = reports.recent(connection, limit=9)

    reports.count_by_kind(connection)
    reports.waiting_kinds(connection)
    reports.owned_by_the_silent(connection, beat_before=at(9), limit=9)

    assert reports.recent(connection, limit=9) == before
