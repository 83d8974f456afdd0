"""What did a source answer lately? So that the same question is not asked twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from sqlalchemy import Connection, bindparam, text

from cormorant.rules.search.requests import Result
from storage.engine.columns import to_micros
from storage.search.results import dump_results, load_results


def find(connection: Connection, source_ids: Sequence[int], key: str, *, now: datetime) -> Mapping[int, list[Result]]:
    """The answers that are still fresh, by source."""
    if not source_ids:
        return {}
    words = {"source_ids": sorted(source_ids), "key": key, "now": to_micros(now)}
    return {row.source_id: load_results(row.results) for row in connection.execute(_FIND, words)}


def put(
    connection: Connection, source_id: int, key: str, results: Sequence[Result], *, ttl_s: float, now: datetime
) -> None:
    """Keep an answer for a while. An empty one is not kept: what is not there yet may be there in a minute."""
    if not results or ttl_s <= 0:
        drop(connection, source_id, key)
        return
    words = {
        "source_id": source_id,
        "key": key,
        "now": to_micros(now),
        "expires_at": to_micros(now + timedelta(seconds=ttl_s)),
        "results": dump_results(results),
    }
    connection.execute(_PUT, words)


def drop(connection: Connection, source_id: int, key: str) -> None:
    """Forget an answer: the source has failed since."""
    connection.execute(_DROP, {"source_id": source_id, "key": key})


def prune(connection: Connection, *, now: datetime, limit: int) -> int:
    """Forget answers that are no longer fresh."""
    pruned: int = connection.execute(_PRUNE, {"now": to_micros(now), "limit": limit}).rowcount
    return pruned


_FIND = text("""
    SELECT source_id, results FROM search_cache
    WHERE source_id IN :source_ids AND key = :key AND expires_at > :now AND stored_at <= :now
""").bindparams(bindparam("source_ids", expanding=True))
_PUT = text("""
    INSERT INTO search_cache (source_id, key, stored_at, expires_at, results)
    VALUES (:source_id, :key, :now, :expires_at, :results)
    ON CONFLICT (source_id, key) DO UPDATE SET stored_at = excluded.stored_at, expires_at = excluded.expires_at,
                                               results = excluded.results
""")
_DROP = text("DELETE FROM search_cache WHERE source_id = :source_id AND key = :key")
_PRUNE = text("""
    DELETE FROM search_cache WHERE (source_id, key) IN (
        SELECT source_id, key FROM search_cache WHERE expires_at <= :now ORDER BY expires_at LIMIT :limit)
""")
