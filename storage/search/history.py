"""Search history."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from attrs import frozen
from sqlalchemy import Connection, text

from storage.engine.columns import kept_text, to_micros
from storage.engine.statements import FastStatement
from storage.tables import SEARCH_HISTORY, RowCodec

QUERY_LENGTH_MAX = 1_000
ERROR_LENGTH_MAX = 1_000
CONSUMER_LENGTH_MAX = 200


@frozen(kw_only=True)
class HistoryEntry:
    """One search at one source, after its end."""

    search_id: int
    task: int
    source: str
    query: str
    priority: int
    consumer: str = ""
    status: str
    results: int = 0
    started_at: datetime
    took_s: float = 0.0
    waited_s: float = 0.0
    error: str | None = None


ENTRY = RowCodec(SEARCH_HISTORY, HistoryEntry)


def record(connection: Connection, asked: Sequence[HistoryEntry]) -> None:
    """Keep how searches ended."""
    for each in asked:
        # By hand: this runs once for each search, and the codec takes ten times as long.
        _RECORD.change(
            connection,
            (
                each.search_id,
                each.task,
                each.source,
                kept_text(each.query, QUERY_LENGTH_MAX),
                each.priority,
                kept_text(each.consumer, CONSUMER_LENGTH_MAX),
                each.status,
                each.results,
                to_micros(each.started_at),
                each.took_s,
                each.waited_s,
                None if each.error is None else kept_text(each.error, ERROR_LENGTH_MAX),
            ),
        )


def recent(connection: Connection, *, limit: int = 100) -> list[HistoryEntry]:
    """The latest, newest first."""
    return [ENTRY.from_row(row) for row in connection.execute(_RECENT, {"limit": limit})]


def prune(connection: Connection, *, before: datetime, keep: int, limit: int) -> int:
    """Forget what is too old or too much, oldest first."""
    pruned: int = connection.execute(_PRUNE, {"before": to_micros(before), "keep": keep, "limit": limit}).rowcount
    return pruned


_RECORD = FastStatement(ENTRY.insert())
_RECENT = text(f"SELECT {ENTRY.columns} FROM search_history ORDER BY id DESC LIMIT :limit")
_PRUNE = text("""
    DELETE FROM search_history WHERE id IN (
        SELECT id FROM search_history
        WHERE started_at < :before OR id <= (SELECT max(id) FROM search_history) - :keep
        ORDER BY id LIMIT :limit)
""")
