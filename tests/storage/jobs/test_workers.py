"""Who works, in both databases: a beat shows it, a burial ends it, and the dead are kept while something runs for them."""

from __future__ import annotations

import pytest
from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from cormorant.rules.errors import TextRefused
from cormorant.rules.jobs.states import JobState
from storage.jobs import jobs, workers
from storage.jobs.workers import WorkerRow
from tests.storage.job_store import NOW, at, hire, put, settle, take, take_one


def test_a_worker_is_known_with_what_it_can_do(connection: Connection) -> None:
    workers.register(connection, "you", kinds=["work", "play"], version="1.2", now=at(3))

    assert workers.all_workers(connection)[1] == WorkerRow(
        id="you", beat=0, beat_at=at(3), dead_at=None, kinds=("play", "work"), version="1.2"
    )


def test_two_workers_cannot_have_one_name(connection: Connection) -> None:
    with pytest.raises(IntegrityError), connection.begin_nested():
        hire(connection, "me")
    with pytest.raises(TextRefused):
        hire(connection, "a\0b")

    assert [worker.id for worker in workers.all_workers(connection)] == ["me"]


def test_each_beat_counts_and_tells_its_time(connection: Connection) -> None:
    beats = [workers.beat(connection, "me", now=at(number)) for number in (20, 40)]

    (me,) = workers.all_workers(connection)
    assert beats == [1, 2]
    assert (me.beat, me.beat_at) == (2, at(40))


def test_who_is_not_known_has_no_beat(connection: Connection) -> None:
    assert workers.beat(connection, "stranger", now=NOW) is None


def test_who_has_beaten_since_it_was_seen_is_not_buried(connection: Connection) -> None:
    seen = workers.all_workers(connection)[0].beat
    workers.beat(connection, "me", now=at(1))

    assert not workers.mark_dead(connection, "me", beat=seen, now=at(300))

    assert workers.is_living(connection, "me")
    assert workers.beat(connection, "me", now=at(301)) == 2


def test_who_is_buried_beats_no_more_and_is_buried_once(connection: Connection) -> None:
    assert workers.mark_dead(connection, "me", beat=0, now=at(300))
    assert not workers.mark_dead(connection, "me", beat=0, now=at(301))

    (me,) = workers.all_workers(connection)
    assert not workers.is_living(connection, "me")
    assert (me.dead_at, me.beat) == (at(300), 0)
    assert workers.beat(connection, "me", now=at(302)) is None


def test_who_is_not_there_does_not_live_and_cannot_be_buried(connection: Connection) -> None:
    assert not workers.is_living(connection, "stranger")
    assert not workers.mark_dead(connection, "stranger", beat=0, now=NOW)


def test_the_dead_are_forgotten_when_nothing_runs_for_them_any_more(connection: Connection) -> None:
    hire(connection, "you")
    put(connection)
    put(connection)
    take(connection)
    workers.mark_dead(connection, "me", beat=0, now=NOW)

    forgotten = []
    for _ in range(3):
        forgotten.append(workers.delete_dead(connection))
        jobs.reclaim(connection, owner="me", limit=1, now=NOW)

    assert forgotten == [0, 0, 1]
    assert [worker.id for worker in workers.all_workers(connection)] == ["you"]


def test_who_leaves_in_good_order_is_forgotten_at_once(connection: Connection) -> None:
    hire(connection, "you")

    workers.retire(connection, "me")

    assert [worker.id for worker in workers.all_workers(connection)] == ["you"]


def test_who_is_buried_but_not_yet_reclaimed_from_may_still_finish(connection: Connection) -> None:
    """Nobody else has the job yet: its result is as good as any."""
    put(connection)
    job = take_one(connection)
    workers.mark_dead(connection, "me", beat=0, now=NOW)

    (settled,) = settle(connection, job, JobState.SUCCEEDED)

    assert settled.state is JobState.SUCCEEDED
    assert jobs.reclaim(connection, owner="me", limit=9, now=NOW) == []


def test_an_owner_that_nobody_knows_is_found(connection: Connection) -> None:
    for owner in ("gone", "buried"):
        hire(connection, owner)
        put(connection)
        put(connection)
        take(connection, owner)
    put(connection)
    take(connection, "me")
    workers.retire(connection, "gone")
    workers.mark_dead(connection, "buried", beat=0, now=NOW)

    assert workers.unknown_owners(connection) == ["gone"]
    assert len(jobs.reclaim(connection, owner="gone", limit=9, now=NOW)) == 2
    assert workers.unknown_owners(connection) == []
