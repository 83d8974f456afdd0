"""How much was spent at a source, and how old is what is known of it? Looks only; nothing is decided by it."""

from __future__ import annotations

from datetime import datetime

from attrs import frozen
from sqlalchemy import Connection, text

from cormorant.rules.search.limits import Lane
from storage.engine.columns import from_micros, to_micros


@frozen(kw_only=True)
class ClientWindowSpend:
    """What one client has spent in one lane, at all sources together. Without a name it is this program itself."""

    consumer: str
    lane: Lane
    count: int


def spent(connection: Connection, source_id: int, lane: Lane, *, since: datetime) -> int:
    """How many requests were made in a lane after a moment."""
    words = {"source_id": source_id, "lane": lane.value, "since": to_micros(since)}
    count: int = connection.execute(_SPENT, words).scalar_one()
    return count


def spent_by_clients(connection: Connection, *, since: datetime) -> list[ClientWindowSpend]:
    """Who has made how many requests after a moment, at all sources together."""
    rows = connection.execute(_BY_CLIENTS, {"since": to_micros(since)})
    return [ClientWindowSpend(consumer=row.consumer, lane=Lane(row.lane), count=row.number) for row in rows]


def spent_at_most(connection: Connection, source_id: int, lane: Lane, *, since: datetime, after: int) -> int:
    """How many requests with a number above `after` were made after a moment: no more rows are looked at than a limit has."""
    words = {"source_id": source_id, "lane": lane.value, "since": to_micros(since), "after": after}
    count: int = connection.execute(_SPENT_AT_MOST, words).scalar_one()
    return count


def caps_at(connection: Connection, source_id: int) -> datetime | None:
    """When the source last said what it can do; None: never."""
    at = connection.execute(_CAPS_AT, {"id": source_id}).scalar_one_or_none()
    return None if at is None else from_micros(at)


_SPENT = text("SELECT count(*) FROM source_requests WHERE source_id = :source_id AND lane = :lane AND at > :since")
_BY_CLIENTS = text("""
    SELECT consumer, lane, count(*) AS number FROM source_requests WHERE at > :since GROUP BY consumer, lane
    ORDER BY consumer, lane
""")
_SPENT_AT_MOST = text("""
    SELECT count(*) FROM source_requests
    WHERE source_id = :source_id AND lane = :lane AND seq > :after AND at > :since
""")
_CAPS_AT = text("SELECT caps_at FROM sources WHERE id = :id")
