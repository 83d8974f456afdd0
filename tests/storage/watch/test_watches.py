"""Due rows in both databases: claimed by one worker at a time, released by the owner of the claim, and taken for jobs once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from attrs import evolve
from sqlalchemy import Connection, text

from cormorant.rules.search.requests import SearchRequest
from cormorant.rules.watch.artists import Artist
from cormorant.rules.watch.prices import TAKEN_OUT, PriceWatch
from cormorant.rules.watch.watches import SavedSearch
from storage.engine.columns import to_micros
from storage.jobs import reports, workers
from storage.jobs.jobs import Claim
from storage.tables import ARTISTS, PRICES, SAVED_SEARCHES
from storage.watch import artists, prices, watches
from storage.watch.prices import PRICE
from storage.watch.saved_searches import SAVED
from tests.storage.at_once import at_once
from tests.storage.job_store import NOW, JobStore, at, hire, new_job, show, take
from tests.storage.watch_store import add_artist

DUE = "NOT is_paused AND next_attempt_at <= :now"


def claim(connection: Connection, worker: str = "me", *, now_s: float = 0.0, limit: int = 10) -> list[Artist]:
    return watches.claim(
        connection,
        artists.ARTIST.codec,
        worker=worker,
        due=DUE,
        order="next_attempt_at",
        limit=limit,
        now=to_micros(at(now_s)),
    )


def ids(found: Sequence[Artist]) -> list[str]:
    return sorted(each.artist_id for each in found)


def claims_of(found: Sequence[Artist]) -> list[Claim]:
    return [(each.id, each.token) for each in found]


def owners(connection: Connection) -> dict[str, str | None]:
    """The worker that has claimed each artist."""
    rows = connection.execute(text("SELECT artist_id, claimed_by FROM watchlist_artists"))
    return {row.artist_id: row.claimed_by for row in rows}


def new_price(name: str = "coin", **words: Any) -> PriceWatch:
    usual = PriceWatch(name=name, title="Morgan", sources=("s",), every_s=60.0, next_attempt_at=NOW, added_at=NOW)
    return evolve(usual, **words)


def add_price(connection: Connection, name: str = "coin", **words: Any) -> PriceWatch:
    return watches.add(connection, PRICE, new_price(name, **words))


def known(price: PriceWatch) -> Claim:
    return price.id, price.token


def test_only_due_and_unclaimed_rows_are_claimed_the_longest_due_first(connection: Connection) -> None:
    for artist_id, due_s in (("later", 1), ("c", 0), ("a", -9), ("b", -5)):
        add_artist(connection, artist_id, next_attempt_at=at(due_s))
    add_artist(connection, "paused", next_attempt_at=at(-99), is_paused=True)

    found = [ids(claim(connection, limit=2)), ids(claim(connection, limit=2)), ids(claim(connection, limit=2))]

    assert found == [["a", "b"], ["c"], []]
    assert owners(connection) == {"later": None, "paused": None, "a": "me", "b": "me", "c": "me"}


def test_of_rows_that_are_due_at_one_time_the_oldest_comes_first(connection: Connection) -> None:
    for artist_id in ("first", "second", "third"):
        add_artist(connection, artist_id)

    assert [ids(claim(connection, limit=1)) for _ in range(3)] == [["first"], ["second"], ["third"]]


def test_a_worker_that_is_not_known_or_was_declared_dead_claims_nothing(connection: Connection) -> None:
    add_artist(connection)
    workers.mark_dead(connection, "me", beat=0, now=NOW)

    assert [claim(connection, worker) for worker in ("me", "stranger")] == [[], []]
    assert owners(connection) == {"a1": None}


def test_a_token_rises_with_each_claim_and_not_with_a_release(connection: Connection) -> None:
    added = add_artist(connection)
    tokens = []
    for _ in range(3):
        found = claim(connection)
        watches.release(connection, ARTISTS, claims_of(found))
        tokens += [each.token for each in found]

    assert tokens == [added.token + 1, added.token + 2, added.token + 3]
    assert artists.find(connection, "a1").token == tokens[-1]


def test_two_workers_that_claim_at_one_moment_share_the_rows(job_store: JobStore) -> None:
    with job_store.begin() as connection:
        hire(connection, "me")
        hire(connection, "you")
        for number in range(5):
            add_artist(connection, f"a{number}")

    one, two = at_once(job_store, lambda c: claim(c, limit=3), lambda c: claim(c, "you", limit=3))

    assert (ids(one), ids(two)) == (["a0", "a1", "a2"], ["a3", "a4"])
    with job_store.begin() as connection:
        assert owners(connection) == {"a0": "me", "a1": "me", "a2": "me", "a3": "you", "a4": "you"}


def test_a_released_row_is_due_as_before_or_at_the_time_given(connection: Connection) -> None:
    for artist_id in ("kept", "soon", "later"):
        add_artist(connection, artist_id)
    held = {each.artist_id: (each.id, each.token) for each in claim(connection)}

    watches.release(connection, ARTISTS, [held["soon"]])
    watches.release(connection, ARTISTS, [held["later"]], next_attempt_at=at(30))
    watches.release(connection, ARTISTS, [])

    assert owners(connection) == {"kept": "me", "soon": None, "later": None}
    assert artists.find(connection, "soon").next_attempt_at == NOW
    assert [ids(claim(connection, now_s=now_s)) for now_s in (29, 30)] == [["soon"], ["later"]]


@pytest.mark.parametrize("moved_s", [None, 30.0])
def test_an_older_claim_releases_nothing(connection: Connection, moved_s: float | None) -> None:
    hire(connection, "you")
    add_artist(connection)
    old = claims_of(claim(connection))
    watches.release(connection, ARTISTS, old)
    current = claims_of(claim(connection, "you"))

    watches.release(connection, ARTISTS, old, next_attempt_at=None if moved_s is None else at(moved_s))

    assert owners(connection) == {"a1": "you"}
    assert artists.find(connection, "a1").next_attempt_at == NOW
    watches.release(connection, ARTISTS, current)
    assert owners(connection) == {"a1": None}


def test_a_worker_releases_what_it_does_not_know_of_and_nothing_of_another(connection: Connection) -> None:
    hire(connection, "you")
    for artist_id in ("kept", "lost", "lost too", "yours"):
        add_artist(connection, artist_id)
    held = {each.artist_id: each.id for each in claim(connection, limit=3)}
    claim(connection, "you")

    counts = [
        watches.release_unknown(connection, ARTISTS, worker="me", known=[held["kept"], 10**9]),
        watches.release_unknown(connection, ARTISTS, worker="me", known=[held["kept"]]),
    ]

    assert counts == [2, 0]
    assert owners(connection) == {"kept": "me", "lost": None, "lost too": None, "yours": "you"}


def test_a_due_row_is_taken_once_and_its_next_time_is_set(connection: Connection) -> None:
    price = add_price(connection)

    taken = [watches.take(connection, PRICES, known(price), next_attempt_at=at(due_s)) for due_s in (60, 90)]

    found = watches.find(connection, PRICE, "coin")
    assert taken == [True, False]
    assert (found.next_attempt_at, found.token) == (at(60), price.token + 1)
    assert watches.take(connection, PRICES, known(found), next_attempt_at=at(120))


def test_of_two_processes_that_saw_the_same_due_row_one_takes_it(job_store: JobStore) -> None:
    with job_store.begin() as connection:
        price = add_price(connection)

    taken = at_once(
        job_store,
        lambda c: watches.take(c, PRICES, known(price), next_attempt_at=at(60)),
        lambda c: watches.take(c, PRICES, known(price), next_attempt_at=at(90)),
    )

    assert taken == (True, False)


def test_a_row_that_was_paused_taken_out_or_removed_since_it_was_seen_is_not_taken(connection: Connection) -> None:
    prices.set_configured(connection, [new_price("out")])
    watched = [
        add_price(connection, "paused"),
        add_price(connection, "removed"),
        watches.find(connection, PRICE, "out"),
    ]
    assert len(watches.due(connection, PRICE, now=NOW, limit=9)) == 3
    prices.set_paused(connection, "paused", is_paused=True)
    watches.remove(connection, PRICE, "removed")
    prices.set_configured(connection, [])
    assert watches.find(connection, PRICE, "out").origin == TAKEN_OUT

    taken = [watches.take(connection, PRICES, known(each), next_attempt_at=at(60)) for each in watched]

    assert taken == [False, False, False]
    assert watches.due(connection, PRICE, now=at(9_999), limit=9) == []
    assert {each.next_attempt_at for each in watches.all_of(connection, PRICE)} == {NOW}


def test_the_longest_due_rows_come_first_and_not_more_than_asked_for(connection: Connection) -> None:
    for name, due_s in (("now", 0), ("later", 1), ("old", -60), ("also old", -60)):
        add_price(connection, name, next_attempt_at=at(due_s))

    found = [[each.name for each in watches.due(connection, PRICE, now=NOW, limit=limit)] for limit in (2, 9)]

    assert found == [["old", "also old"], ["old", "also old", "now"]]


@pytest.mark.parametrize("every_s", [60.0, 86_400.0])
def test_a_row_that_a_clock_that_ran_ahead_put_off_is_due_and_one_within_twice_its_time_is_not(
    connection: Connection, every_s: float
) -> None:
    for name, due_s in (("soon", every_s), ("twice", 2 * every_s), ("ahead", 2 * every_s + 1)):
        add_price(connection, name, every_s=every_s, next_attempt_at=at(due_s))

    assert [each.name for each in watches.due(connection, PRICE, now=NOW, limit=9)] == ["ahead"]


def test_a_row_is_taken_and_its_jobs_are_enqueued_and_a_process_that_was_slower_enqueues_none(
    connection: Connection,
) -> None:
    price = add_price(connection)
    made = [new_job(payload=f"{number}") for number in range(2)]

    counts = [
        watches.enqueue_due(connection, PRICES, known(price), jobs, next_attempt_at=at(60), now=NOW)
        for jobs in (made, [new_job()])
    ]

    assert counts == [2, 0]
    assert [job.payload for job in take(connection)] == ["0", "1"]
    assert watches.find(connection, PRICE, "coin").next_attempt_at == at(60)


def test_of_two_processes_that_saw_the_same_due_row_one_enqueues_its_jobs(job_store: JobStore) -> None:
    with job_store.begin() as connection:
        price = add_price(connection)

    def enqueue(connection: Connection) -> int:
        return watches.enqueue_due(connection, PRICES, known(price), [new_job()], next_attempt_at=at(60), now=NOW)

    assert at_once(job_store, enqueue, enqueue) == (1, 0)
    with job_store.begin() as connection:
        assert len(reports.recent(connection, limit=9)) == 1


def test_a_row_whose_jobs_were_not_committed_is_due_as_before(job_store: JobStore) -> None:
    with job_store.begin() as connection:
        price = add_price(connection)

    with job_store.begin() as connection:
        watches.enqueue_due(connection, PRICES, known(price), [new_job()], next_attempt_at=at(60), now=NOW)
        connection.rollback()

    with job_store.begin() as connection:
        assert reports.recent(connection, limit=9) == []
        assert watches.due(connection, PRICE, now=NOW, limit=9) == [price]


def test_a_job_that_waits_already_is_due_now(connection: Connection) -> None:
    waiting = new_job(dedupe_key="k", run_at=at(900))
    watches.enqueue_all(connection, [waiting], now=NOW)

    count = watches.enqueue_now(connection, [new_job(dedupe_key="k", run_at=at(900))], now=at(5))

    assert count == 1
    [job] = reports.recent(connection, limit=9)
    assert show(connection, job.id).run_at == at(5)


def test_a_row_that_is_postponed_is_due_at_its_new_time_and_no_other_is_moved(connection: Connection) -> None:
    request = SearchRequest(query="words")
    made = [
        watches.add(
            connection, SAVED, SavedSearch(name=name, request=request, every_s=60.0, next_attempt_at=NOW, added_at=NOW)
        )
        for name in "ab"
    ]

    watches.postpone(connection, SAVED_SEARCHES, made[0].id, next_attempt_at=at(60))

    due = [[each.name for each in watches.due(connection, SAVED, now=at(now_s), limit=9)] for now_s in (59, 60)]
    assert due == [["b"], ["b", "a"]]
