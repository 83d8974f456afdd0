"""Worker rows and heartbeats, the observation of silent workers, and the end of what a dead worker has claimed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from attrs import frozen
from sqlalchemy import Connection, text

from cormorant.rules.jobs.states import Sighting
from storage.engine.columns import check_text, to_micros
from storage.engine.statements import announce
from storage.jobs import jobs
from storage.jobs.jobs import Reclaimed
from storage.tables import CLAIMED, JOBS, WORKERS, RowCodec

FREED: Final = "freed claims"
"""The channel by which a process learns that it may take over what another has claimed, without waiting for an interval."""

SWEEPER: Final = "sweeper"
"""The lease of the process that observes the others."""


@frozen(kw_only=True)
class WorkerRow:
    """A process as the others see it."""

    id: str
    beat: int
    beat_at: datetime
    dead_at: datetime | None
    kinds: tuple[str, ...]
    version: str
    sighting: Sighting
    """What the observing sweeper has seen of it."""


@frozen(kw_only=True)
class LeaseRow:
    """The holder of a lease, and a number that rises while the holder lives."""

    holder: str
    renewals: int


@frozen(kw_only=True)
class Observation:
    """What a sweep begins with."""

    lease: LeaseRow
    workers: Sequence[WorkerRow]
    unknown: Sequence[str]
    """Owners of running jobs and of claims that have no row."""


def observe(connection: Connection, name: str, *, worker_id: str, instead_of: LeaseRow | None) -> Observation:
    """Hold or renew a lease, and look who lives and who has claimed something."""
    lease = take_lease(connection, name, worker_id=worker_id, instead_of=instead_of)
    return Observation(lease=lease, workers=all_workers(connection), unknown=unknown_owners(connection))


def register(connection: Connection, worker_id: str, *, kinds: Sequence[str], version: str, now: datetime) -> None:
    """Make a process known, before it claims anything."""
    words = {"id": check_text(worker_id), "kinds": json.dumps(sorted(kinds)), "version": version, "now": to_micros(now)}
    connection.execute(_REGISTER, words)


def beat(connection: Connection, worker_id: str, *, now: datetime) -> int | None:
    """Show that the process lives. None: it was declared dead, and what it had claimed belongs to others now."""
    number: int | None = connection.execute(_BEAT, {"id": worker_id, "now": to_micros(now)}).scalar()
    return number


def retire(connection: Connection, worker_id: str) -> None:
    """Remove the row of a process that ends: it claims nothing any more. The caller releases what it has claimed after this."""
    connection.execute(_RETIRE, {"id": worker_id})
    _announce_all(connection, own=False)


def all_workers(connection: Connection) -> list[WorkerRow]:
    """All known processes; dead ones as long as something of theirs is claimed."""
    return [
        _WORKER.from_row(row, sighting=Sighting(beat=row.seen_beat, unchanged_s=row.unchanged_s))
        for row in connection.execute(_ALL)
    ]


def take_lease(connection: Connection, name: str, *, worker_id: str, instead_of: LeaseRow | None) -> LeaseRow:
    """Hold or renew a lease, and return who holds it afterwards.

    A lease that another process holds is taken over only from `instead_of`, as it was seen, or from a process that is not
    known or was declared dead.
    """
    words = {"name": name, "worker": worker_id}
    connection.execute(_MAKE_LEASE, words)
    seen = (
        {"holder": None, "renewals": None}
        if instead_of is None
        else {"holder": instead_of.holder, "renewals": instead_of.renewals}
    )
    connection.execute(_TAKE_LEASE, words | seen)
    row = connection.execute(_LEASE, {"name": name}).one()
    return LeaseRow(holder=row.claimed_by, renewals=row.renewals)


def record_sightings(connection: Connection, sightings: Mapping[str, Sighting]) -> None:
    """Store what was seen of each worker, so that another sweeper continues from there."""
    rows = [
        {"id": worker_id, "beat": seen.beat, "unchanged_s": seen.unchanged_s}
        for worker_id, seen in sorted(sightings.items())
    ]
    if rows:
        connection.execute(_SEEN, rows)


def mark_dead(connection: Connection, worker_id: str, *, beat: int, now: datetime) -> bool:
    """Declare a process dead, unless it has beaten since `beat` was seen or another has declared it dead already."""
    is_dead = connection.execute(_MARK_DEAD, {"id": worker_id, "seen": beat, "now": to_micros(now)}).rowcount == 1
    if is_dead:
        _announce_all(connection)
    return is_dead


def _announce_all(connection: Connection, *, own: bool = True) -> None:
    """What a process has put off for itself is due for the others: only it knew when."""
    for table in (JOBS, *CLAIMED):
        announce(connection, table.name, own=own)


def is_living(connection: Connection, worker_id: str) -> bool:
    """Whether a process is known and was not declared dead."""
    return connection.execute(_IS_LIVING, {"id": worker_id}).scalar() is not None


def may_claim(connection: Connection, worker_id: str) -> bool:
    """Whether a process is living, and is not declared dead before this transaction ends."""
    statement = _IS_LIVING_LOCKED if connection.dialect.name == "postgresql" else _IS_LIVING
    return connection.execute(statement, {"id": worker_id}).scalar() is not None


def wait_for_claims(connection: Connection, worker_id: str) -> None:
    """Wait until no other transaction claims rows in the name of a process, also one whose COMMIT is in doubt."""
    if connection.dialect.name == "postgresql":  # SQLite has one writer at a time
        connection.execute(_LOCKED, {"id": worker_id})


def unknown_owners(connection: Connection) -> list[str]:
    """The owners of running jobs and of claims that have no row. There should be none, and no heartbeat would show their death."""
    found = {name for statement in _UNKNOWN_OWNERS for name in connection.execute(statement).scalars()}
    return sorted(found)


def delete_dead(connection: Connection) -> int:
    """Remove dead processes that have claimed nothing any more."""
    deleted: int = connection.execute(_DELETE_DEAD).rowcount
    return deleted


def reclaim_if_dead(connection: Connection, worker_id: str, *, limit: int, now: datetime) -> list[Reclaimed]:
    """Return a page of the jobs of a dead process to the queue; nothing while it lives."""
    if is_living(connection, worker_id):
        return []
    return jobs.reclaim(connection, owner=worker_id, limit=limit, now=now)


def free_if_dead(connection: Connection, worker_id: str, *, limit: int) -> bool:
    """Free a page of what a dead process has claimed in each table besides jobs. True: there was something."""
    return not is_living(connection, worker_id) and free_claims(connection, worker_id, limit=limit)


def free_claims(connection: Connection, worker_id: str, *, limit: int) -> bool:
    """As `free_if_dead`, for a process that ends."""
    words = {"worker": worker_id, "limit": limit}
    freed = [table for table, statement in _FREE.items() if connection.execute(statement, words).rowcount]
    for table in freed:
        announce(connection, table)
    if freed:
        announce(connection, FREED)
    return bool(freed)


_REGISTER = text("INSERT INTO workers (id, beat, beat_at, kinds, version) VALUES (:id, 0, :now, :kinds, :version)")
_BEAT = text("UPDATE workers SET beat = beat + 1, beat_at = :now WHERE id = :id AND dead_at IS NULL RETURNING beat")
_RETIRE = text("DELETE FROM workers WHERE id = :id")
_WORKER = RowCodec(WORKERS, WorkerRow, also=("seen_beat", "unchanged_s"))
_ALL = text(f"SELECT {_WORKER.columns} FROM workers ORDER BY id")
_MAKE_LEASE = text("""
    INSERT INTO leases (name, claimed_by) VALUES (:name, :worker) ON CONFLICT (name) DO NOTHING
