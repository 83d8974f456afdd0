"""Cached answers, results as JSON, and which source has answered a durable search."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from attrs import field, frozen
from sqlalchemy import Connection, bindparam, text

from cormorant.rules.search.requests import Result
from storage.engine.columns import changed_fields, known_fields, to_micros
from storage.tables import SEARCH_LEDGER, RowCodec, excluded


def find_cached(
    connection: Connection, source_ids: Sequence[int], key: str, *, now: datetime
) -> Mapping[int, list[Result]]:
    """The answers that are still fresh, by source."""
    if not source_ids:
        return {}
    words = {"source_ids": sorted(source_ids), "key": key, "now": to_micros(now)}
    return {row.source_id: load_results(row.results) for row in connection.execute(_FIND_CACHED, words)}


def put_cached(
    connection: Connection, source_id: int, key: str, results: Sequence[Result], *, ttl_s: float, now: datetime
) -> None:
    """Keep an answer for a while."""
    if ttl_s <= 0:
        drop_cached(connection, source_id, key)
        return
    words = {
        "source_id": source_id,
        "key": key,
        "now": to_micros(now),
        "expires_at": to_micros(now + timedelta(seconds=ttl_s)),
        "results": dump_results(results),
    }
    connection.execute(_PUT_CACHED, words)


def drop_cached(connection: Connection, source_id: int, key: str) -> None:
    """Forget an answer: the source has failed since."""
    connection.execute(_DROP_CACHED, {"source_id": source_id, "key": key})


def dump_results(results: Sequence[Result]) -> str:
    """Finds as text."""
    return json.dumps([_plain(result) for result in results])


def load_results(written: str) -> list[Result]:
    """The finds that a text means."""
    return [_result(plain) for plain in json.loads(written)]


def _plain(result: Result) -> dict[str, Any]:
    return {name: _value(value) for name, value in changed_fields(result).items()}


def _value(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, tuple | str | int | float) or value is None:
        return value
    return {name: list(values) for name, values in value.items()}


def _result(plain: dict[str, Any]) -> Result:
    values = known_fields(Result, plain)
    if values.get("published") is not None:
        values["published"] = datetime.fromisoformat(values["published"])
    values["categories"] = tuple(values.get("categories", ()))
    values["attributes"] = {name: tuple(each) for name, each in values.get("attributes", {}).items()}
    return Result(**values)


@frozen(kw_only=True)
class SourceAnswer:
    """How a durable search ended at one source."""

    source: str
    status: str
    answered_at: datetime
    results: Sequence[Result] = field(default=(), repr=lambda results: f"<{len(results)}>")
    error: str | None = None


def read_answers(connection: Connection, job_id: int) -> dict[str, SourceAnswer]:
    """What is known of a durable search, by source."""
    return {
        row.source: _ANSWER.from_row(row, results=load_results(row.results))
        for row in connection.execute(_READ_ANSWERS, {"job_id": job_id})
    }


def record_answers(connection: Connection, job_id: int, entries: Sequence[SourceAnswer]) -> None:
    """Take down answers."""
    for entry in entries:
        connection.execute(_RECORD_ANSWERS, _ANSWER.to_row(entry, results=dump_results(entry.results), job_id=job_id))


def drop_answers(connection: Connection, job_id: int) -> None:
    """Let a durable search begin anew."""
    connection.execute(_DROP_ANSWERS, {"job_id": job_id})


def prune_answers(connection: Connection, *, limit: int) -> int:
    """Forget the answers of searches whose jobs are forgotten."""
    pruned: int = connection.execute(_PRUNE_ANSWERS, {"limit": limit}).rowcount
    return pruned


_FIND_CACHED = text("""
    SELECT source_id, results FROM search_cache
    WHERE source_id IN :source_ids AND key = :key AND expires_at > :now AND stored_at <= :now
""").bindparams(bindparam("source_ids", expanding=True))
_PUT_CACHED = text("""
    INSERT INTO search_cache (source_id, key, stored_at, expires_at, results)
    VALUES (:source_id, :key, :now, :expires_at, :results)
    ON CONFLICT (source_id, key) DO UPDATE SET stored_at = excluded.stored_at, expires_at = excluded.expires_at,
                                               results = excluded.results
""")
_DROP_CACHED = text("DELETE FROM search_cache WHERE source_id = :source_id AND key = :key")
_ANSWER = RowCodec(SEARCH_LEDGER, SourceAnswer, also=("results",))
_READ_ANSWERS = text(f"SELECT {_ANSWER.columns} FROM search_ledger WHERE job_id = :job_id ORDER BY source")
_RECORD_ANSWERS = text(f"""
    {_ANSWER.insert("job_id")}
    ON CONFLICT (job_id, source) DO UPDATE SET {excluded(("status", "answered_at", "results", "error"))}
""")
_DROP_ANSWERS = text("DELETE FROM search_ledger WHERE job_id = :job_id")
_PRUNE_ANSWERS = text("""
    DELETE FROM search_ledger WHERE job_id IN (
        SELECT DISTINCT job_id FROM search_ledger
        WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.id = search_ledger.job_id) LIMIT :limit)
""")
