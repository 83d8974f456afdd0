"""Which link of a site does ours stand for? Kept as long as an app may come back for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from attrs import field, frozen
from sqlalchemy import Connection, bindparam, text

from storage.engine.columns import from_micros, to_micros

_FRESH = timedelta(days=1)
"""So long it is not written again that a link was seen."""


@frozen(kw_only=True)
class GateLink:
    """A link of a source, and the reference that stands for it."""

    ref: str
    source_id: int
    link: str = field(repr=False)


def remember(connection: Connection, links: Sequence[GateLink], *, now: datetime) -> Mapping[str, datetime]:
    """Keep links. Returns when each was first seen, by its reference."""
    unique = {each.ref: each for each in links if "\0" not in each.link}
    if not unique:
        return {}
    written = {"now": to_micros(now), "stale": to_micros(now - _FRESH)}
    rows = [{"ref": each.ref, "source_id": each.source_id, "link": each.link} | written for each in unique.values()]
    # Sorted: two processes that write the same links must not lock them in different orders.
    connection.execute(_PUT, sorted(rows, key=lambda row: str(row["ref"])))
    found = connection.execute(_SEEN, {"refs": sorted(unique)})
    return {row.ref: from_micros(row.first_seen_at) for row in found}


def find(connection: Connection, ref: str, *, source_id: int) -> str | None:
    """The link of a source that a reference stands for."""
    link: str | None = connection.execute(_FIND, {"ref": ref, "source_id": source_id}).scalar_one_or_none()
    return link


def prune(connection: Connection, *, before: datetime, limit: int) -> int:
    """Forget links that no search has found since a time, oldest first."""
    pruned: int = connection.execute(_PRUNE, {"before": to_micros(before), "limit": limit}).rowcount
    return pruned


_PUT = text("""
    INSERT INTO gate_links (ref, source_id, link, first_seen_at, seen_at) VALUES (:ref, :source_id, :link, :now, :now)
    ON CONFLICT (ref) DO UPDATE SET seen_at = excluded.seen_at WHERE gate_links.seen_at < :stale
""")
_SEEN = text("SELECT ref, first_seen_at FROM gate_links WHERE ref IN :refs").bindparams(
    bindparam("refs", expanding=True)
)
_FIND = text("SELECT link FROM gate_links WHERE ref = :ref AND source_id = :source_id")
_PRUNE = text("""
    DELETE FROM gate_links WHERE ref IN (SELECT ref FROM gate_links WHERE seen_at < :before ORDER BY seen_at LIMIT :limit)
""")
