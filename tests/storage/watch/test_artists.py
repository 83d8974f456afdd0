"""Artists in both databases: shared between processes, and written only by who has them in hand."""

from __future__ import annotations

from datetime import datetime
from functools import partial

import pytest
from sqlalchemy import Connection

from cormorant.rules.errors import NotFound
from cormorant.rules.watch.artists import Artist, Charge, RetryCharge, charged
from storage.jobs import workers
from storage.watch import artists, watches
from storage.watch.artists import ARTIST
from tests.storage.at_once import at_once
from tests.storage.job_store import NOW, JobStore, at, hire
from tests.storage.watch_store import add_artist


def claim(connection: Connection, worker: str = "me", *, now_s: float = 0.0, limit: int = 10) -> list[Artist]:
    return artists.claim(connection, worker=worker, now=at(now_s), limit=limit)


def costing(failures: int, block_until: datetime | None = None) -> Charge:
    return lambda _: RetryCharge(failures=failures, block_until=block_until)


def counting(failed: int) -> Charge:
    return partial(charged, failed=failed, budget=6, cooldown_s=900.0, now=NOW)


def test_what_two_processes_charge_an_artist_adds_up(job_store: JobStore) -> None:
    with job_store.begin() as connection:
        artist = add_artist(connection)

    at_once(
        job_store,
        lambda c: artists.charge(c, artist.id, counting(2)),
        lambda c: artists.charge(c, artist.id, counting(3)),
    )

    with job_store.begin() as connection:
        found = watches.by_id(connection, ARTIST, artist.id)
    assert found is not None
    assert (found.failures, found.retry_block_until) == (5, None)


def test_a_look_that_fails_adds_to_what_searches_were_charged_meanwhile(connection: Connection) -> None:
    add_artist(connection)
    [artist] = claim(connection)
    artists.charge(connection, artist.id, counting(4))

    cost = artists.fail(connection, artist, counting(3), next_attempt_at=NOW, error="no", now=NOW)

    assert cost == RetryCharge(failures=0, block_until=at(900))


def test_two_processes_share_what_is_due_and_none_is_in_two_hands(job_store: JobStore) -> None:
    with job_store.begin() as connection:
        hire(connection, "me")
        hire(connection, "you")
        for number in range(6):
            add_artist(connection, f"a{number}")

    one, two = at_once(job_store, lambda c: claim(c, limit=4), lambda c: claim(c, "you", limit=4))

    assert sorted(artist.artist_id for artist in one + two) == [f"a{number}" for number in range(6)]


def test_one_artist_is_watched_once_whoever_adds_it(job_store: JobStore) -> None:
    artist = Artist(source="spotify", artist_id="a1", name="A1", next_attempt_at=NOW, added_at=NOW)

    [one], [two] = at_once(
        job_store, lambda c: watches.add_new(c, ARTIST, [artist]), lambda c: watches.add_new(c, ARTIST, [artist])
    )

    assert one is not None
    assert two is None


def test_a_claim_ends_when_its_worker_is_dead_and_then_the_old_owner_writes_nothing(connection: Connection) -> None:
    hire(connection, "you")
    add_artist(connection)
    [old] = claim(connection)
    assert claim(connection, "you", now_s=9_999_999) == []
    workers.mark_dead(connection, "me", beat=0, now=at(60))
    assert workers.free_if_dead(connection, "me", limit=10) == 1
    [new] = claim(connection, "you", now_s=60)

    artists.release(connection, [old], next_attempt_at=at(5_000))
    assert not artists.succeed(connection, old, looked_at=at(70), next_attempt_at=at(5_000))
    assert not artists.fail(connection, old, costing(3, at(900)), next_attempt_at=at(5_000), error="no", now=at(70))
    assert watches.by_id(connection, ARTIST, old.id) == new
    assert claim(connection, "you", now_s=60) == []
    assert artists.succeed(connection, new, looked_at=at(70), next_attempt_at=at(5_000))


def test_what_is_given_back_is_due_as_before_or_when_told(connection: Connection) -> None:
    add_artist(connection, "a1")
    add_artist(connection, "a2", next_attempt_at=at(-5))
    later, first = claim(connection)[::-1]
    assert (first.artist_id, later.artist_id) == ("a2", "a1")

    artists.release(connection, [first])
    artists.release(connection, [later], next_attempt_at=at(30))

    assert [artist.artist_id for artist in claim(connection)] == ["a2"]


def test_what_a_worker_has_claimed_and_does_not_know_of_is_claimed_anew_and_not_what_another_has(
    connection: Connection,
) -> None:
    hire(connection, "you")
    for artist_id in ("a1", "a2"):
        add_artist(connection, artist_id)
    [lost] = claim(connection, limit=1)
    claim(connection, "you", limit=1)

    claimed, blocked = artists.claim_due(connection, worker="me", now=NOW, limit=10)

    assert [(each.id, each.token) for each in claimed] == [(lost.id, lost.token + 1)]
    assert blocked == []


def test_who_failed_too_often_is_left_alone_and_a_success_forgives(connection: Connection) -> None:
    add_artist(connection)
    [artist] = claim(connection)
    artists.fail(connection, artist, costing(0, at(900)), next_attempt_at=NOW, error="no", now=NOW)

    assert claim(connection, now_s=10) == []
    [blocked] = artists.blocked(connection, now=at(10), limit=10)
    assert (blocked.retry_block_until, blocked.last_error, blocked.watermark) == (at(900), "no", None)
    [again] = claim(connection, now_s=900)
    artists.succeed(connection, again, looked_at=at(900), next_attempt_at=at(2_000))
    known = watches.by_id(connection, ARTIST, artist.id)
    assert known is not None
    assert (known.retry_block_until, known.last_error, known.watermark) == (None, None, at(900))


def test_a_clock_that_ran_ahead_keeps_nobody_away_for_ever(connection: Connection) -> None:
    year_s = 366 * 86_400.0
    add_artist(connection)
    [artist] = claim(connection, now_s=year_s)
    artists.succeed(connection, artist, looked_at=at(year_s), next_attempt_at=at(year_s + 3_600))
    artists.charge(connection, artist.id, costing(0, at(year_s + 900)))

    assert [each.id for each in claim(connection)] == [artist.id]
    assert artists.blocked(connection, now=NOW, limit=10) == []


def test_an_artist_is_found_by_number_id_and_name_and_asked_for_at_once(connection: Connection) -> None:
    artist = add_artist(connection, next_attempt_at=at(5_000))
    for wanted in (str(artist.id), "a1", "A1"):
        assert watches.find(connection, ARTIST, wanted).id == artist.id
    with pytest.raises(NotFound, match="no artist 'nobody'"):
        watches.find(connection, ARTIST, "nobody")

    assert watches.make_due(connection, ARTIST, "a1", now=NOW).next_attempt_at == NOW
    assert watches.find(connection, ARTIST, "a1").next_attempt_at == NOW
    watches.remove(connection, ARTIST, str(artist.id))
    with pytest.raises(NotFound):
        watches.find(connection, ARTIST, "a1")
