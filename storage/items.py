"""Which entries of a feed were seen before? Each counts as new once."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection, bindparam, text

from cormorant.rules.subscriptions import Item
from storage.columns import kept_text, to_micros

KEY_LENGTH_MAX = 500
TITLE_LENGTH_MAX = 500


def take_in(connection: Connection, subscription_id: int, items: Sequence[Item], *, now: datetime) -> list[Item]:
    """Remember items. Returns those that were not seen before, in their order."""
    unique = {kept_text(item.key, KEY_LENGTH_MAX): item for item in reversed(items)}
    if not unique:
        return []
    found = connection.execute(_SEEN, {"id": subscription_id, "keys": sorted(unique)})
    seen = set(found.scalars())
    fresh = [(key, item) for key, item in reversed(unique.items()) if key not in seen]
    rows = [
        {
            "id": subscription_id,
            "key": key,
            "title": kept_text(item.title, TITLE_LENGTH_MAX),
            "published": None if item.published is None else to_micros(item.published),
            "now": to_micros(now),
        }
        for key, item in fresh
    ]
    if rows:
        connection.execute(_PUT, sorted(rows, key=lambda row: str(row["key"])))
    return [item for _, item in fresh]


_SEEN = text("SELECT key FROM subscription_items WHERE subscription_id = :id AND key IN :keys").bindparams(
    bindparam("keys", expanding=True)
)
_PUT = text("""
    INSERT INTO subscription_items (subscription_id, key, title, published_at, seen_at)
    VALUES (:id, :key, :title, :published, :now) ON CONFLICT (subscription_id, key) DO NOTHING
""")
