"""Worker rows and heartbeats; returns the jobs of a dead worker."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime

from attrs import frozen
from sqlalchemy import Connection, text

from storage.engine.columns import check_text, from_micros, to_micros
from storage.jobs import jobs
from storage.jobs.jobs import Reclaimed


@frozen(kw_only=True)
class WorkerRow:
    """A process as the others see it."""

    id: str
    beat: int
    beat_at: datetime
    dead_at: datetime | None
    kinds: tuple[str, ...]
    version: str


def register(connection: Connection, worker_id: str, *, kinds: Sequence[str], version: str, now: datetime) -> None:
    """Make a process known, before it claims anything."""
    words = {"id": check_text(worker_id), "kinds": json.dumps(sorted(kinds)), "version": version, "now": to_micros(now)}
    connection.execute(_REGISTER, words)


def beat(connection: Connection, worker_id: str, *, now: datetime) -> int | None:
    """Show that the process lives. None: it was buried, and whatever it ran belongs to others now."""
    number: int | None = connection.execute(_BEAT, {"id": worker_id, "now": to_micros(now)}).scalar()
    return number


def retire(connection: Connection, worker_id: str) -> None:
    """Forget a process that ends: it claims nothing any more. In the same transaction, and after this, it gives back what it has."""
    connection.execute(_RETIRE, {"id": worker_id})


def all_workers(connection: Connection) -> list[WorkerRow]:
    """Everyone who is known, the dead too while something of theirs is still to be reclaimed."""
    return [
        WorkerRow(
            id=row.id,
            beat=row.beat,
            beat_at=from_micros(row.beat_at),
            dead_at=None if row.dead_at is None else from_micros(row.dead_at),
            kinds=tuple(json.loads(row.kinds)),
            version=row.version,
        )
        for row in connection.execute(_ALL)
    ]


def mark_dead(connection: Connection, worker_id: str, *, beat: int, now: datetime) -> bool:
    """Declare a process dead, unless it has beaten since `beat` was seen or another has buried it already."""
    return connection.execute(_MARK_DEAD, {"id": worker_id, "seen": beat, "now": to_micros(now)}).rowcount == 1


def is_living(connection: Connection, worker_id: str) -> bool:
    """Whether a process is known and was not declared dead."""
    return connection.execute(_IS_LIVING, {"id": worker_id}).scalar() is not None


def unknown_owners(connection: Connection) -> list[str]:
    """Who owns running jobs and is not known. There should be nobody; but if there is, nobody would miss it."""
    return list(connection.execute(_UNKNOWN_OWNERS).scalars())


def delete_dead(connection: Connection) -> int:
    """Forget dead processes that nothing runs for any more."""
    forgotten: int = connection.execute(_DELETE_DEAD).rowcount
    return forgotten


def reclaim_if_dead(connection: Connection, worker_id: str, *, limit: int, now: datetime) -> list[Reclaimed]:
    """A page of a dead process's jobs; nothing while it lives, as it does when it beat just before it was buried."""
    if is_living(connection, worker_id):
        return []
    return jobs.reclaim(connection, owner=worker_id, limit=limit, now=now)


_REGISTER = text("INSERT INTO workers (id, beat, beat_at, kinds, version) VALUES (:id, 0, :now, :kinds, :version)")
_BEAT = text("UPDATE workers SET beat = beat + 1, beat_at = :now WHERE id = :id AND dead_at IS NULL RETURNING beat")
_RETIRE = text("DELETE FROM workers WHERE id = :id")
_ALL = text("SELECT id, beat, beat_at, dead_at, kinds, version FROM workers ORDER BY id")
_MARK_DEAD = text("UPDATE workers SET dead_at = :now WHERE id = :id AND beat = :seen AND dead_at IS NULL")
_IS_LIVING = text("SELECT 1 FROM workers WHERE id = :id AND dead_at IS NULL")
_UNKNOWN_OWNERS = text("""
    SELECT DISTINCT owner FROM jobs WHERE state = 'running'
    AND NOT EXISTS (SELECT 1 FROM workers WHERE workers.id = jobs.owner) ORDER BY owner
""")
_DELETE_DEAD = text("""
    DELETE FROM workers WHERE dead_at IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.owner = workers.id AND jobs.state = 'running')
""")
