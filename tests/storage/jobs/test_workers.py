"""Who works, in both databases: a beat shows it, a burial ends it, and the dead are kept while something runs for them."""

from __future__ import annotations

import pytest
from sqlalchemy import Connection, Table, func, select, text, update
from sqlalchemy.exc import IntegrityError, OperationalError

from cormorant.rules.errors import TextRefused
from cormorant.rules.jobs.states import JobState, Sighting
from cormorant.rules.schedules import Schedule
from cormorant.rules.search.requests import SearchRequest
from cormorant.rules.watch.feeds import Subscription
from cormorant.rules.watch.prices import PriceWatch
from cormorant.rules.watch.watches import SavedSearch
from storage.jobs import jobs, workers
from storage.jobs.batch import Batch, leave
from storage.jobs.workers import SWEEPER, LeaseRow, WorkerRow
from storage.tables import CLAIMED, FEEDS, METADATA
from storage.watch import handovers, watches
from storage.watch.feeds import FEED
from storage.watch.prices import PRICE
from storage.watch.saved_searches import SAVED
from tests.storage.at_once import at_once
from tests.storage.job_store import NOW, JobStore, at, hire, put, settle, take, take_one
from tests.storage.test_two_at_once import after
from tests.storage.watch_store import add_artist, add_want, new_handover
from tests.watch_kinds import added

EVERY_TABLE = pytest.mark.parametrize("table", CLAIMED, ids=lambda table: table.name)


