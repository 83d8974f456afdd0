"""Which source has answered for which durable search? So that one that was interrupted asks nobody twice."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from attrs import field, frozen
from sqlalchemy import Connection, text

from cormorant.rules.search.requests import Result
from storage.engine.columns import from_micros, to_micros
from storage.search.results import dump_results, load_results


@frozen(kw_only=True)
class SourceAnswer:
    """How a durable search ended at one source."""

    source: str
    status: str
    answered_at: datetime
    results: Sequence[Result] = field(default=(), repr=lambda results: f"<{len(results)}>")
    error: str | None = None


def read(connection: Connection, job_id: int) -> dict[str, SourceAnswer]:
    """What is known of a durable search, by source."""
    return {
        row.source: SourceAnswer(
            source=row.source,
            status=row.status,
            answered_at=from_micros(row.answered_at),
            results=load_results(row.results),
            error=row.error,
        )
        for row in connection.execute(_READ, {"job_id": job_id})
    }


def write(connection: Connection, job_id: int, entries: Sequence[SourceAnswer]) -> None:
    """Take down answers."""
    for entry in entries:
        connection.execute(
            _WRITE,
            {
                "job_id": job_id,
                "source": entry.source,
                "status": entry.status,
                "answered_at": to_micros(entry.answered_at),
                "results": dump_results(entry.results),
                "error": entry.error,
            },
        )


def forget(connection: Connection, job_id: int) -> None:
    """Let a durable search begin anew."""
    connection.execute(_FORGET, {"job_id": job_id})


def prune(connection: Connection, *, limit: int) -> int:
    """Forget the answers of searches whose jobs are forgotten."""
    pruned: int = connection.execute(_PRUNE, {"limit": limit}).rowcount
    return pruned


_READ = text(
    "SELECT source, status, answered_at, results, error FROM search_ledger WHERE job_id = :job_id ORDER BY source"
)
_WRITE = text("""
    INSERT INTO search_ledger (job_id, source, status, answered_at, results, error)
    VALUES (:job_id, :source, :status, :answered_at, :results, :error)
    ON CONFLICT (job_id, source) DO UPDATE SET status = excluded.status, answered_at = excluded.answered_at,
        results = excluded.results, error = excluded.error
""")
_FORGET = text("DELETE FROM search_ledger WHERE job_id = :job_id")
_PRUNE = text("""
    DELETE FROM search_ledger WHERE job_id IN (
        SELECT DISTINCT job_id FROM search_ledger
        WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.id = search_ledger.job_id) LIMIT :limit)
""")
