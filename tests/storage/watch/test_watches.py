"""Saved searches in both databases: shared between processes, and those of the settings file follow it."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve
from sqlalchemy import Connection

from cormorant.rules.search.requests import SearchRequest
from cormorant.rules.watch.watches import SavedSearch
from storage.watch import watches
from storage.watch.watches import SavedSearchExists, UnknownSavedSearch
from tests.storage.at_once import at_once
from tests.storage.job_store import NOW, JobStore, at


def new(name: str = "n", **words: Any) -> SavedSearch:
    usual = SavedSearch(
        name=name,
        request=SearchRequest(query="words", categories=(3000,)),
        every_s=60.0,
        next_attempt_at=NOW,
        added_at=NOW,
    )
    return evolve(usual, **words)


def claim(connection: Connection, *, now_s: float = 0.0, limit: int = 10) -> list[SavedSearch]:
    return watches.claim(connection, now=at(now_s), until=at(now_s + 60), limit=limit)


def test_what_is_saved_is_read_as_it_was_and_a_name_is_used_once(connection: Connection) -> None:
    saved = watches.add(connection, new(sources=("a",), targets=("t",), profile="p"))

    assert watches.find(connection, "n") == saved
    with pytest.raises(SavedSearchExists, match="'n' already"):
        watches.add(connection, new())
    watches.remove(connection, "n")
    with pytest.raises(UnknownSavedSearch, match="no saved search 'n'"):
        watches.check_now(connection, "n", now=NOW)


def test_two_processes_share_what_is_due(job_store: JobStore) -> None:
    with job_store.begin() as connection:
        for name in "abcd":
            watches.add(connection, new(name))

    one, two = at_once(job_store, lambda c: claim(c, limit=3), lambda c: claim(c, limit=3))

    assert sorted(saved.name for saved in one + two) == ["a", "b", "c", "d"]


def test_a_claim_ends_by_itself_and_then_the_old_owner_writes_nothing(connection: Connection) -> None:
    watches.add(connection, new())
    [old] = claim(connection)
    assert claim(connection, now_s=59) == []
    [current] = claim(connection, now_s=60)

    assert not watches.end_check(connection, old, next_attempt_at=at(9_000), error=None, now=at(61))
    assert watches.end_check(connection, current, next_attempt_at=at(120), error="no", now=None)
    known = watches.find(connection, "n")
    assert (known.last_checked, known.last_error, known.failures) == (None, "no", 1)
    assert known.next_attempt_at == at(120)


def test_a_clock_that_ran_ahead_and_a_pause_are_told_apart(connection: Connection) -> None:
    watches.add(connection, new())
    claim(connection, now_s=366 * 86_400)
    assert [saved.name for saved in claim(connection)] == ["n"]

    watches.set_paused(connection, "n", is_paused=True)
    assert claim(connection, now_s=100) == []
    watches.set_paused(connection, "n", is_paused=False)
    assert len(claim(connection, now_s=100)) == 1


def test_those_of_the_settings_file_follow_it_and_keep_what_was_checked(connection: Connection) -> None:
    watches.add(connection, new("by hand"))
    watches.set_configured(connection, [new("a"), new("b")])
    for each in claim(connection):
        watches.end_check(connection, each, answered=["s"], next_attempt_at=at(500), error=None, now=at(5))

    watches.set_configured(connection, [new("b", every_s=90.0), new("c")])

    known = {saved.name: saved for saved in watches.all_saved(connection)}
    assert sorted(known) == ["b", "by hand", "c"]
    assert (known["b"].every_s, known["b"].last_checked, known["b"].next_attempt_at) == (90.0, at(5), at(500))
    assert (known["by hand"].origin, known["c"].last_checked) == ("by command", None)
    assert known["b"].answered == ("s",)
    other = new("b", request=SearchRequest(query="other words"))
    watches.set_configured(connection, [other])
    assert watches.find(connection, "b").answered == ()


def test_what_was_checked_by_a_clock_that_ran_ahead_is_due_again(connection: Connection) -> None:
    year_s = 365 * 86_400.0
    watches.add(connection, new())
    [early] = claim(connection, now_s=year_s)
    watches.end_check(connection, early, next_attempt_at=at(year_s + 600), error=None, now=at(year_s))

    assert [each.name for each in claim(connection, now_s=10.0)] == ["n"]
