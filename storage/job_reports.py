"""What can be asked about jobs? Lists, one job, counts, and what is stuck. Nothing here changes anything."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from attrs import frozen
from sqlalchemy import Connection, text

from cormorant.rules.jobs import PAUSED_FLAG, JobState
from storage.columns import from_micros, maybe_from_micros, to_micros


@frozen(kw_only=True)
class JobView:
    """A job as it is shown. `heartbeat_at` is its owner's."""

    id: int
    uid: str
    kind: str
    state: JobState
    priority: int
    held: bool
    attempts: int
    max_attempts: int
    reclaims: int
    run_at: datetime
    enqueued_at: datetime
    claimed_at: datetime | None
    finished_at: datetime | None
    owner: str | None
    heartbeat_at: datetime | None
    dedupe_key: str | None
    correlation_id: str | None
    payload: Any
    runs_again: bool
    last_errors: tuple[dict[str, Any], ...]


@frozen(kw_only=True)
class KindCount:
    """How many jobs of one kind are in one state."""

    kind: str
    state: JobState
    held: bool
    count: int
    oldest_run_at: datetime


@frozen(kw_only=True)
class Pauses:
    """What is paused, and since when."""

    everything_since: datetime | None
    kinds_since: dict[str, datetime]


def recent(
    connection: Connection,
    *,
    state: JobState | None = None,
    kind: str | None = None,
    before: int | None = None,
    limit: int,
) -> list[JobView]:
    """The newest jobs first, a page at a time: `before` is the last id of the page before."""
    words = {"state": state and state.value, "kind": kind, "before": before}
    given = {name: value for name, value in words.items() if value is not None}
    where = " AND ".join(_FILTERS[name] for name in given) or "true"
    rows = connection.execute(
        text(f"{_SELECT} WHERE {where} ORDER BY j.id DESC LIMIT :limit"), given | {"limit": limit}
    )
    return [_view(row) for row in rows]


def show(connection: Connection, job_id: int) -> JobView | None:
    """One job, or None."""
    row = connection.execute(text(f"{_SELECT} WHERE j.id = :id"), {"id": job_id}).one_or_none()
    return None if row is None else _view(row)


def owned_by_the_silent(connection: Connection, *, beat_before: datetime, limit: int) -> list[JobView]:
    """Running jobs whose owner has not been heard of since a time: the ones that a sweeper will look at."""
    words = {"before": to_micros(beat_before), "limit": limit}
    return [_view(row) for row in connection.execute(_STUCK, words)]


def counts(connection: Connection) -> list[KindCount]:
    """How many jobs there are, by kind and state."""
    return [
        KindCount(
            kind=row.kind,
            state=JobState(row.state),
            held=bool(row.held),
            count=row.number,
            oldest_run_at=from_micros(row.oldest),
        )
        for row in connection.execute(_COUNTS)
    ]


def waiting_kinds(connection: Connection) -> dict[str, int]:
    """How many jobs wait, by kind; the held ones left out."""
    return {row.kind: row.number for row in connection.execute(_WAITING)}


def running_by_owner(connection: Connection) -> dict[str, int]:
    """How many jobs run, by the process that has them."""
    return {row.owner: row.number for row in connection.execute(_RUNNING)}


def pauses(connection: Connection) -> Pauses:
    """What is paused, and since when."""
    return Pauses(
        everything_since=maybe_from_micros(connection.execute(_ALL_PAUSED, {"name": PAUSED_FLAG}).scalar()),
        kinds_since={row.kind: from_micros(row.paused_at) for row in connection.execute(_PAUSED_KINDS)},
    )


def _view(row: Any) -> JobView:
    return JobView(
        id=row.id,
        uid=row.uid,
        kind=row.kind,
        state=JobState(row.state),
        priority=row.priority,
        held=bool(row.held),
        attempts=row.attempts,
        max_attempts=row.max_attempts,
        reclaims=row.reclaims,
        run_at=from_micros(row.run_at),
        enqueued_at=from_micros(row.enqueued_at),
        claimed_at=maybe_from_micros(row.claimed_at),
        finished_at=maybe_from_micros(row.finished_at),
        owner=row.owner,
        heartbeat_at=maybe_from_micros(row.beat_at),
        dedupe_key=row.dedupe_key,
        correlation_id=row.correlation_id,
        payload=json.loads(row.payload),
        runs_again=row.rerun_payload is not None,
        last_errors=tuple(json.loads(row.last_errors or "[]")),
    )


_SELECT = "SELECT j.*, w.beat_at FROM jobs j LEFT JOIN workers w ON w.id = j.owner"
_FILTERS = {"state": "j.state = :state", "kind": "j.kind = :kind", "before": "j.id < :before"}
_STUCK = text(f"""
    {_SELECT} WHERE j.state = 'running' AND (w.beat_at IS NULL OR w.beat_at < :before OR w.dead_at IS NOT NULL)
    ORDER BY j.id LIMIT :limit
""")
_COUNTS = text("""
    SELECT kind, state, held, count(*) AS number, min(run_at) AS oldest FROM jobs GROUP BY kind, state, held
    ORDER BY kind, state, held
""")
_WAITING = text("""
    SELECT kind, count(*) AS number FROM jobs WHERE state IN ('pending', 'retryable') AND NOT held GROUP BY kind ORDER BY kind
""")
_RUNNING = text("SELECT owner, count(*) AS number FROM jobs WHERE state = 'running' GROUP BY owner ORDER BY owner")
_ALL_PAUSED = text("SELECT changed_at FROM flags WHERE name = :name AND value = 'on'")
_PAUSED_KINDS = text("SELECT kind, paused_at FROM paused_kinds ORDER BY kind")
