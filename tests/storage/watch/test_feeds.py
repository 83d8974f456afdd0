"""Subscriptions in both databases: shared between processes, each item new once, and a claim that goes by the index."""

from __future__ import annotations

import re
import sqlite3
from typing import Any

import pytest
from attrs import evolve
from sqlalchemy import Connection, text

from cormorant.rules.errors import NotFound
from cormorant.rules.schedules import Schedule, overdue_delay_s
from cormorant.rules.watch.feeds import CheckStatus, DueFeed, FeedCheck, FeedEntryItem, NextCheck, Subscription
from storage import pauses
from storage.engine.columns import to_micros
from storage.jobs import workers
from storage.tables import FEEDS
from storage.watch import feed_claims, feed_items, feeds, watches
from storage.watch.feeds import FEED
from tests.storage.at_once import at_once
from tests.storage.job_store import NOW, JobStore, at, hire
from tests.storage.test_claim_cost import explain, steps_of
from tests.watch_kinds import added

HOURLY = Schedule(every_s=3_600)
FEW, MANY = 2_000, 100_000


def new(name: str = "n", **words: Any) -> Subscription:
    usual = Subscription(name=name, url=f"http://x.test/{name}", schedule=HOURLY, next_attempt_at=NOW, added_at=NOW)
    return evolve(usual, **words)


def claim(connection: Connection, worker: str = "me", *, now_s: float = 0.0, limit: int = 10) -> list[DueFeed]:
    return feed_claims.claim(connection, worker=worker, now=at(now_s), limit=limit)


def die(connection: Connection, worker: str = "me") -> None:
    """The worker is declared dead, and what it has claimed is freed."""
    assert workers.mark_dead(connection, worker, beat=0, now=NOW)
    assert workers.free_if_dead(connection, worker, limit=100) > 0


def end(connection: Connection, each: DueFeed, *, now_s: float = 5.0, **words: Any) -> bool:
    """It went well, unless there is an error."""
    error = words.pop("error", None)
    status = CheckStatus.SUCCESS if error is None else CheckStatus.FAILED
    check = FeedCheck(subscription_id=each.id, started_at=at(now_s), status=status, error=error, new_items=2)
    following = NextCheck(next_check_at=at(now_s + 3_600), effective_s=None, failures=0)
    told = {"etag": "e", "last_modified": "m"} | {key: words.pop(key) for key in ("etag", "url") if key in words}
    return feed_claims.end_check(connection, each, evolve(following, **words), check=check, **told)


def entries(*keys: str) -> list[FeedEntryItem]:
    return [FeedEntryItem(key=key, title=f"title of {key}") for key in keys]


def test_a_number_means_the_feed_of_that_number_also_where_another_is_called_so(connection: Connection) -> None:
    first = added(connection, FEED, new("harbour"))
    other = added(connection, FEED, new(str(first.id)))

    assert watches.find(connection, FEED, str(first.id)) == first
    assert watches.find(connection, FEED, str(other.id)) == other
    assert watches.find(connection, FEED, "harbour") == first


def test_two_processes_share_what_is_due(job_store: JobStore) -> None:
    with job_store.begin() as connection:
        hire(connection, "me")
        hire(connection, "you")
        for name in "abcd":
            added(connection, FEED, new(name))

    one, two = at_once(job_store, lambda c: claim(c, limit=3), lambda c: claim(c, "you", limit=3))

    assert sorted(each.name for each in one + two) == ["a", "b", "c", "d"]


def test_the_longest_due_comes_first_and_what_is_not_due_waits(connection: Connection) -> None:
    for name, due_s in (("later", 10), ("b", -1), ("a", -9), ("now", 0)):
        added(connection, FEED, new(name, next_attempt_at=at(due_s)))

    assert [each.name for each in claim(connection, limit=2)] == ["a", "b"]
    assert [each.name for each in claim(connection)] == ["now"]
    assert feeds.next_due(connection) == at(10)


