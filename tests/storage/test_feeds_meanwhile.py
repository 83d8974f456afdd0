"""Subscriptions that are changed while they are in hand, and items that come bit by bit, in both databases."""

from __future__ import annotations

import pytest
from attrs import evolve
from sqlalchemy import Connection

from cormorant.rules.schedules import Schedule
from storage import pauses
from storage.watch import feed_claims, feed_items, feeds, watches
from storage.watch.feeds import FEED
from tests.storage.job_store import at
from tests.storage.watch.test_feeds import claim, end, entries, new
from tests.watch_kinds import added


def test_what_is_paused_meanwhile_is_checked_only_where_that_is_allowed(connection: Connection) -> None:
    for name in "ab":
        added(connection, FEED, new(name))
    held = claim(connection)
    watches.set_paused(connection, FEED, "a", is_paused=True, now=at(1))

    def may_check(*, even_paused: bool) -> list[bool]:
        return [feed_claims.is_held(connection, each, even_paused=even_paused) for each in held]

    assert (may_check(even_paused=False), may_check(even_paused=True)) == ([False, True], [True, True])
    pauses.set_all(connection, is_paused=True, now=at(2))
    assert (may_check(even_paused=False), may_check(even_paused=True)) == ([False, False], [True, True])
    assert [feed_claims.lock(connection, each) for each in held] == [True, True]


@pytest.mark.parametrize("error", [None, "no"])
def test_a_later_time_that_is_given_during_a_check_is_kept_and_an_earlier_one_was_that_check(
    connection: Connection, error: str | None
) -> None:
    for name in ("later", "now", "left alone"):
        added(connection, FEED, new(name))
    held = {each.name: each for each in claim(connection)}
    feeds.reschedule(connection, held["later"].id, at(9_000))
    feeds.reschedule(connection, held["now"].id, at(4))

    for each in held.values():
        assert end(connection, each, now_s=5, error=error)

    found = {each.name: each.next_attempt_at for each in watches.page(connection, FEED)}
    assert found == {"later": at(9_000), "now": at(3_605), "left alone": at(3_605)}


@pytest.mark.parametrize("error", [None, "no"])
def test_who_resumes_one_during_a_check_after_failures_begins_anew_at_once(
    connection: Connection, error: str | None
) -> None:
    added(connection, FEED, new())
    [first] = claim(connection)
    end(connection, first, error="no", failures=9, effective_s=7_200.0)
    [held] = claim(connection, now_s=4_000)
    watches.set_paused(connection, FEED, "n", is_paused=False, now=at(4_001))

    why = None if error is None else "ten failures"
    failures = 0 if error is None else 10
    assert end(connection, held, now_s=4_005, error=error, failures=failures, effective_s=9.0, paused_because=why)

    known = watches.find(connection, FEED, "n")
    assert (known.is_paused, known.paused_because, known.failures) == (False, None, 0)
    assert (known.effective_s, known.next_attempt_at, known.last_error) == (None, at(4_001), error)


def test_other_settings_take_one_out_of_the_hands_of_who_checks_it(connection: Connection) -> None:
    names = ("same", "address", "times")
    feeds.set_configured(connection, [new(name) for name in names])
    held = {each.name: each for each in claim(connection)}

    changed = [new("same"), new("address", url="http://y.test/"), new("times", schedule=Schedule(every_s=60))]
    feeds.set_configured(connection, [evolve(each, accept=("a",)) for each in changed])

    assert {each.name for each in claim(connection)} == {"address", "times"}
    assert {name: end(connection, held[name]) for name in names} == {"same": True, "address": False, "times": False}


def test_new_items_come_in_their_order_some_at_a_time_and_the_last_of_them_say_what_is_gone(
    connection: Connection,
) -> None:
    feed_items.record_new(connection, 1, entries("old", "back"), now=at(0))
    feed_items.record_new(connection, 1, entries("old"), now=at(10))
    feed = entries("d", "back", "a", "c", "b")

    parts = [
        [each.key for each in feed_items.record_new(connection, 1, feed, now=at(at_s), limit=2)]
        for at_s in (20, 30, 40)
    ]

    assert parts == [["d", "a"], ["c", "b"], []]
    assert feed_items.prune(connection, before=at(40), limit=9) == 0
    assert feed_items.prune(connection, before=at(41), limit=9) == 1
    assert feed_items.record_new(connection, 1, feed, now=at(50)) == []
