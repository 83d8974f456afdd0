"""Lists, counts, stuck jobs and their surroundings; reads only."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

from attrs import frozen
from sqlalchemy import Connection, text

from cormorant.rules.jobs.states import PAUSED_FLAG, JobState
from cormorant.rules.jobs.wait_reasons import QueueFacts, WaitReason, wait_reasons_of
from cormorant.rules.settings.keys import nearest
from storage.engine.columns import from_micros, maybe_from_micros, to_micros
from storage.engine.statements import FastStatement
from storage.jobs import workers
from storage.jobs.workers import WorkerRow
from storage.tables import JOBS, RowCodec


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
    return [_view(row) for row in _recent(tuple(given)).rows(connection, [*given.values(), limit])]


def show(connection: Connection, job_id: int) -> JobView | None:
    """One job, or None."""
    row = _SHOW.first(connection, (job_id,))
    return None if row is None else _view(row)


def owned_by_the_silent(connection: Connection, *, beat_before: datetime, limit: int) -> list[JobView]:
    """Running jobs whose owner has not been heard of since a time: the ones that a sweeper will look at."""
    return [_view(row) for row in _STUCK.rows(connection, (to_micros(beat_before), limit))]


def count_by_kind(connection: Connection) -> list[KindCount]:
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


def unknown_kinds(connection: Connection) -> dict[str, int]:
    """How many jobs wait of each kind that no living process has a handler for."""
    known = {kind for worker in workers.all_workers(connection) if worker.dead_at is None for kind in worker.kinds}
    return {kind: number for kind, number in waiting_kinds(connection).items() if kind not in known}


def running_by_owner(connection: Connection) -> dict[str, int]:
    """How many jobs run, by the process that has them."""
    return {row.claimed_by: row.number for row in connection.execute(_RUNNING)}


def pauses(connection: Connection) -> Pauses:
    """What is paused, and since when."""
    paused = _ALL_PAUSED.first(connection, (PAUSED_FLAG,))
    return Pauses(
        everything_since=None if paused is None else from_micros(paused[0]),
        kinds_since={kind: from_micros(at) for kind, at in _PAUSED_KINDS.rows(connection, ())},
    )


def _view(row: Sequence[Any]) -> JobView:
    *_, payload, rerun_payload, errors, heartbeat_at = row
    return _JOB.from_row(
        row,
        payload=json.loads(payload),
        runs_again=rerun_payload is not None,
        last_errors=tuple(json.loads(errors)) if errors else (),
        heartbeat_at=maybe_from_micros(heartbeat_at),
    )


@lru_cache(maxsize=16)
def _recent(filters: tuple[str, ...]) -> FastStatement:
    where = " AND ".join(_FILTERS[name] for name in filters) or "true"
    return FastStatement(f"{_SELECT} WHERE {where} ORDER BY j.id DESC LIMIT :limit")


STUCK_MOST = 1_000


@frozen(kw_only=True)
class JobSurroundings:
    """What is around the jobs at one moment: who works, what is paused."""

    now: datetime
    silence_s: float
    """A process that has not been heard of for so long is taken for dead."""
    workers: Sequence[WorkerRow]
    pauses: Pauses

    def lives(self, worker: WorkerRow) -> bool:
        """Whether a process works, as far as its heartbeat tells."""
        return worker.dead_at is None and self.now - worker.beat_at < timedelta(seconds=self.silence_s)

    def reasons(self, job: JobView) -> tuple[WaitReason, ...]:
        """Why a job waits."""
        return wait_reasons_of(
            job.kind, job.state, is_held=job.held, run_at=job.run_at, around=self.surroundings(), now=self.now
        )

    def surroundings(self) -> QueueFacts:
        """What every job waits for."""
        living = [worker for worker in self.workers if self.lives(worker)]
        served = {kind for worker in living for kind in worker.kinds} if living else None
        return QueueFacts(is_all_paused=self.pauses.everything_since is not None, kinds_served=served)


@frozen(kw_only=True)
class JobPage:
    """Some jobs. `kind_meant` when there was no job of the kind that was asked for."""

    scene: JobSurroundings
    jobs: Sequence[JobView]
    has_more: bool = False
    kind_meant: str | None = None


@frozen(kw_only=True)
class JobStats:
    """How many jobs there are, and who works on them."""

    scene: JobSurroundings
    counts: Sequence[KindCount]
    oldest_due: dict[str, datetime]
    running: dict[str, int]
    """By owner."""
    stuck: int


def read_surroundings(connection: Connection, *, now: datetime, silence_s: float) -> JobSurroundings:
    """Who works, and what is paused."""
    return JobSurroundings(
        now=now,
        silence_s=silence_s,
        workers=workers.all_workers(connection),
        pauses=pauses(connection),
    )


def read_list(  # noqa: PLR0913 - the filters of the command, and what every look needs
    connection: Connection,
    *,
    now: datetime,
    silence_s: float,
    state: JobState | None,
    kind: str | None,
    before: int | None,
    limit: int,
) -> JobPage:
    """The newest jobs, one page of them."""
    found = recent(connection, state=state, kind=kind, before=before, limit=limit + 1)
    meant = None
    if not found and kind is not None:
        known = known_kinds(connection)
        meant = None if kind in known else nearest(kind, known)
    return JobPage(
        scene=read_surroundings(connection, now=now, silence_s=silence_s),
        jobs=found[:limit],
        has_more=len(found) > limit,
        kind_meant=meant,
    )


def known_kinds(connection: Connection) -> set[str]:
    """The kinds that there are jobs or handlers of."""
    served = {kind for worker in workers.all_workers(connection) for kind in worker.kinds}
    return served | {count.kind for count in count_by_kind(connection)}


def read_stats(connection: Connection, *, now: datetime, silence_s: float) -> JobStats:
    """All numbers at once."""
    silent_since = now - timedelta(seconds=silence_s)
    counts = count_by_kind(connection)
    waiting = [count for count in counts if count.state in {JobState.PENDING, JobState.RETRYABLE} and not count.held]
    oldest: dict[str, datetime] = {}
    for count in waiting:
        if count.oldest_run_at <= now:
            oldest[count.kind] = min(count.oldest_run_at, oldest.get(count.kind, now))
    return JobStats(
        scene=read_surroundings(connection, now=now, silence_s=silence_s),
        counts=counts,
        oldest_due=oldest,
        running=running_by_owner(connection),
        stuck=len(owned_by_the_silent(connection, beat_before=silent_since, limit=STUCK_MOST)),
    )


def read_stuck(connection: Connection, *, now: datetime, silence_s: float, silent_s: float) -> JobPage:
    """Running jobs whose owner has not been heard of for `silent_s`."""
    silent = owned_by_the_silent(connection, beat_before=now - timedelta(seconds=silent_s), limit=STUCK_MOST)
    return JobPage(scene=read_surroundings(connection, now=now, silence_s=silence_s), jobs=silent)


_JOB = RowCodec(JOBS, JobView, columns_of={"owner": "claimed_by"}, also=("payload", "rerun_payload", "last_errors"))
_SHOWN = ", ".join(f"j.{name}" for name in _JOB.columns.split(", "))
_SELECT = f"SELECT {_SHOWN}, w.beat_at FROM jobs j LEFT JOIN workers w ON w.id = j.claimed_by"
_FILTERS = {"state": "j.state = :state", "kind": "j.kind = :kind", "before": "j.id < :before"}
_SHOW = FastStatement(f"{_SELECT} WHERE j.id = :id")
_STUCK = FastStatement(f"""
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
_RUNNING = text("""
    SELECT claimed_by, count(*) AS number FROM jobs WHERE state = 'running' GROUP BY claimed_by ORDER BY claimed_by
""")
_ALL_PAUSED = FastStatement("SELECT changed_at FROM flags WHERE name = :name AND value = 'on'")
_PAUSED_KINDS = FastStatement("SELECT kind, paused_at FROM paused_kinds ORDER BY kind")