def test_a_claim_ends_when_it_is_freed_and_then_the_old_owner_writes_nothing(connection: Connection) -> None:
    hire(connection, "you")
    added(connection, FEED, new())
    [old] = claim(connection)
    assert claim(connection, "you", now_s=9_999_999) == []
    die(connection)
    [current] = claim(connection, "you", now_s=60)

    assert not end(connection, old)
    feed_claims.release(connection, [old])
    feed_claims.release_until(connection, {old: at(5_000)})
    held = [feed_claims.is_held(connection, each, even_paused=True) for each in (old, current)]
    locked = [feed_claims.lock(connection, each) for each in (old, current)]
    assert held == locked == [False, True]
    assert feed_items.checks(connection, old.id) == []
    assert claim(connection, "you", now_s=61) == []
    assert end(connection, current)
    assert not feed_claims.is_held(connection, current, even_paused=True)
    assert len(feed_items.checks(connection, old.id)) == 1


def test_a_worker_that_was_declared_dead_or_is_not_known_claims_no_feed(connection: Connection) -> None:
    one = added(connection, FEED, new())
    workers.mark_dead(connection, "me", beat=0, now=NOW)

    assert [claim(connection, worker) for worker in ("me", "stranger")] == [[], []]
    assert [feed_claims.claim_one(connection, one.id, worker=worker) for worker in ("me", "stranger")] == [None, None]


def test_the_claims_of_a_worker_that_has_beaten_since_it_was_seen_are_not_freed(connection: Connection) -> None:
    hire(connection, "you")
    for name in "ab":
        added(connection, FEED, new(name))
    claim(connection, "me", limit=1)
    claim(connection, "you", limit=1)
    workers.beat(connection, "me", now=at(20))

    marked = [workers.mark_dead(connection, worker, beat=0, now=at(300)) for worker in ("me", "you")]
    freed = [workers.free_if_dead(connection, worker, limit=10) for worker in ("me", "you")]

    assert (marked, freed) == ([False, True], [0, 1])
    assert [each.name for each in claim(connection, now_s=1)] == ["b"]


def test_the_claim_of_a_feed_that_is_not_due_is_freed_as_well(connection: Connection) -> None:
    hire(connection, "you")
    later = added(connection, FEED, new(next_attempt_at=at(9_000)))
    held = feed_claims.claim_one(connection, later.id, worker="me")
    assert held is not None
    assert feed_claims.claim_one(connection, later.id, worker="you") is None

    die(connection)

    again = feed_claims.claim_one(connection, later.id, worker="you")
    assert again is not None
    assert again.token == held.token + 1


def test_a_feed_released_until_its_turn_keeps_a_time_that_it_got_meanwhile(connection: Connection) -> None:
    for name in ("moved", "waits"):
        added(connection, FEED, new(name))
    held = {each.name: each for each in claim(connection)}
    feeds.reschedule(connection, held["moved"].id, at(7))

    feed_claims.release_until(connection, dict.fromkeys(held.values(), at(30)))

    assert {each.name: each.next_attempt_at for each in watches.page(connection, FEED)} == {
        "moved": at(7),
        "waits": at(30),
    }
    assert [each.name for each in claim(connection, now_s=29)] == ["moved"]
    assert [each.name for each in claim(connection, now_s=30)] == ["waits"]


def test_a_check_that_cannot_be_recorded_is_put_off_only_by_the_owner_of_its_claim(connection: Connection) -> None:
    hire(connection, "you")
    added(connection, FEED, new())
    [old] = claim(connection)
    die(connection)
    [current] = claim(connection, "you")
    following = NextCheck(next_check_at=at(60), effective_s=None, failures=1)

    put_off = [feed_claims.postpone(connection, each, following, error="no") for each in (old, current)]

    assert put_off == [False, True]
    assert [each.failures for each in claim(connection, "you", now_s=60)] == [1]


