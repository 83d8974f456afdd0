"""Who has spent what at a source? The requests of one app, counted back from the latest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from sqlalchemy import Connection, text

from cormorant.rules.search.limits import Lane
from storage.engine.columns import from_micros


def nth_latest(
    connection: Connection, source_id: int, lane: Lane, consumer: str, numbers: Iterable[int]
) -> Mapping[int, datetime | None]:
    """When the latest, the second latest, … request of an app was made; None: there are not so many."""
    words = {"source_id": source_id, "lane": lane.value, "consumer": consumer}
    found: dict[int, datetime | None] = {}
    for number in numbers:
        at = connection.execute(_NTH, words | {"before": number - 1}).scalar_one_or_none()
        found[number] = None if at is None else from_micros(at)
    return found


_NTH = text("""
    SELECT at FROM source_requests WHERE source_id = :source_id AND lane = :lane AND consumer = :consumer
    ORDER BY seq DESC LIMIT 1 OFFSET :before
""")