def test_a_worker_is_known_with_what_it_can_do(connection: Connection) -> None:
    workers.register(connection, "you", kinds=["work", "play"], version="1.2", now=at(3))

    assert workers.all_workers(connection)[1] == WorkerRow(
        id="you",
        beat=0,
        beat_at=at(3),
        dead_at=None,
        kinds=("play", "work"),
        version="1.2",
        sighting=Sighting(beat=-1, unchanged_s=0.0),
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
    for owner in ("gone", "dead"):
        hire(connection, owner)
        put(connection)
        put(connection)
        take(connection, owner)
    put(connection)
    take(connection, "me")
    workers.retire(connection, "gone")
    workers.mark_dead(connection, "dead", beat=0, now=NOW)

    assert workers.unknown_owners(connection) == ["gone"]
    assert len(jobs.reclaim(connection, owner="gone", limit=9, now=NOW)) == 2
    assert workers.unknown_owners(connection) == []


def claim_in_every_table(connection: Connection, worker: str, *, rows: int = 1) -> None:
    """The worker has claimed so many new rows of each table besides jobs."""
    for number in range(rows):
        name = f"{worker} {number}"
        add_artist(connection, name)
        added(
            connection,
            FEED,
            Subscription(
                name=name, url="http://x.test/", schedule=Schedule(every_s=60), next_attempt_at=NOW, added_at=NOW
            ),
        )
        request = SearchRequest(query="words")
        added(
            connection, SAVED, SavedSearch(name=name, request=request, every_s=60.0, next_attempt_at=NOW, added_at=NOW)
        )
        added(
            connection, PRICE, PriceWatch(name=name, title="Morgan", sources=("s",), next_attempt_at=NOW, added_at=NOW)
        )
        handovers.begin(connection, new_handover(add_want(connection, name).id, name))
    for table in CLAIMED:
        claim = update(table).where(table.c.claimed_by.is_(None)).values(claimed_by=worker)
        assert connection.execute(claim).rowcount == rows


def count_claims(connection: Connection, worker: str) -> dict[str, int]:
    """How many rows of each table a worker has claimed, where there are any."""
    counts = {}
    for table in CLAIMED:
        count = select(func.count()).select_from(table).where(table.c.claimed_by == worker)
        counts[table.name] = connection.execute(count).scalar_one()
    return {name: count for name, count in counts.items() if count}


def clear_claims_but(connection: Connection, kept: Table) -> None:
    for table in CLAIMED:
        if table is not kept:
            connection.execute(update(table).values(claimed_by=None))


def test_every_table_whose_rows_are_claimed_is_freed_by_the_sweeper() -> None:
    with_claims = {table.name for table in METADATA.tables.values() if "claimed_by" in table.c}

    assert with_claims == {table.name for table in CLAIMED} | {"jobs", "leases"}


def test_what_a_dead_worker_has_claimed_is_freed_page_by_page_in_every_table(connection: Connection) -> None:
    hire(connection, "you")
    claim_in_every_table(connection, "me", rows=5)
    claim_in_every_table(connection, "you", rows=1)
    workers.mark_dead(connection, "me", beat=0, now=NOW)

    pages, left = [], []
    for _ in range(4):
        pages.append(workers.free_if_dead(connection, "me", limit=2))
        left.append(count_claims(connection, "me"))

    names = [table.name for table in CLAIMED]
    assert pages == [True, True, True, False]
    assert left == [dict.fromkeys(names, 3), dict.fromkeys(names, 1), {}, {}]
    assert count_claims(connection, "you") == dict.fromkeys(names, 1)


@EVERY_TABLE
def test_it_is_told_whether_something_was_freed_whichever_table_has_it(connection: Connection, table: Table) -> None:
    claim_in_every_table(connection, "me", rows=2)
    clear_claims_but(connection, table)
    workers.mark_dead(connection, "me", beat=0, now=NOW)

    assert [workers.free_if_dead(connection, "me", limit=9) for _ in range(2)] == [True, False]


def test_nothing_is_freed_while_the_worker_lives(connection: Connection) -> None:
    claim_in_every_table(connection, "me")
    put(connection)
    take(connection)

    assert not workers.free_if_dead(connection, "me", limit=9)
    assert workers.reclaim_if_dead(connection, "me", limit=9, now=NOW) == []
    assert count_claims(connection, "me") == {table.name: 1 for table in CLAIMED}


def test_the_claims_of_a_worker_without_a_row_are_freed(connection: Connection) -> None:
    claim_in_every_table(connection, "me")
    workers.retire(connection, "me")

    assert workers.free_if_dead(connection, "me", limit=9) == 1
    assert count_claims(connection, "me") == {}


def test_a_worker_that_ends_frees_its_claims_and_not_those_of_others(connection: Connection) -> None:
    hire(connection, "you")
    for worker in ("me", "you"):
        claim_in_every_table(connection, worker)

    assert workers.free_claims(connection, "me", limit=9) == 1
    assert (count_claims(connection, "me"), len(count_claims(connection, "you"))) == ({}, len(CLAIMED))


@pytest.mark.parametrize("is_orderly", [True, False])
def test_a_worker_that_leaves_has_no_row_and_no_claim_in_any_table(connection: Connection, *, is_orderly: bool) -> None:
    hire(connection, "you")
    for worker in ("me", "you"):
        claim_in_every_table(connection, worker, rows=2)
    batch = Batch(owner="me", endings=[], kinds=[], priorities=[], room=0, now=NOW)

    leave(connection, batch, is_orderly=is_orderly)

    assert [worker.id for worker in workers.all_workers(connection)] == ["you"]
    assert (count_claims(connection, "me"), len(count_claims(connection, "you"))) == ({}, len(CLAIMED))


def test_two_sweepers_that_free_the_same_claims_at_one_moment_free_them_once(job_store: JobStore) -> None:
    with job_store.begin() as connection:
        hire(connection)
        claim_in_every_table(connection, "me", rows=2)
        workers.mark_dead(connection, "me", beat=0, now=NOW)

    def free(connection: Connection) -> bool:
        return workers.free_if_dead(connection, "me", limit=9)

    assert at_once(job_store, free, free) == (True, False)


@EVERY_TABLE
def test_the_owner_of_a_claim_that_has_no_row_is_found_in_every_table(connection: Connection, table: Table) -> None:
    hire(connection, "you")
    hire(connection, "dead")
    for worker in ("me", "you", "dead"):
        claim_in_every_table(connection, worker)
    clear_claims_but(connection, table)
    workers.retire(connection, "you")
    workers.mark_dead(connection, "dead", beat=0, now=NOW)

    assert workers.unknown_owners(connection) == ["you"]
    workers.free_if_dead(connection, "you", limit=9)
    assert workers.unknown_owners(connection) == []


def test_an_owner_without_a_row_is_named_once_however_much_it_has_claimed(connection: Connection) -> None:
    for worker in ("b", "a"):
        hire(connection, worker)
        claim_in_every_table(connection, worker, rows=2)
        put(connection)
        take(connection, worker)
        workers.retire(connection, worker)

    assert workers.unknown_owners(connection) == ["a", "b"]


@EVERY_TABLE
def test_the_row_of_a_dead_worker_is_kept_while_it_has_a_claim_in_any_table(
    connection: Connection, table: Table
) -> None:
    claim_in_every_table(connection, "me")
    clear_claims_but(connection, table)
    workers.mark_dead(connection, "me", beat=0, now=NOW)

    forgotten = [workers.delete_dead(connection)]
    workers.free_if_dead(connection, "me", limit=9)
    forgotten.append(workers.delete_dead(connection))

    assert forgotten == [0, 1]


def test_a_worker_that_lives_is_not_forgotten(connection: Connection) -> None:
    assert workers.delete_dead(connection) == 0
    assert workers.is_living(connection, "me")


# The lease of the sweeper


def hold(connection: Connection, worker: str, instead_of: LeaseRow | None = None) -> LeaseRow:
    return workers.take_lease(connection, SWEEPER, worker_id=worker, instead_of=instead_of)


def test_the_first_worker_holds_the_lease_and_renews_it(connection: Connection) -> None:
    held = [hold(connection, "me") for _ in range(3)]

    assert [each.holder for each in held] == ["me"] * 3
    assert held[0].renewals < held[1].renewals < held[2].renewals


def test_another_worker_is_refused_while_the_holder_renews_the_lease(connection: Connection) -> None:
    hire(connection, "you")
    seen = hold(connection, "me")

    assert hold(connection, "you") == seen
    renewed = hold(connection, "me")
    assert hold(connection, "you", seen) == renewed
    assert hold(connection, "you", LeaseRow(holder="third", renewals=renewed.renewals)) == renewed


def test_the_lease_is_taken_over_from_a_holder_that_has_not_renewed_it_since_it_was_seen(
    connection: Connection,
) -> None:
    hire(connection, "you")
    seen = hold(connection, "me")

    taken = hold(connection, "you", seen)

    assert taken.holder == "you"
    assert taken.renewals > seen.renewals
    assert hold(connection, "me", seen) == taken


def test_the_lease_is_taken_over_at_once_from_a_worker_that_is_dead_or_has_left(connection: Connection) -> None:
    for worker in ("you", "third"):
        hire(connection, worker)
    hold(connection, "me")
    workers.mark_dead(connection, "me", beat=0, now=NOW)

    assert hold(connection, "you").holder == "you"
    workers.retire(connection, "you")
    assert hold(connection, "third").holder == "third"


def test_leases_of_different_names_have_different_holders(connection: Connection) -> None:
    hire(connection, "you")
    hold(connection, "me")

    assert workers.take_lease(connection, "other", worker_id="you", instead_of=None).holder == "you"
    assert hold(connection, "me").holder == "me"


def test_of_two_workers_that_want_the_lease_at_one_moment_one_holds_it(job_store: JobStore) -> None:
    with job_store.begin() as connection:
        for worker in ("me", "you", "third"):
            hire(connection, worker)

    first, second = at_once(job_store, lambda c: hold(c, "me"), lambda c: hold(c, "you"))
    assert first == second == LeaseRow(holder="me", renewals=first.renewals)
    taken, refused = at_once(job_store, lambda c: hold(c, "you", first), lambda c: hold(c, "third", first))
    assert taken == refused == LeaseRow(holder="you", renewals=taken.renewals)


# The observation


def test_what_was_seen_of_each_worker_is_stored(connection: Connection) -> None:
    hire(connection, "you")

    workers.record_sightings(
        connection,
        {
            "me": Sighting(beat=3, unchanged_s=60.5),
            "gone": Sighting(beat=1, unchanged_s=9.0),
        },
    )
    workers.record_sightings(connection, {})

    found = {worker.id: worker.sighting for worker in workers.all_workers(connection)}
    assert found == {"me": Sighting(beat=3, unchanged_s=60.5), "you": Sighting(beat=-1, unchanged_s=0.0)}


def test_a_sighting_changes_nothing_of_the_heartbeat(connection: Connection) -> None:
    workers.beat(connection, "me", now=at(20))

    workers.record_sightings(connection, {"me": Sighting(beat=9, unchanged_s=400.0)})

    [me] = workers.all_workers(connection)
    assert (me.beat, me.beat_at, me.dead_at) == (1, at(20), None)
    assert workers.beat(connection, "me", now=at(40)) == 2


# A claim and a declaration of death at one moment


def test_a_worker_may_claim_while_it_is_known_and_not_dead(connection: Connection) -> None:
    before = [workers.may_claim(connection, worker) for worker in ("me", "stranger")]
    workers.mark_dead(connection, "me", beat=0, now=NOW)

    assert (before, workers.may_claim(connection, "me")) == ([True, False], False)


def test_a_worker_that_claims_is_not_declared_dead_before_its_transaction_ends(postgres_jobs: JobStore) -> None:
    with postgres_jobs.begin() as connection:
        hire(connection)

    def mark_dead(connection: Connection) -> bool:
        connection.execute(text("SET LOCAL lock_timeout = '50ms'"))
        return workers.mark_dead(connection, "me", beat=0, now=NOW)

    with postgres_jobs.begin() as claiming:
        assert workers.may_claim(claiming, "me")
        with postgres_jobs.begin() as also_claiming:
            also_claiming.execute(text("SET LOCAL lock_timeout = '50ms'"))
            assert workers.may_claim(also_claiming, "me"), "two claims of one worker do not wait for each other"
        with pytest.raises(OperationalError, match="lock timeout"), postgres_jobs.begin() as sweeping:
            mark_dead(sweeping)

    with postgres_jobs.begin() as sweeping:
        assert mark_dead(sweeping)


def test_a_worker_that_is_being_declared_dead_may_not_claim(postgres_jobs: JobStore) -> None:
    with postgres_jobs.begin() as connection:
        hire(connection)

    may_claim = after(
        postgres_jobs,
        lambda connection: workers.mark_dead(connection, "me", beat=0, now=NOW),
        lambda connection: workers.may_claim(connection, "me"),
    )

    assert not may_claim


def test_a_release_of_unknown_claims_waits_for_a_claim_that_is_under_way(postgres_jobs: JobStore) -> None:
    with postgres_jobs.begin() as connection:
        hire(connection)
        claim_in_every_table(connection, "me")

    def release_unknown(connection: Connection) -> int:
        connection.execute(text("SET LOCAL lock_timeout = '50ms'"))
        return watches.release_unknown(connection, FEEDS, worker="me", known=())

    with postgres_jobs.begin() as claiming:
        assert workers.may_claim(claiming, "me")
        with pytest.raises(OperationalError, match="lock timeout"), postgres_jobs.begin() as releasing:
            release_unknown(releasing)

    with postgres_jobs.begin() as releasing:
        assert release_unknown(releasing) == 1
