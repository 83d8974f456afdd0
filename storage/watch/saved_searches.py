"""Saved searches beyond the common verbs: adding one, the end of a check, and a check by hand."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, text

from cormorant.rules.search.requests import SearchRequest
from cormorant.rules.watch.watches import SavedSearch
from storage.engine.columns import kept_text, to_micros
from storage.jobs import jobs
from storage.jobs.jobs import NewJob
from storage.search import answers, sources
from storage.search.sources import SourceRecord
from storage.tables import SAVED_SEARCHES, RowCodec
from storage.watch import watches
from storage.watch.watches import WatchKind

ERROR_LENGTH_MAX = 500
_CODEC = RowCodec(SAVED_SEARCHES, SavedSearch, also=("request",))


def add_checked(
    connection: Connection, saved: SavedSearch, *, check: Callable[[Sequence[SourceRecord]], None]
) -> SavedSearch:
    """Save a search, or `AlreadyExists`. `check` raises if a source does not fit."""
    check(sources.all_sources(connection))
    return watches.add(connection, SAVED, saved)


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


def check_now(
    connection: Connection, name: str, *, make_job: Callable[[SavedSearch], NewJob], now: datetime
) -> SavedSearch:
    """Repeat it at once, also while it is paused."""
    saved = watches.find(connection, SAVED, name)
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
    return _CODEC.to_row(saved, request=dump_request(saved.request))


def _saved(row: Any) -> SavedSearch:
    return _CODEC.from_row(row, request=SearchRequest(**json.loads(row.request)))


SAVED = WatchKind(
    codec=_CODEC,
    what="saved search",
    command="saved",
    section="saved",
    set_by_file=("request", "every_s", "sources", "profile", "targets", "origin"),
    set_with_file="answered = CASE WHEN saved_searches.request = excluded.request THEN saved_searches.answered ELSE '[]' END",
    to_row=_row,
    from_row=_saved,
)
_END = text("""
    UPDATE saved_searches SET last_checked = COALESCE(:now, last_checked), last_error = :error, answered = :answered,
        failures = CASE WHEN NOT :ended THEN failures WHEN :failed = 1 THEN failures + 1 ELSE 0 END
    WHERE id = :id
""")