def test_the_ticker_learns_of_a_pause_and_of_the_next_feed_that_is_not_claimed(connection: Connection) -> None:
    added(connection, FEED, new("claimed"))
    added(connection, FEED, new("next", next_attempt_at=at(40)))
    claim(connection)

    assert feed_claims.read_due(connection) == feed_claims.DueFeeds(is_paused=False, next_due=at(40))
    pauses.set_all(connection, is_paused=True, now=NOW)
    assert feed_claims.read_due(connection).is_paused


def test_one_given_back_is_due_as_before(connection: Connection) -> None:
    added(connection, FEED, new())
    held = claim(connection)

    feed_claims.release(connection, held)

    assert [each.next_attempt_at for each in claim(connection, now_s=1)] == [NOW]


def test_one_is_taken_in_hand_due_or_not_unless_another_has_it(connection: Connection) -> None:
    one = added(connection, FEED, new(next_attempt_at=at(9_000)))

    taken = feed_claims.claim_one(connection, one.id, worker="me")

    assert taken is not None
    assert feed_claims.claim_one(connection, one.id, worker="me") is None
    assert feed_claims.claim_one(connection, 10**9, worker="me") is None
    assert end(connection, taken)


def test_the_end_of_a_check_is_kept_and_a_failure_keeps_what_the_last_success_knew(connection: Connection) -> None:
    added(connection, FEED, new())
    [first] = claim(connection)
    end(connection, first, url="http://new.test/n")
    [again] = claim(connection, now_s=4_000)
    assert (again.etag, again.last_modified, again.url) == ("e", "m", "http://new.test/n")

    end(connection, again, now_s=4_000, error="no\0pe", etag="other", failures=1, effective_s=7_200.0)

    known = watches.find(connection, FEED, "n")
    assert (known.etag, known.url, known.last_error, known.failures) == ("e", "http://new.test/n", "nope", 1)
    assert (known.last_checked, known.last_success, known.effective_s) == (at(4_000), at(5), 7_200.0)
    newest, oldest = feed_items.checks(connection, known.id)
    assert (newest.status, newest.error, oldest.status) == (CheckStatus.FAILED, "nope", CheckStatus.SUCCESS)
    assert feed_items.last_checks(connection, [known.id, known.id + 1]) == {known.id: newest}
    assert feed_items.last_checks(connection, []) == {}
    assert feed_items.recent_new(connection, known.id, limit=9) == [2]
    assert feed_items.prune_checks(connection, before=at(100), after=at(99_000_000), limit=9) == 1


def test_a_new_address_given_while_it_is_checked_stays(connection: Connection) -> None:
    feeds.set_configured(connection, [new()])
    [held] = claim(connection)
    feeds.set_configured(connection, [new(url="http://other.test/")])

    end(connection, held)

    assert watches.find(connection, FEED, "n").url == "http://other.test/"


def test_a_pause_holds_through_the_end_of_a_check_and_resuming_begins_anew(connection: Connection) -> None:
    added(connection, FEED, new())
    [held] = claim(connection)
    watches.set_paused(connection, FEED, "n", is_paused=True, now=NOW)
    end(connection, held, effective_s=7_200.0, failures=4, error="no")
    known = watches.find(connection, FEED, "n")
    assert (known.is_paused, known.paused_because) == (True, "paused by hand")
    assert claim(connection, now_s=90_000) == []
    assert feeds.count(connection) == (1, 0)

    watches.set_paused(connection, FEED, "n", is_paused=False, now=at(100))

    assert watches.find(connection, FEED, "n").paused_because is None
    [again] = claim(connection, now_s=100)
    assert (again.failures, again.effective_s) == (0, None)
    end(connection, again, error="no", paused_because="ten failures")
    assert watches.find(connection, FEED, "n").paused_because == "ten failures"
    with pytest.raises(NotFound):
        watches.set_paused(connection, FEED, "none", is_paused=False, now=NOW)