""")
_TAKE_LEASE = text("""
    UPDATE leases SET claimed_by = :worker, renewals = renewals + 1
    WHERE name = :name AND (claimed_by = :worker OR (claimed_by = :holder AND renewals = :renewals)
        OR NOT EXISTS (SELECT 1 FROM workers WHERE workers.id = leases.claimed_by AND dead_at IS NULL))
""")
_LEASE = text("SELECT claimed_by, renewals FROM leases WHERE name = :name")
_SEEN = text("UPDATE workers SET seen_beat = :beat, unchanged_s = :unchanged_s WHERE id = :id")
_MARK_DEAD = text("UPDATE workers SET dead_at = :now WHERE id = :id AND beat = :seen AND dead_at IS NULL")
_IS_LIVING = text("SELECT 1 FROM workers WHERE id = :id AND dead_at IS NULL")
_IS_LIVING_LOCKED = text("SELECT 1 FROM workers WHERE id = :id AND dead_at IS NULL FOR SHARE")
_LOCKED = text("SELECT 1 FROM workers WHERE id = :id FOR UPDATE")
_UNKNOWN = """
    SELECT DISTINCT claimed_by FROM {table} WHERE {claimed}
    AND NOT EXISTS (SELECT 1 FROM workers WHERE workers.id = {table}.claimed_by)
"""
_UNKNOWN_OWNERS = (
    text(_UNKNOWN.format(table="jobs", claimed="state = 'running'")),
    *(text(_UNKNOWN.format(table=table.name, claimed="claimed_by IS NOT NULL")) for table in CLAIMED),
)
_NOTHING_CLAIMED = " ".join(
    f"AND NOT EXISTS (SELECT 1 FROM {table.name} WHERE {table.name}.claimed_by = workers.id)" for table in CLAIMED
)
_DELETE_DEAD = text(f"""
    DELETE FROM workers WHERE dead_at IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.claimed_by = workers.id AND jobs.state = 'running') {_NOTHING_CLAIMED}
""")
_FREE = {
    table.name: text(f"""
        UPDATE {table.name} SET claimed_by = NULL WHERE claimed_by = :worker
        AND id IN (SELECT id FROM {table.name} WHERE claimed_by = :worker ORDER BY id LIMIT :limit)
    """)
    for table in CLAIMED
}
