"""Which browsers were signed out before their time? Kept until their cookies would have ended by themselves."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from sqlalchemy import Connection, text

from storage.engine.columns import check_text, to_micros

KEPT_MAX = 10_000
"""So many are looked at, the latest first."""

_PREFIX = "signed out "


def end(connection: Connection, ended: Mapping[str, datetime], *, now: datetime) -> None:
    """Remember sessions by number, each until its time would have been over, and forget those whose time is."""
    connection.execute(_PRUNE, {"now": to_micros(now)})
    for number, expires_at in sorted(ended.items()):
        name = check_text(f"{_PREFIX}{number}")
        connection.execute(_PUT, {"name": name, "until": str(to_micros(expires_at)), "now": to_micros(now)})


def ended(connection: Connection, *, now: datetime) -> frozenset[str]:
    """The numbers of those whose time is not over yet."""
    rows = connection.execute(_ENDED, {"now": to_micros(now), "limit": KEPT_MAX})
    return frozenset(row.name.removeprefix(_PREFIX) for row in rows)


# Among the switches: each is one, that is on until its time is over.
_PUT = text("""
    INSERT INTO flags (name, value, changed_at) VALUES (:name, :until, :now)
    ON CONFLICT (name) DO UPDATE SET value = excluded.value
""")
_ENDED = text(f"""
    SELECT name FROM flags WHERE name LIKE '{_PREFIX}%' AND CAST(value AS BIGINT) > :now
    ORDER BY changed_at DESC, name LIMIT :limit
""")  # noqa: S608 - all parts are ours
_PRUNE = text(f"DELETE FROM flags WHERE name LIKE '{_PREFIX}%' AND CAST(value AS BIGINT) <= :now")  # noqa: S608 - as above
