"""What can be found out about jobs? Each look is one transaction, so that its parts fit together."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from attrs import frozen
from sqlalchemy import Connection

from cormorant.rules.jobs.states import JobState
from cormorant.rules.jobs.wait_reasons import QueueFacts, WaitReason, gates_before
from cormorant.rules.settings.keys import nearest
from storage.jobs import reports, workers
from storage.jobs.reports import JobView, KindCount, Pauses
from storage.jobs.workers import WorkerRow

__all__ = [
    "JobPage",
    "JobStats",
    "JobSurroundings",
    "StuckJobs",
    "known_kinds",
    "look_at_list",
    "look_at_one",
    "look_at_stats",
    "look_at_stuck",
]

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

    def gates(self, job: JobView) -> tuple[WaitReason, ...]:
        """Why a job waits."""
        return gates_before(
            job.kind, job.state, is_held=job.held, run_at=job.run_at, around=self.surroundings(), now=self.now
        )

    def surroundings(self) -> QueueFacts:
        """What every job waits for."""
        living = [worker for worker in self.workers if self.lives(worker)]
        served = {kind for worker in living for kind in worker.kinds} if living else None
        return QueueFacts(is_all_paused=self.pauses.everything_since is not None, kinds_served=served)


@frozen(kw_only=True)
class JobPage:
    """Some jobs, the newest first. `kind_meant` when there was no job of the kind that was asked for."""

    scene: JobSurroundings
    jobs: Sequence[JobView]
    has_more: bool
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


@frozen(kw_only=True)
class StuckJobs:
    """Running jobs whose owner is silent."""

    scene: JobSurroundings
    jobs: Sequence[JobView]


def look_around(connection: Connection, *, now: datetime, silence_s: float) -> JobSurroundings:
    """Who works, and what is paused."""
    return JobSurroundings(
        now=now,
        silence_s=silence_s,
        workers=workers.all_workers(connection),
        pauses=reports.pauses(connection),
    )


def look_at_list(  # noqa: PLR0913 - the filters of the command, and what every look needs
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
    found = reports.recent(connection, state=state, kind=kind, before=before, limit=limit + 1)
    meant = None
    if not found and kind is not None:
        known = known_kinds(connection)
        meant = None if kind in known else nearest(kind, known)
    return JobPage(
        scene=look_around(connection, now=now, silence_s=silence_s),
        jobs=found[:limit],
        has_more=len(found) > limit,
        kind_meant=meant,
    )


def known_kinds(connection: Connection) -> set[str]:
    """The kinds that there are jobs or handlers of."""
    served = {kind for worker in workers.all_workers(connection) for kind in worker.kinds}
    return served | {count.kind for count in reports.counts(connection)}


def look_at_one(
    connection: Connection, job_id: int, *, now: datetime, silence_s: float
) -> tuple[JobSurroundings, JobView | None]:
    """One job, if it is there."""
    return look_around(connection, now=now, silence_s=silence_s), reports.show(connection, job_id)


def look_at_stats(connection: Connection, *, now: datetime, silence_s: float) -> JobStats:
    """All numbers at once."""
    silent_since = now - timedelta(seconds=silence_s)
    counts = reports.counts(connection)
    waiting = [count for count in counts if count.state in {JobState.PENDING, JobState.RETRYABLE} and not count.held]
    oldest: dict[str, datetime] = {}
    for count in waiting:
        if count.oldest_run_at <= now:
            oldest[count.kind] = min(count.oldest_run_at, oldest.get(count.kind, now))
    return JobStats(
        scene=look_around(connection, now=now, silence_s=silence_s),
        counts=counts,
        oldest_due=oldest,
        running=reports.running_by_owner(connection),
        stuck=len(reports.owned_by_the_silent(connection, beat_before=silent_since, limit=STUCK_MOST)),
    )


def look_at_stuck(connection: Connection, *, now: datetime, silence_s: float, silent_s: float) -> StuckJobs:
    """Running jobs whose owner has not been heard of for `silent_s`."""
    silent = reports.owned_by_the_silent(connection, beat_before=now - timedelta(seconds=silent_s), limit=STUCK_MOST)
    return StuckJobs(scene=look_around(connection, now=now, silence_s=silence_s), jobs=silent)
