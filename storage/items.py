"""Which entries of a feed were seen before? Each counts as new once."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from datetime import datetime
from itertools import islice
from typing import Any

from sqlalchemy import Connection, bindparam, text

from cormorant.rules.short_keys import short_key
from cormorant.rules.subscriptions import Item
from storage.columns import kept_text, to_micros

KEY_LENGTH_MAX = 500
TITLE_LENGTH_MAX = 500


def take_in(
    connection: Connection, subscription_id: int, items: Sequence[Item], *, now: datetime, limit: int | None = None
) -> list[Item]:
    """Remember items, no more than `limit` new ones. Returns those that were not seen before, in their order."""
    unique: dict[str, Item] = {}
    for item in items:
        unique.setdefault(kept_text(short_key(item.key, KEY_LENGTH_MAX), KEY_LENGTH_MAX), item)
    if not unique:
        return []
    found = connection.execute(_SEEN, {"id": subscription_id, "keys": sorted(unique)})
    seen = set(found.scalars())
    fresh = list(islice((key for key in unique if key not in seen), limit))
    rows = [
        {
            "key": key,
            "title": kept_text(unique[key].title, TITLE_LENGTH_MAX),
            "published": None if (at := unique[key].published) is None else to_micros(at),
        }
        for key in sorted(fresh)
    ]
    new = _put(connection, rows, {"id": subscription_id, "now": to_micros(now)}) if rows else ()
    return [item for key, item in unique.items() if key in new]


def _put(connection: Connection, rows: Sequence[dict[str, Any]], words: dict[str, int]) -> Collection[str]:
    """The keys that nobody else has put meanwhile. SQLite has one writer at a time."""
    if connection.dialect.name == "postgresql":
        return set(connection.execute(_PUT_ALL, words | {"rows": json.dumps(rows)}).scalars())
    connection.execute(_PUT, [row | words for row in rows])
    return {row["key"] for row in rows}


_SEEN = text("SELECT key FROM subscription_items WHERE subscription_id = :id AND key IN :keys").bindparams(
    bindparam("keys", expanding=True)
)
_INSERT = "INSERT INTO subscription_items (subscription_id, key, title, published_at, seen_at)"
_PUT = text(f"{_INSERT} VALUES (:id, :key, :title, :published, :now)")
_PUT_ALL = text(f"""
    {_INSERT} SELECT CAST(:id AS bigint), key, title, published, CAST(:now AS bigint)
    FROM json_to_recordset(CAST(:rows AS json)) AS told(key text, title text, published bigint)
    ON CONFLICT (subscription_id, key) DO NOTHING RETURNING key
""")  # noqa: S608 - all parts are ours