def test_those_of_the_settings_file_follow_it_and_keep_what_was_seen(connection: Connection) -> None:
    added(connection, FEED, new("by hand"))
    feeds.set_configured(connection, [new("a"), new("b"), new("d")])
    for each in claim(connection):
        end(connection, each, effective_s=9_000.0)
        feed_items.record_new(connection, each.id, entries("k"), now=NOW)

    slower = new("b", schedule=Schedule(cron="0 9 * * *"), next_attempt_at=at(50))
    feeds.set_configured(connection, [slower, new("c"), new("d", url="http://other.test/")])

    known = {each.name: each for each in watches.page(connection, FEED)}
    assert sorted(known) == ["b", "by hand", "c", "d"]
    assert (known["b"].last_success, known["b"].effective_s, known["b"].next_attempt_at) == (at(5), None, at(50))
    assert (known["d"].effective_s, known["d"].next_attempt_at, known["d"].etag) == (9_000.0, at(3_605), None)
    assert (known["by hand"].origin, known["c"].last_checked) == ("by command", None)
    assert feed_items.record_new(connection, known["b"].id, entries("k"), now=NOW) == []


def test_another_feed_under_a_name_of_the_settings_file_begins_anew_and_a_new_key_or_a_move_makes_no_other(
    connection: Connection,
) -> None:
    feeds.set_configured(connection, [new(name, url="http://x.test/a?key=1") for name in "abc"])
    for each in claim(connection):
        end(connection, each, url="http://x.test/moved" if each.name == "c" else None)

    now = {"a": "http://x.test/a?key=2", "b": "http://x.test/b?key=1", "c": "http://x.test/a?key=1"}
    for _ in range(2):
        feeds.set_configured(connection, [new(name, url=url, takes_first=True) for name, url in now.items()])

    found = watches.page(connection, FEED)
    assert {each.name: each.last_success for each in found} == {"a": at(5), "b": None, "c": at(5)}
    assert {each.takes_first for each in found} == {True}


def test_old_records_go_in_the_order_they_came_and_some_of_a_wrong_clock_do_not_keep_them(
    connection: Connection,
) -> None:
    added(connection, FEED, new())
    for now_s in (9_000_000, 0, 10, 20, 30):
        for each in claim(connection, now_s=99_000_000):
            end(connection, each, now_s=now_s)

    assert feed_items.prune_checks(connection, before=at(30), after=at(9_000_000), limit=2) == 2
    assert feed_items.prune_checks(connection, before=at(30), after=at(9_000_000), limit=2) == 1
    assert feed_items.prune_checks(connection, before=at(30), after=at(9_000_000), limit=2) == 0

    number = watches.find(connection, FEED, "n").id
    assert [each.started_at for each in feed_items.checks(connection, number)] == [at(30), at(9_000_000)]


def test_records_of_a_clock_that_ran_ahead_go_as_well_and_do_not_keep_the_others(connection: Connection) -> None:
    added(connection, FEED, new())
    for now_s in (*[9_000_000] * 12, 0):
        for each in claim(connection, now_s=99_000_000):
            end(connection, each, now_s=now_s)

    assert [feed_items.prune_checks(connection, before=at(30), after=at(86_400), limit=1) for _ in range(14)] == [
        1
    ] * 13 + [0]


def test_overdue_ones_wait_for_their_share_of_a_minute_except_those_in_hand(connection: Connection) -> None:
    for name in "abc":
        added(connection, FEED, new(name, next_attempt_at=at(-900)))
    added(connection, FEED, new("soon", next_attempt_at=at(-5)))
    [held] = claim(connection, limit=1)

    moved = feed_claims.spread_overdue(connection, before=at(-120), now=NOW, limit=500)

    assert moved == [("b", at(-900)), ("c", at(-900))]
    due = {each.name: each.next_attempt_at for each in watches.page(connection, FEED)}
    assert (held.name, due["a"], due["soon"]) == ("a", at(-900), at(-5))
    assert due["b"] == at(overdue_delay_s(watches.find(connection, FEED, "b").id))
    assert feed_claims.spread_overdue(connection, before=at(-120), now=NOW, limit=500) == []


