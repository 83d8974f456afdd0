"""Which kinds of job are paused? Their jobs are `held`, so that claims never see them, however many wait."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, text

from storage.columns import check_text, to_micros
from storage.jobs import announce


def pause(connection: Connection, kind: str, *, now: datetime) -> None:
    """From now on, what is enqueued of this kind is held. What waits already is held by `hold_some`."""
    connection.execute(_PAUSE, {"kind": check_text(kind), "now": to_micros(now)})


def resume(connection: Connection, kind: str) -> bool:
    """From now on, what is enqueued of this kind is free. What is held is freed by `free_some`. Was it paused?"""
    return connection.execute(_RESUME, {"kind": kind}).rowcount == 1


def paused(connection: Connection) -> list[str]:
    """The kinds that are paused."""
    return list(connection.execute(_PAUSED).scalars())


def hold_some(connection: Connection, *, limit: int) -> int:
    """Hold jobs of paused kinds, a page at a time; 0 when none is left. Running ones too: they may come back."""
    held: int = connection.execute(_HOLD, {"limit": limit}).rowcount
    return held


def free_some(connection: Connection, *, limit: int) -> int:
    """Free jobs that are held though their kind is not paused, a page at a time; 0 when none is left."""
    freed: int = connection.execute(_FREE, {"limit": limit}).rowcount
    if freed:
        announce(connection)
    return freed


_PAUSE = text("INSERT INTO paused_kinds (kind, paused_at) VALUES (:kind, :now) ON CONFLICT (kind) DO NOTHING")
_RESUME = text("DELETE FROM paused_kinds WHERE kind = :kind")
_PAUSED = text("SELECT kind FROM paused_kinds ORDER BY kind")
_HOLD = text("""
    UPDATE jobs SET held = true WHERE id IN (
        SELECT id FROM jobs WHERE state IN ('pending', 'retryable', 'running') AND NOT held
        AND kind IN (SELECT kind FROM paused_kinds) LIMIT :limit)
""")
_FREE = text("""
    UPDATE jobs SET held = false WHERE id IN (
        SELECT id FROM jobs WHERE state IN ('pending', 'retryable', 'running') AND held
        AND kind NOT IN (SELECT kind FROM paused_kinds) LIMIT :limit)
""")
