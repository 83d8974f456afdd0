"""Saved searches beyond the common verbs: the end of a check."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, text
from typing_extensions import override

from cormorant.rules.search.requests import SearchRequest
from cormorant.rules.settings.watch import SavedSettings
from cormorant.rules.watch.watches import SavedSearch, fields_set_by
from storage.engine.columns import kept_text, maybe_to_micros
from storage.tables import SAVED_SEARCHES, RowCodec
from storage.watch.watches import WatchKind

ERROR_LENGTH_MAX = 500


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
        "now": maybe_to_micros(now),
        "error": None if error is None else kept_text(error, ERROR_LENGTH_MAX),
        "failed": 0 if error is None else 1,
        "ended": has_ended,
    }
    return connection.execute(_END, words).rowcount > 0


def dump_request(request: SearchRequest) -> str:
    """A search as text."""
    words = {
        "query": request.query,
        "kind": request.kind,
        "categories": list(request.categories),
        "params": dict(request.params),
    }
    return json.dumps(words)


class _SavedSearchCodec(RowCodec[SavedSearch]):
    """The request of a search is one column."""

    @override
    def to_row(self, thing: SavedSearch, **more: Any) -> dict[str, Any]:
        return super().to_row(thing, request=dump_request(thing.request), **more)

    @override
    def from_row(self, row: Any, **more: Any) -> SavedSearch:
        return super().from_row(row, request=SearchRequest(**json.loads(row.request)), **more)


SAVED = WatchKind(
    codec=_SavedSearchCodec(SAVED_SEARCHES, SavedSearch, also=("request",)),
    what="saved search",
    command="saved",
    section="saved",
    set_by_file=("request", "origin", *fields_set_by(SavedSettings, SavedSearch)),
    set_with_file="answered = CASE WHEN saved_searches.request = excluded.request THEN saved_searches.answered ELSE '[]' END",
)
_END = text("""
    UPDATE saved_searches SET last_checked = COALESCE(:now, last_checked), last_error = :error, answered = :answered,
        failures = CASE WHEN NOT :ended THEN failures WHEN :failed = 1 THEN failures + 1 ELSE 0 END
    WHERE id = :id
""")