def test_those_that_a_clock_that_ran_ahead_put_off_are_pulled_in(connection: Connection) -> None:
    added(connection, FEED, new())
    added(connection, FEED, new("far", next_attempt_at=at(9_000_000)))
    [held] = claim(connection, now_s=86_400)
    end(connection, held, now_s=86_400)

    assert feeds.reschedule_after_clock_jump(connection, now=at(10), limit=9) == 1

    assert [each.name for each in claim(connection, now_s=10)] == ["n"]
    assert feeds.reschedule_after_clock_jump(connection, now=at(10), limit=9) == 0


def test_an_item_is_new_once_in_its_order_and_for_each_subscription(connection: Connection) -> None:
    assert [each.key for each in feed_items.record_new(connection, 1, entries("b", "a", "b"), now=NOW)] == ["b", "a"]
    assert [each.key for each in feed_items.record_new(connection, 1, entries("c", "b", "a"), now=NOW)] == ["c"]
    assert [each.key for each in feed_items.record_new(connection, 2, entries("a"), now=NOW)] == ["a"]
    assert feed_items.record_new(connection, 1, [], now=NOW) == []


def known(connection: Connection) -> dict[str, bool]:
    """Each entry of the first feed that is remembered, and whether it is there."""
    rows = connection.execute(
        text("SELECT key, gone_at IS NULL AS is_there FROM subscription_items WHERE subscription_id = 1")
    )
    return {row.key: bool(row.is_there) for row in rows}


def test_what_went_out_of_a_feed_is_forgotten_in_time_and_what_is_in_it_or_came_back_never(
    connection: Connection,
) -> None:
    feed_items.record_new(connection, 1, entries("a", "b", "c", "d"), now=at(0))
    feed_items.record_new(connection, 2, entries("d"), now=at(0))
    feed_items.record_new(connection, 1, entries("a"), now=at(100))
    assert known(connection) == {"a": True, "b": False, "c": False, "d": False}
    assert feed_items.record_new(connection, 1, entries("a", "b"), now=at(200)) == []
    feed_items.record_new(connection, 1, entries("a"), now=at(300), is_whole=False)

    assert feed_items.prune(connection, before=at(100), limit=9) == 0
    assert feed_items.prune(connection, before=at(101), limit=1) == 1
    assert feed_items.prune(connection, before=at(9_000_000), limit=9) == 1

    assert known(connection) == {"a": True, "b": True}
    assert feed_items.record_new(connection, 2, entries("d"), now=at(400)) == []
    assert [each.key for each in feed_items.record_new(connection, 1, entries("a", "b", "c"), now=at(400))] == ["c"]


def test_of_a_feed_that_is_never_read_whole_only_so_many_are_remembered_and_all_that_are_in_it(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_items, "KNOWN_MAX", 4)
    monkeypatch.setattr(feed_items, "FORGOTTEN_TOGETHER", 2)
    feed_items.record_new(connection, 2, entries("a"), now=at(0), is_whole=False)
    for now_s, keys in enumerate(("abc", "ade", "af", "ag")):
        feed_items.record_new(connection, 1, entries(*keys), now=at(now_s), is_whole=False)

    assert sorted(known(connection)) == ["a", "d", "e", "f", "g"]
    assert feed_items.record_new(connection, 2, entries("a"), now=at(9), is_whole=False) == []


