"""Saved searches in both databases: shared between processes, and those of the settings file follow it."""

from __future__ import annotations

from typing import Any

from attrs import evolve
from sqlalchemy import Connection

from cormorant.rules.search.requests import SearchRequest
from cormorant.rules.watch.watches import SavedSearch, next_check
from storage.jobs.jobs import NewJob
from storage.tables import SAVED_SEARCHES
from storage.watch import saved_searches, watches
from storage.watch.saved_searches import SAVED
from tests.storage.job_store import NOW, at, new_job
from tests.watch_kinds import added


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


def jobs_of(saved: SavedSearch) -> list[NewJob]:
    return [new_job(dedupe_key=saved.name, run_at=at(500))]


def test_the_end_of_a_check_is_kept_unless_the_search_was_removed(connection: Connection) -> None:
    added(connection, SAVED, new())
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


def test_those_of_the_settings_file_follow_it_and_keep_what_was_checked(connection: Connection) -> None:
    added(connection, SAVED, new("by hand"))
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
