"""How jobs come in and who gets them, in both databases: joined by key, claimed in order, never by two."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.exc import IntegrityError, OperationalError

from cormorant.rules.errors import TextRefused
from cormorant.rules.jobs.states import JobState
from storage.jobs import jobs, reports
from tests.storage.job_store import (
    NOW,
    STATES,
    JobStore,
    at,
    hire,
    new_job,
    put,
    put_in_state,
    settle,
    show,
    take,
    take_one,
)


def test_a_job_is_kept_as_it_was_enqueued(connection: Connection) -> None:
    job = new_job(payload='{"a":"\\ud800 \U0001f426"}', priority=10, run_at=at(60), dedupe_key="k", correlation_id="c")

    done = jobs.enqueue(connection, job, now=NOW)

    view = show(connection, done.id)
    assert (done.state, done.joined) == (JobState.PENDING, False)
    assert (view.uid, view.kind, view.priority, view.run_at) == (job.uid, "work", 10, at(60))
    assert (view.payload, view.dedupe_key, view.correlation_id) == ({"a": "\ud800 \U0001f426"}, "k", "c")
    assert (view.attempts, view.max_attempts, view.reclaims, view.held) == (0, 3, 0, False)
    assert (view.enqueued_at, view.claimed_at, view.finished_at, view.owner) == (NOW, None, None, None)


def test_jobs_without_a_key_never_join(connection: Connection) -> None:
    first, second = (jobs.enqueue(connection, new_job(), now=NOW) for _ in range(2))

    assert first.id != second.id
    assert not second.joined


@pytest.mark.parametrize("state", [JobState.PENDING, JobState.RETRYABLE])
def test_a_waiting_job_takes_over_the_payload_of_one_with_its_key(connection: Connection, state: JobState) -> None:
    job_id = put_in_state(connection, state, dedupe_key="k", payload='"old"')

    joined = jobs.enqueue(connection, new_job(dedupe_key="k", payload='"new"', run_at=at(99), priority=0), now=NOW)

    view = show(connection, job_id)
    assert (joined.id, joined.joined, joined.state) == (job_id, True, state)
    assert (view.payload, view.runs_again) == ("new", False)
    assert (view.run_at, view.priority) == (NOW, 5)


def test_a_running_job_with_the_key_keeps_its_payload_and_runs_again_with_the_last_one(connection: Connection) -> None:
    job_id = put_in_state(connection, JobState.RUNNING, dedupe_key="k", payload='"old"')

    for payload in ('"new"', '"newer"'):
        assert jobs.enqueue(connection, new_job(dedupe_key="k", payload=payload), now=NOW).joined

    assert (show(connection, job_id).payload, show(connection, job_id).runs_again) == ("old", True)
    jobs.release_all(connection, owner="me", now=NOW)
    assert show(connection, job_id).payload == "newer"


@pytest.mark.parametrize("state", [JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED])
def test_the_key_of_a_finished_job_is_free(connection: Connection, state: JobState) -> None:
    job_id = put_in_state(connection, state, dedupe_key="k")

    fresh = jobs.enqueue(connection, new_job(dedupe_key="k"), now=NOW)

    assert not fresh.joined
    assert fresh.id > job_id


def test_the_same_key_of_another_kind_is_another_job(connection: Connection) -> None:
    put(connection, "work", dedupe_key="k")

    assert not jobs.enqueue(connection, new_job("play", dedupe_key="k"), now=NOW).joined


@pytest.mark.parametrize("words", [{"kind": "a\0b"}, {"dedupe_key": "a\0b"}, {"correlation_id": "\ud800"}])
def test_a_text_that_not_every_database_keeps_is_refused(connection: Connection, words: dict[str, Any]) -> None:
    with pytest.raises(TextRefused):
        put(connection, **words)

    assert reports.recent(connection, limit=9) == []


def test_a_job_is_found_by_its_uid_and_the_same_uid_is_no_second_job(connection: Connection) -> None:
    job = new_job()
    done = jobs.enqueue(connection, job, now=NOW)

    with pytest.raises(IntegrityError), connection.begin_nested():
        jobs.enqueue(connection, job, now=NOW)

    assert jobs.find(connection, job.uid) == done
    assert jobs.find(connection, "another") is None


@pytest.mark.parametrize("state", STATES)
def test_what_an_earlier_try_has_enqueued_is_not_enqueued_again_whatever_became_of_it(
    connection: Connection, state: JobState
) -> None:
    job = new_job()
    job_id = put_in_state(connection, state, uid=job.uid)

    again = jobs.enqueue_again(connection, job, now=NOW)

    assert (again.id, again.state, again.joined) == (job_id, state, False)
    assert len(reports.recent(connection, limit=9)) == 1


def test_what_no_earlier_try_has_enqueued_is_enqueued(connection: Connection) -> None:
    assert jobs.enqueue_again(connection, job := new_job(), now=NOW) == jobs.find(connection, job.uid)


def test_jobs_are_claimed_by_priority_then_by_when_they_were_due_then_by_age(connection: Connection) -> None:
    low = put(connection, priority=10, run_at=at(-100))
    young, old = put(connection, run_at=at(-5)), put(connection, run_at=at(-9))
    twins = [put(connection, run_at=at(-7)) for _ in range(3)]
    high = put(connection, priority=0, run_at=NOW)

    claimed = [job.id for _ in range(4) for job in take(connection, limit=2)]

    assert claimed == [high, old, *twins, young, low]


def test_a_claimed_job_is_ours_under_a_new_token(connection: Connection) -> None:
    job_id = put(connection, payload='{"a":1}', correlation_id="c", run_at=at(-1))

    job = take_one(connection, now=at(2))

    view = show(connection, job_id)
    assert (job.id, job.token, job.kind, job.payload) == (job_id, 1, "work", '{"a":1}')
    assert (job.attempts, job.max_attempts, job.correlation_id, job.run_at) == (0, 3, "c", at(-1))
    assert (view.state, view.owner, view.claimed_at) == (JobState.RUNNING, "me", at(2))


def test_only_what_is_due_is_claimed(connection: Connection) -> None:
    due, later = put(connection, run_at=at(10)), put(connection, run_at=at(10.000001))

    assert take(connection, now=at(9.999999)) == []
    assert [job.id for job in take(connection, now=at(10))] == [due]
    assert [job.id for job in take(connection, now=at(11))] == [later]


def test_only_known_kinds_and_known_priorities_are_claimed(connection: Connection) -> None:
    put(connection, "play", priority=0)
    put(connection, "work", priority=7)
    mine = [put(connection, "work"), put(connection, "rest")]

    claimed = take(connection, kinds=["work", "rest"])

    assert [job.id for job in claimed] == mine
    assert take(connection, kinds=[]) == []
    assert take(connection, kinds=["play"], limit=0) == []
    assert [job.priority for job in take(connection, kinds=["work"], priorities=[7, 7])] == [7]


@pytest.mark.parametrize("state", STATES)
def test_only_waiting_jobs_are_claimed(connection: Connection, state: JobState) -> None:
    put_in_state(connection, state)

    claimed = take(connection)

    assert bool(claimed) == (state in {JobState.PENDING, JobState.RETRYABLE})


def test_each_claim_has_a_greater_token(connection: Connection) -> None:
    put(connection)
    tokens = []

    for _ in range(3):
        job = take_one(connection)
        tokens.append(job.token)
        settle(connection, job, JobState.PENDING)

    assert tokens == [1, 2, 3]


@pytest.mark.parametrize("owner", ["stranger", "dead"])
def test_who_is_not_known_to_live_claims_nothing(connection: Connection, owner: str) -> None:
    """Nobody would ever reclaim it: the row of a dead worker is forgotten as soon as nothing runs for it."""
    hire(connection, "dead")
    connection.execute(text("UPDATE workers SET dead_at = 1 WHERE id = 'dead'"))
    job_id = put(connection)

    claimed = take(connection, owner)

    assert claimed == []
    assert show(connection, job_id).state is JobState.PENDING


def test_two_who_claim_at_once_get_different_jobs(postgres_jobs: JobStore) -> None:
    with postgres_jobs.begin() as connection:
        hire(connection, "a")
        hire(connection, "b")
        ids = [put(connection) for _ in range(10)]

    with postgres_jobs.begin() as one, postgres_jobs.begin() as other, postgres_jobs.begin() as third:
        first, second = take(one, "a", limit=4), take(other, "b", limit=100)
        left = third.execute(text("SELECT id FROM jobs FOR UPDATE SKIP LOCKED")).all()

    assert [job.id for job in first] == ids[:4]
    assert [job.id for job in second] == ids[4:]
    assert left == []


def test_a_claim_locks_no_more_rows_than_it_takes(postgres_jobs: JobStore) -> None:
    with postgres_jobs.begin() as connection:
        hire(connection)
        for number in range(50):
            put(connection, priority=(0, 5, 10)[number % 3], run_at=at(-number))

    with postgres_jobs.begin() as one, postgres_jobs.begin() as other:
        assert len(take(one, limit=20)) == 20
        left = other.execute(text("SELECT id FROM jobs FOR UPDATE SKIP LOCKED")).all()

    assert len(left) == 30


def test_a_second_writer_on_one_file_waits_and_then_claims_the_rest(sqlite_jobs: JobStore) -> None:
    with sqlite_jobs.begin() as connection:
        hire(connection)
        ids = [put(connection) for _ in range(3)]

    with sqlite_jobs.begin() as one:
        first = take(one, limit=2)
        with pytest.raises(OperationalError, match="locked"), sqlite_jobs.begin():
            pass
    with sqlite_jobs.begin() as other:
        second = take(other)

    assert [job.id for job in first + second] == ids


def test_whoever_claims_cannot_be_buried_in_the_same_moment(postgres_jobs: JobStore) -> None:
    with postgres_jobs.begin() as connection:
        hire(connection)
        put(connection)

    with postgres_jobs.begin() as claiming:
        assert take(claiming)
        with postgres_jobs.begin() as burying, pytest.raises(OperationalError, match="lock timeout"):
            burying.execute(text("SET LOCAL lock_timeout = 20; UPDATE workers SET dead_at = 1 WHERE id = 'me'"))

    with postgres_jobs.begin() as connection:
        assert len(jobs.reclaim(connection, owner="me", limit=9, now=NOW)) == 1


def test_an_enqueue_is_undone_with_the_transaction_it_is_part_of(job_store: JobStore) -> None:
    job = new_job()

    with job_store.engine.connect() as connection, connection.begin() as transaction:
        jobs.enqueue(connection, job, now=NOW)
        transaction.rollback()

    with job_store.begin() as connection:
        assert jobs.find(connection, job.uid) is None


def test_finished_jobs_are_forgotten_by_state_and_age_in_pages(connection: Connection) -> None:
    for number in range(5):
        put(connection)
        settle(connection, take_one(connection), JobState.SUCCEEDED, now=at(number))
    failed, live = put_in_state(connection, JobState.FAILED), put(connection)

    pruned = [jobs.prune(connection, state=JobState.SUCCEEDED, before=at(4), limit=3) for _ in range(3)]

    assert pruned == [3, 1, 0]
    left = reports.recent(connection, limit=9)
    assert [view.finished_at for view in left if view.state is JobState.SUCCEEDED] == [at(4)]
    assert {failed, live} < {view.id for view in left}


def test_the_oldest_are_forgotten_first(connection: Connection) -> None:
    for number in (3, 1, 2):
        put(connection)
        settle(connection, take_one(connection), JobState.FAILED, now=at(number))

    jobs.prune(connection, state=JobState.FAILED, before=at(9), limit=2)

    assert [view.finished_at for view in reports.recent(connection, limit=9)] == [at(3)]


def test_the_next_time_to_look_is_when_the_next_job_becomes_due(connection: Connection) -> None:
    put(connection, run_at=NOW)
    put(connection, run_at=at(50), priority=0)
    put(connection, run_at=at(30), priority=10)
    put(connection, run_at=at(10), priority=7)

    assert jobs.next_due(connection, priorities=[0, 5, 10], now=NOW) == at(30)
    assert jobs.next_due(connection, priorities=[0, 5, 10], now=at(30)) == at(50)
    assert jobs.next_due(connection, priorities=[0, 5, 10], now=at(50)) is None


def test_priorities_of_waiting_jobs_are_found_whatever_is_configured(connection: Connection) -> None:
    put_in_state(connection, JobState.SUCCEEDED, priority=10)
    for priority in (7, 0, -32768, 32767, 7):
        put(connection, priority=priority)

    assert jobs.priorities_in_use(connection) == [-32768, 0, 7, 32767]