def test_what_else_is_known_of_a_feed_is_read_with_the_last_of_what_is_new(connection: Connection) -> None:
    feed_items.record_new(connection, 1, entries("a", "b"), now=at(0))

    assert [each.key for each in feed_items.record_new(connection, 1, entries("c", "d", "a"), now=at(1), limit=1)] == [
        "c"
    ]
    assert known(connection) == {"a": True, "b": True, "c": True}
    assert [each.key for each in feed_items.record_new(connection, 1, entries("c", "d", "a"), now=at(2), limit=2)] == [
        "d"
    ]
    assert known(connection) == {"a": True, "b": False, "c": True, "d": True}


def test_of_two_that_take_in_at_once_only_one_calls_an_item_new(job_store: JobStore) -> None:
    one, two = at_once(
        job_store,
        lambda connection: feed_items.record_new(connection, 1, entries("a", "b"), now=NOW),
        lambda connection: feed_items.record_new(connection, 1, entries("b", "c"), now=NOW),
    )

    assert sorted(item.key for item in one + two) == ["a", "b", "c"]


def test_keys_that_are_alike_for_long_are_told_apart(connection: Connection) -> None:
    keys = [f"{'x' * 600}{number}" for number in range(3)]

    assert [each.key for each in feed_items.record_new(connection, 1, entries(*keys), now=NOW)] == keys
    assert feed_items.record_new(connection, 1, entries(*keys), now=NOW) == []


def fill(connection: Connection, count: int) -> None:
    """Many that are due later, and a few that are due."""
    connection.execute(
        text("""
            WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :count)
            INSERT INTO subscriptions (name, url, every_s, zone, origin, next_attempt_at, added_at)
            SELECT 'later ' || n, 'http://x.test/', 3600, 'UTC', 'bulk', :later + n, 0 FROM numbers
        """),
        {"count": count, "later": to_micros(at(3_600))},
    )
    for number in range(20):
        added(connection, FEED, new(f"due {number}"))


def check_some(connection: Connection) -> None:
    due = claim(connection)
    assert len(due) == 10
    for each in due:
        assert end(connection, each)
    feeds.next_due(connection)
    watches.release_unknown(connection, FEEDS, worker="me", known=())
    workers.free_claims(connection, "me", limit=5)
    workers.unknown_owners(connection)
    workers.delete_dead(connection)
    feed_claims.spread_overdue(connection, before=at(-1), now=NOW, limit=5)


@pytest.mark.slow("fills a table of two thousand subscriptions")
def test_checks_go_through_the_index_of_what_is_due(job_store: JobStore) -> None:
    with job_store.begin() as connection:
        hire(connection)
        fill(connection, 10 * FEW)
        connection.execute(text("ANALYZE"))

    with job_store.begin() as connection:
        plans = explain(connection, check_some) if connection.dialect.name == "postgresql" else explained(connection)

    assert any("subscriptions_due" in plan for plan in plans)
    assert any("subscriptions_claimed" in plan for plan in plans)
    assert not any(re.search("SCAN subscriptions(?! USING)", plan) for plan in plans)
    assert not any("Seq Scan on subscriptions" in plan for plan in plans)


def explained(connection: Connection) -> list[str]:
    """Hot statements go past SQLAlchemy to SQLite's driver: they are heard there."""
    driver, said = connection.connection.driver_connection, list[str]()
    assert isinstance(driver, sqlite3.Connection)
    driver.set_trace_callback(said.append)
    check_some(connection)
    driver.set_trace_callback(None)
    return ["\n".join(str(row) for row in driver.execute(f"EXPLAIN QUERY PLAN {each}")) for each in said]


@pytest.mark.slow("fills tables of a hundred thousand subscriptions")
def test_checks_in_sqlite_cost_the_same_however_many_there_are(sqlite_jobs: JobStore) -> None:
    costs = []
    with sqlite_jobs.begin() as connection:
        hire(connection)

    for count in (FEW, MANY):
        with sqlite_jobs.begin() as connection:
            connection.execute(text("DELETE FROM subscriptions"))
            fill(connection, count)
        costs.append(steps_of(sqlite_jobs, check_some))

    assert costs[1] <= 1.5 * costs[0]
