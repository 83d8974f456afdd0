"""Saved searches: add, remove, pause, find due ones and end a check."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

from attrs import evolve
from sqlalchemy import Connection, text

from cormorant.rules.search.requests import SearchRequest
from cormorant.rules.watch.watches import SavedSearch
from storage.engine.columns import check_text, kept_text, to_micros
from storage.jobs import jobs
from storage.jobs.jobs import NewJob
from storage.search import answers, sources
from storage.search.sources import SourceRecord
from storage.tables import SAVED_SEARCHES, RowCodec, excluded
from storage.watch import watches
from storage.watch.watches import WatchKind

CONFIGURED = "configured"
ERROR_LENGTH_MAX = 500
SAVED = RowCodec(SAVED_SEARCHES, SavedSearch, also=("request",))


KIND = WatchKind(what="saved search", command="saved", section="saved")


def add(connection: Connection, saved: SavedSearch) -> SavedSearch:
    """Save a search, or `AlreadyExists`."""
    found: int | None = connection.execute(_ADD, _row(saved)).scalar_one_or_none()
    if found is None:
        raise KIND.already_exists(saved.name)
    return evolve(saved, id=found)


def add_checked(
    connection: Connection, saved: SavedSearch, *, check: Callable[[Sequence[SourceRecord]], None]
) -> SavedSearch:
    """As `add`. `check` raises if a source does not fit."""
    check(sources.all_sources(connection))
    return add(connection, saved)


def set_configured(connection: Connection, wanted: Sequence[SavedSearch]) -> None:
    """Make those of the settings file what it says now. Others are left alone.

    What was checked stays checked, unless it searches for something else now.
    """
    there = {each.name: each for each in all_saved(connection)}
    names = {each.name for each in wanted}
    for name, saved in there.items():
        if saved.origin == CONFIGURED and name not in names:
            remove(connection, name)
    for saved in sorted(wanted, key=lambda each: each.name):
        connection.execute(_CONFIGURE, _row(evolve(saved, origin=CONFIGURED)))


def remove(connection: Connection, name: str) -> None:
    """Repeat it no more. What was found stays."""
    if not connection.execute(_REMOVE, {"name": check_text(name)}).rowcount:
        raise KIND.not_found(name)


def remove_added(connection: Connection, name: str) -> None:
    """Remove a saved search that was added. Raises `SetInFile` for one of the settings file."""
    if find(connection, name).origin == CONFIGURED:
        raise KIND.set_in_file(name)
    remove(connection, name)


def all_saved(connection: Connection) -> list[SavedSearch]:
    """All of them, by name."""
    return [_saved(row) for row in connection.execute(_ALL)]


def find(connection: Connection, name: str) -> SavedSearch:
    """One of them, or `NotFound`."""
    row = connection.execute(_FIND, {"name": check_text(name)}).one_or_none()
    if row is None:
        raise KIND.not_found(name)
    return _saved(row)


def by_id(connection: Connection, number: int) -> SavedSearch | None:
    """One of them; None when it is gone."""
    row = connection.execute(_BY_ID, {"id": number}).one_or_none()
    return None if row is None else _saved(row)


def due(connection: Connection, *, now: datetime, limit: int) -> list[SavedSearch]:
    """Saved searches that are due, the longest due first."""
    return [_saved(row) for row in watches.due_for_jobs(connection, SAVED, now=now, limit=limit)]


def end_check(
    connection: Connection,
    saved: SavedSearch,
    *,
    answered: Iterable[str] = (),
    error: str | None,
    has_ended: bool = True,
    now: datetime | None,
) -> bool:
    """Record what a check has brought; without `now` no source has answered. False: the search was removed.

    Unless it `has_ended`, an error is not counted as a failure yet.
    """
    words = {
        "id": saved.id,
        "answered": json.dumps(sorted({*saved.answered, *answered})),
        "now": None if now is None else to_micros(now),
        "error": None if error is None else kept_text(error, ERROR_LENGTH_MAX),
        "failed": 0 if error is None else 1,
        "ended": has_ended,
    }
    return connection.execute(_END, words).rowcount > 0


def set_paused(connection: Connection, name: str, *, is_paused: bool) -> None:
    """Leave it alone, or go on."""
    if not connection.execute(_PAUSE, {"name": check_text(name), "is_paused": is_paused}).rowcount:
        raise KIND.not_found(name)


def check_now(
    connection: Connection, name: str, *, make_job: Callable[[SavedSearch], NewJob], now: datetime
) -> SavedSearch:
    """Repeat it at once, also while it is paused."""
    saved = find(connection, name)
    job = make_job(saved)
    answers.drop_answers(connection, jobs.enqueue(connection, job, now=now).id)  # all sources are asked again
    watches.make_due_now(connection, [job], now=now)
    return saved


def dump_request(request: SearchRequest) -> str:
    """A search as text."""
    words = {
        "query": request.query,
        "kind": request.kind,
        "categories": list(request.categories),
        "params": dict(request.params),
    }
    return json.dumps(words)


def _row(saved: SavedSearch) -> dict[str, Any]:
    return SAVED.to_row(saved, request=dump_request(saved.request))


def _saved(row: Any) -> SavedSearch:
    return SAVED.from_row(row, request=SearchRequest(**json.loads(row.request)))


_ADD = text(f"{SAVED.insert()} ON CONFLICT (name) DO NOTHING RETURNING id")
_WRITTEN = ("request", "every_s", "sources", "profile", "targets", "origin")
_CONFIGURE = text(f"""
    {SAVED.insert()} ON CONFLICT (name) DO UPDATE SET {excluded(_WRITTEN)},
        answered = CASE WHEN saved_searches.request = excluded.request THEN saved_searches.answered ELSE '[]' END
""")
_REMOVE = text("DELETE FROM saved_searches WHERE name = :name")
_ALL = text(f"SELECT {SAVED.columns} FROM saved_searches ORDER BY name")
_FIND = text(f"SELECT {SAVED.columns} FROM saved_searches WHERE name = :name")
_BY_ID = text(f"SELECT {SAVED.columns} FROM saved_searches WHERE id = :id")
_END = text("""
    UPDATE saved_searches SET last_checked = COALESCE(:now, last_checked), last_error = :error, answered = :answered,
        failures = CASE WHEN NOT :ended THEN failures WHEN :failed = 1 THEN failures + 1 ELSE 0 END
    WHERE id = :id
""")
_PAUSE = text("UPDATE saved_searches SET is_paused = :is_paused WHERE name = :name")
