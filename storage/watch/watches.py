"""Saved searches: add, remove, pause, claim and end a check."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from attrs import evolve
from sqlalchemy import Connection, text

from cormorant.rules.errors import CormorantError
from cormorant.rules.search.requests import SearchRequest
from cormorant.rules.watch.watches import FirstCheck, SavedSearch
from storage.engine.columns import check_text, from_micros, kept_text, to_micros
from storage.engine.statements import skip_locked
from storage.search import sources
from storage.search.sources import SourceRecord

CONFIGURED = "configured"
ERROR_LENGTH_MAX = 500
AHEAD = timedelta(days=1)
"""No claim lasts that long: one that ends later was made by a clock that ran ahead."""


class UnknownSavedSearch(CormorantError):
    """No saved search has this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no saved search {name!r}; `cormorant saved list` shows them")


class SavedSearchConfigured(CormorantError):
    """A saved search stands in the settings file, and is changed there."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the saved search {name!r} is one of the settings file; take [saved.{name}] out of it")


class SavedSearchExists(CormorantError):
    """A saved search of this name is there already."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is a saved search {name!r} already; choose another name, or remove it first")


def add(connection: Connection, saved: SavedSearch) -> SavedSearch:
    """Save a search, or `SavedSearchExists`."""
    found: int | None = connection.execute(_ADD, _plain(saved)).scalar_one_or_none()
    if found is None:
        raise SavedSearchExists(saved.name)
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
        connection.execute(_CONFIGURE, _plain(evolve(saved, origin=CONFIGURED)))


def remove(connection: Connection, name: str) -> None:
    """Repeat it no more. What was found stays."""
    if not connection.execute(_REMOVE, {"name": check_text(name)}).rowcount:
        raise UnknownSavedSearch(name)


def remove_added(connection: Connection, name: str) -> None:
    """Remove a saved search that was added. Raises `SavedSearchConfigured` for one of the settings file."""
    if find(connection, name).origin == CONFIGURED:
        raise SavedSearchConfigured(name)
    remove(connection, name)


def all_saved(connection: Connection) -> list[SavedSearch]:
    """All of them, by name."""
    return [_saved(row) for row in connection.execute(_ALL)]


def find(connection: Connection, name: str) -> SavedSearch:
    """One of them, or `UnknownSavedSearch`."""
    row = connection.execute(_FIND, {"name": check_text(name)}).one_or_none()
    if row is None:
        raise UnknownSavedSearch(name)
    return _saved(row)


def claim(connection: Connection, *, now: datetime, until: datetime, limit: int) -> list[SavedSearch]:
    """Take due searches in hand, so that no other process does until `until`."""
    words = {"now": to_micros(now), "until": to_micros(until), "ahead": to_micros(now + AHEAD), "limit": limit}
    rows = connection.execute(skip_locked(connection, _CLAIM), words)
    return sorted((_saved(row) for row in rows), key=lambda saved: (saved.next_attempt_at, saved.id))


def end_check(
    connection: Connection,
    saved: SavedSearch,
    *,
    answered: Iterable[str] = (),
    next_attempt_at: datetime,
    error: str | None,
    now: datetime | None,
) -> bool:
    """A check has ended, or, without `now`, did not happen. False: it is no longer ours."""
    words = {
        "id": saved.id,
        "token": saved.token,
        "answered": json.dumps(sorted({*saved.answered, *answered})),
        "next": to_micros(next_attempt_at),
        "now": None if now is None else to_micros(now),
        "error": None if error is None else kept_text(error, ERROR_LENGTH_MAX),
        "failed": 0 if error is None else 1,
    }
    return connection.execute(_END, words).rowcount > 0


def set_paused(connection: Connection, name: str, *, is_paused: bool) -> None:
    """Leave it alone, or go on."""
    if not connection.execute(_PAUSE, {"name": check_text(name), "is_paused": is_paused}).rowcount:
        raise UnknownSavedSearch(name)


def check_now(connection: Connection, name: str, *, now: datetime) -> None:
    """Repeat it at once."""
    if not connection.execute(_CHECK_NOW, {"name": check_text(name), "now": to_micros(now)}).rowcount:
        raise UnknownSavedSearch(name)


def dump_request(request: SearchRequest) -> str:
    """A search as text."""
    words = {
        "query": request.query,
        "kind": request.kind,
        "categories": list(request.categories),
        "params": dict(request.params),
    }
    return json.dumps(words)


def _plain(saved: SavedSearch) -> dict[str, Any]:
    return {
        "name": check_text(saved.name),
        "request": dump_request(saved.request),
        "every_s": saved.every_s,
        "sources": json.dumps(saved.sources),
        "profile": saved.profile,
        "targets": json.dumps(saved.targets),
        "origin": saved.origin,
        "first_check": saved.first_check.value,
        "is_paused": saved.is_paused,
        "next": to_micros(saved.next_attempt_at),
        "now": to_micros(saved.added_at),
    }


def _saved(row: Any) -> SavedSearch:
    return SavedSearch(
        id=row.id,
        name=row.name,
        request=SearchRequest(**json.loads(row.request)),
        every_s=row.every_s,
        sources=tuple(json.loads(row.sources)),
        profile=row.profile,
        targets=tuple(json.loads(row.targets)),
        origin=row.origin,
        first_check=FirstCheck(row.first_check),
        answered=tuple(json.loads(row.answered)),
        is_paused=bool(row.is_paused),
        next_attempt_at=from_micros(row.next_attempt_at),
        last_checked=None if row.last_checked is None else from_micros(row.last_checked),
        last_error=row.last_error,
        failures=row.failures,
        added_at=from_micros(row.added_at),
        token=row.token,
    )


_INSERT = """
    INSERT INTO saved_searches (name, request, every_s, sources, profile, targets, origin, first_check, is_paused,
                                next_attempt_at, added_at)
    VALUES (:name, :request, :every_s, :sources, :profile, :targets, :origin, :first_check, :is_paused, :next, :now)
"""
_ADD = text(f"{_INSERT} ON CONFLICT (name) DO NOTHING RETURNING id")
_CONFIGURE = text(f"""
    {_INSERT} ON CONFLICT (name) DO UPDATE SET request = excluded.request, every_s = excluded.every_s,
        sources = excluded.sources, profile = excluded.profile, targets = excluded.targets, origin = excluded.origin,
        answered = CASE WHEN saved_searches.request = excluded.request THEN saved_searches.answered ELSE '[]' END
""")
_REMOVE = text("DELETE FROM saved_searches WHERE name = :name")
_ALL = text("SELECT * FROM saved_searches ORDER BY name")
_FIND = text("SELECT * FROM saved_searches WHERE name = :name")
_CLAIM = """
    UPDATE saved_searches SET claimed_until = :until, token = token + 1 WHERE id IN (
        SELECT id FROM saved_searches
        WHERE NOT is_paused AND (next_attempt_at <= :now OR last_checked > :ahead)
              AND (claimed_until IS NULL OR claimed_until <= :now OR claimed_until > :ahead)
        ORDER BY next_attempt_at, id LIMIT :limit {lock})
    RETURNING *
"""
_END = text("""
    UPDATE saved_searches SET claimed_until = NULL, next_attempt_at = :next, last_checked = COALESCE(:now, last_checked),
        last_error = :error, answered = :answered, failures = CASE WHEN :failed = 1 THEN failures + 1 ELSE 0 END
    WHERE id = :id AND token = :token
""")
_PAUSE = text("UPDATE saved_searches SET is_paused = :is_paused WHERE name = :name")
_CHECK_NOW = text("UPDATE saved_searches SET next_attempt_at = :now WHERE name = :name")
