"""How far was the list of an artist's releases read? Kept between ticks, so that a long one is read once and not again and again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection, text

from cormorant.rules.watch.artists import Artist, CatalogueProgress, dump_walk, load_walk
from storage.engine.columns import from_micros, to_micros

Key = tuple[str, str]
"""A source, and an id there."""


def find(connection: Connection, artists: Sequence[Artist]) -> dict[Key, CatalogueProgress]:
    """What was kept of the lists of these artists."""
    if connection.execute(_ANY).first() is None:
        return {}
    found = {}
    for artist in artists:
        row = connection.execute(_FIND, {"source": artist.source, "artist_id": artist.artist_id}).one_or_none()
        if row is not None:
            found[artist.source, artist.artist_id] = load_walk(row.walk, began_at=from_micros(row.began_at))
    return found


def put(connection: Connection, key: Key, walk: CatalogueProgress) -> None:
    """Keep what was read of a list."""
    words = {"source": key[0], "artist_id": key[1], "began_at": to_micros(walk.began_at), "walk": dump_walk(walk)}
    connection.execute(_PUT, words)


def drop(connection: Connection, key: Key) -> None:
    """Forget it: all of it was read, or it cannot be gone on with."""
    connection.execute(_DROP, {"source": key[0], "artist_id": key[1]})


def prune(connection: Connection, *, before: datetime, limit: int) -> int:
    """Forget lists that nobody has read to their end, such as those of artists that are no longer watched."""
    pruned: int = connection.execute(_PRUNE, {"before": to_micros(before), "limit": limit}).rowcount
    return pruned


_ANY = text("SELECT 1 FROM catalogue_walks LIMIT 1")
_FIND = text("SELECT began_at, walk FROM catalogue_walks WHERE source = :source AND artist_id = :artist_id")
_PUT = text("""
    INSERT INTO catalogue_walks (source, artist_id, began_at, walk) VALUES (:source, :artist_id, :began_at, :walk)
    ON CONFLICT (source, artist_id) DO UPDATE SET began_at = excluded.began_at, walk = excluded.walk
""")
_DROP = text("DELETE FROM catalogue_walks WHERE source = :source AND artist_id = :artist_id")
_PRUNE = text("""
    DELETE FROM catalogue_walks WHERE (source, artist_id) IN (
        SELECT source, artist_id FROM catalogue_walks WHERE began_at < :before ORDER BY began_at LIMIT :limit)
""")
