"""Saved searches in both databases: shared between processes, and those of the settings file follow it."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve
from sqlalchemy import Connection

from cormorant.rules.errors import AlreadyExists, NotFound
from cormorant.rules.search.requests import SearchRequest
from cormorant.rules.watch.watches import SavedSearch, next_check
from storage.jobs.jobs import NewJob
from storage.tables import SAVED_SEARCHES
from storage.watch import saved_searches, watches
from storage.watch.saved_searches import SAVED
from tests.storage.at_once import at_once
from tests.storage.job_store import NOW, JobStore, at, new_job, take


def new(name: str = "n", **words: Any) -> SavedSearch:
    usual = SavedSearch(
        name=name,
        request=SearchRequest(query="words", categories=(3000,)),
        every_s=60.0,
        next_attempt_at=NOW,
        added_at=NOW,
    )
    return evolve(usual, **words)


def take_due(connection: Connection, *, now_s: float = 0.0, limit: int = 10) -> list[SavedSearch]:
    now = at(now_s)
    return [
        each
        for each in watches.due(connection, SAVED, now=now, limit=limit)
        if watches.take(
            connection,
            SAVED_SEARCHES,
            (each.id, each.token),
            next_attempt_at=next_check(due=each.next_attempt_at, every_s=each.every_s, now=now),
        )
    ]


def job_of(saved: SavedSearch) -> NewJob:
    return new_job(dedupe_key=saved.name, run_at=at(500))


def test_what_is_saved_is_read_as_it_was_and_a_name_is_used_once(connection: Connection) -> None:
    saved = watches.add(connection, SAVED, new(sources=("a",), targets=("t",), profile="p"))

    assert watches.find(connection, SAVED, "n") == saved
    with pytest.raises(AlreadyExists, match="'n' already"):
        watches.add(connection, SAVED, new())
    watches.remove(connection, SAVED, "n")
    with pytest.raises(NotFound, match="no saved search 'n'"):
        saved_searches.check_now(connection, "n", make_job=job_of, now=NOW)


def test_two_processes_share_what_is_due(job_store: JobStore) -> None:
    with job_store.begin() as connection:
        for name in "abcd":
            watches.add(connection, SAVED, new(name))

    one, two = at_once(job_store, take_due, take_due)

    assert sorted(saved.name for saved in one + two) == ["a", "b", "c", "d"]


def test_what_was_taken_meanwhile_is_not_taken_again(connection: Connection) -> None:
    watches.add(connection, SAVED, new())
    [old] = watches.due(connection, SAVED, now=NOW, limit=9)
    assert watches.take(connection, SAVED_SEARCHES, (old.id, old.token), next_attempt_at=at(60))

    assert not watches.take(connection, SAVED_SEARCHES, (old.id, old.token), next_attempt_at=at(9_000))

    known = watches.find(connection, SAVED, "n")
    assert (known.next_attempt_at, known.token) == (at(60), old.token + 1)


def test_the_end_of_a_check_is_kept_unless_the_search_was_removed(connection: Connection) -> None:
    watches.add(connection, SAVED, new())
    [taken] = take_due(connection)

    ends = [
        saved_searches.end_check(connection, taken, error="no", now=None),
        saved_searches.end_check(connection, taken, error="no\0pe", now=None),
    ]
    failed = watches.find(connection, SAVED, "n")
    ends.append(saved_searches.end_check(connection, taken, answered=["s"], error=None, now=at(61)))
    known = watches.find(connection, SAVED, "n")
    watches.remove(connection, SAVED, "n")

    assert ends == [True, True, True]
    assert (failed.last_checked, failed.last_error, failed.failures) == (None, "nope", 2)
    assert (known.last_checked, known.last_error, known.failures, known.answered) == (at(61), None, 0, ("s",))
    assert known.next_attempt_at == at(60)
    assert not saved_searches.end_check(connection, taken, error=None, now=at(62))


def test_a_clock_that_ran_ahead_and_a_pause_are_told_apart(connection: Connection) -> None:
    watches.add(connection, SAVED, new())
    take_due(connection, now_s=366 * 86_400)
    assert [saved.name for saved in take_due(connection)] == ["n"]

    watches.set_paused(connection, SAVED, "n", is_paused=True)
    assert take_due(connection, now_s=100) == []
    watches.set_paused(connection, SAVED, "n", is_paused=False)
    assert len(take_due(connection, now_s=100)) == 1


def test_one_that_is_asked_for_is_repeated_at_once_also_while_it_is_paused(connection: Connection) -> None:
    watches.add(connection, SAVED, new())
    watches.set_paused(connection, SAVED, "n", is_paused=True)

    for _ in range(2):
        saved_searches.check_now(connection, "n", make_job=job_of, now=NOW)

    [job] = take(connection)
    assert job.run_at == NOW


def test_those_of_the_settings_file_follow_it_and_keep_what_was_checked(connection: Connection) -> None:
    watches.add(connection, SAVED, new("by hand"))
    watches.set_configured(connection, SAVED, [new("a"), new("b")])
    for each in take_due(connection):
        saved_searches.end_check(connection, each, answered=["s"], error=None, now=at(5))

    watches.set_configured(connection, SAVED, [new("b", every_s=90.0), new("c")])

    known = {saved.name: saved for saved in watches.all_of(connection, SAVED)}
    assert sorted(known) == ["b", "by hand", "c"]
    assert (known["b"].every_s, known["b"].last_checked, known["b"].next_attempt_at) == (90.0, at(5), at(60))
    assert (known["by hand"].origin, known["c"].last_checked) == ("by command", None)
    assert known["b"].answered == ("s",)
    other = new("b", request=SearchRequest(query="other words"))
    watches.set_configured(connection, SAVED, [other])
    assert watches.find(connection, SAVED, "b").answered == ()


def test_what_was_checked_by_a_clock_that_ran_ahead_is_due_again(connection: Connection) -> None:
    year_s = 365 * 86_400.0
    watches.add(connection, SAVED, new())
    [early] = take_due(connection, now_s=year_s)
    saved_searches.end_check(connection, early, error=None, now=at(year_s))

    assert [each.name for each in take_due(connection, now_s=10.0)] == ["n"]
