"""Which notices wait to be told? One durable job for each key: what comes later joins the one that waits."""

from __future__ import annotations

import json
from datetime import datetime

from attrs import evolve
from sqlalchemy import Connection, text

from cormorant.rules.notices import read_batch, written_batch
from storage.engine.columns import from_micros
from storage.jobs import jobs
from storage.jobs.jobs import NewJob


def take_in(connection: Connection, job: NewJob, *, now: datetime) -> bool:
    """Enqueue a batch, or join the one that waits under its key.

    False while that one is being told: joined to it, a batch would be lost if the telling fails.
    """
    # SQLite has one writer. Elsewhere another could claim the one that waits, or enqueue the first at the same moment.
    is_shared = connection.dialect.name == "postgresql"
    if is_shared:
        connection.execute(_TURN, {"turn": f"{job.kind} {job.dedupe_key}"})
    there = connection.execute(_LOCKED if is_shared else _LIVE, {"kind": job.kind, "key": job.dedupe_key}).one_or_none()
    if there is not None and there.state == "running":
        return False
    if there is not None:
        waiting, later = json.loads(there.payload), json.loads(job.payload)
        both = read_batch(waiting["batch"]).with_batch(read_batch(later["batch"]))
        job = evolve(job, payload=json.dumps({**later, "batch": written_batch(both)}))
    jobs.enqueue(connection, job, now=now)
    return True


def last_told(connection: Connection, kind: str) -> dict[str, datetime]:
    """For each key when the last batch was due, so that a restart forgets nothing. Looks at every job: for a start."""
    return {row.dedupe_key: from_micros(row.due) for row in connection.execute(_LAST, {"kind": kind})}


_SELECT = """
    SELECT state, payload FROM jobs
    WHERE kind = :kind AND dedupe_key = :key AND state IN ('pending', 'retryable', 'running')
"""
_LIVE = text(_SELECT)
_LOCKED = text(f"{_SELECT} FOR UPDATE")
_TURN = text("SELECT pg_advisory_xact_lock(hashtextextended(:turn, 0))")
_LAST = text("""
    SELECT dedupe_key, max(run_at) AS due FROM jobs WHERE kind = :kind AND dedupe_key IS NOT NULL GROUP BY dedupe_key
""")
