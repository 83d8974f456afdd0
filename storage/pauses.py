"""The pause of all work, paused job kinds and held jobs."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from sqlalchemy import Connection, text

from cormorant.rules.jobs.states import PAUSED_FLAG
from storage.engine.columns import check_text, to_micros
from storage.engine.statements import announce
from storage.jobs import sql

CHANNEL: Final = "pauses"
"""The channel on which the pause of all work is announced, and its end."""


def is_all_paused(connection: Connection) -> bool:
    """Whether every kind of work is paused."""
    return connection.execute(_GET, {"name": PAUSED_FLAG}).scalar() == "on"


def set_all(connection: Connection, *, is_paused: bool, now: datetime) -> bool:
    """Let every process claim nothing of any kind, or claim again. False: it was so already."""
    if is_all_paused(connection) is is_paused:
        return False
    words = {"name": PAUSED_FLAG, "value": "on" if is_paused else "off", "now": to_micros(now)}
    connection.execute(_SET, words)
    announce(connection, CHANNEL)
    return True


def pause(connection: Connection, kind: str, *, now: datetime) -> None:
    """From now on, what is enqueued of this kind is held. What waits already is held by `hold_some`."""
    connection.execute(_PAUSE, {"kind": check_text(kind), "now": to_micros(now)})


def resume(connection: Connection, kind: str) -> bool:
    """From now on, what is enqueued of this kind is free. What is held is freed by `free_some`. Was it paused?"""
    return connection.execute(_RESUME, {"kind": kind}).rowcount == 1


def hold_some(connection: Connection, *, limit: int, after: int = 0) -> list[int]:
    """Hold jobs of paused kinds, a page at a time; none when none is left. Running ones too: they may come back.

    Returns which, in order. The next page begins after the last: to begin anew would go through all that is done.
    """
    _keep_pauses(connection)
    return sorted(connection.execute(_HOLD, {"after": after, "limit": limit}).scalars())


def free_some(connection: Connection, *, limit: int, after: int = 0) -> list[int]:
    """Free jobs that are held though their kind is not paused; as `hold_some`."""
    _keep_pauses(connection)
    freed = sorted(connection.execute(_FREE, {"after": after, "limit": limit}).scalars())
    if freed:
        announce(connection, sql.CHANNEL)
    return freed


def _keep_pauses(connection: Connection) -> None:
    """Let nobody pause or resume until this transaction ends.

    PostgreSQL waits for whoever changes a job just now, and does not ask again then whether its kind is paused.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(_KEEP_PAUSES)


_KEEP_PAUSES = text("LOCK TABLE paused_kinds IN SHARE MODE")
_PAUSE = text("INSERT INTO paused_kinds (kind, paused_at) VALUES (:kind, :now) ON CONFLICT (kind) DO NOTHING")
_RESUME = text("DELETE FROM paused_kinds WHERE kind = :kind")
_CHANGE = """
    UPDATE jobs SET held = {held} WHERE id IN (
        SELECT id FROM jobs WHERE state IN ('pending', 'retryable', 'running') AND {which} AND id > :after
        ORDER BY id LIMIT :limit)
    AND state IN ('pending', 'retryable', 'running') RETURNING id
"""
_HOLD = text(_CHANGE.format(held="true", which="NOT held AND kind IN (SELECT kind FROM paused_kinds)"))
_FREE = text(_CHANGE.format(held="false", which="held AND kind NOT IN (SELECT kind FROM paused_kinds)"))
_GET = text("SELECT value FROM flags WHERE name = :name")
_SET = text("""
    INSERT INTO flags (name, value, changed_at) VALUES (:name, :value, :now)
    ON CONFLICT (name) DO UPDATE SET value = excluded.value, changed_at = excluded.changed_at
""")
