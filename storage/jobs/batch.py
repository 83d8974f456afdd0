"""Transactions over many jobs: the producer's batch, changes by hand, joining a waiting job."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import Final

from attrs import evolve, frozen
from sqlalchemy import Connection, text

from cormorant.rules.errors import IllegalChange, KeyTaken, NotFound
from cormorant.rules.jobs.states import FINISHED, JobState, Verb, allowed_from
from storage import pauses
from storage.engine.columns import from_micros
from storage.jobs import jobs, reports, workers
from storage.jobs.jobs import Claim, ClaimedJob, JobEnd, NewJob, Settled
from storage.jobs.reports import JobView

LEAVE_MOST = 100_000
_ALLOWED = {
    "retry": allowed_from(Verb.REVIVE),
    "cancel": allowed_from(Verb.CANCEL),
    "discard": FINISHED,
}
_DONE = {"retry": "retried", "cancel": "cancelled", "discard": "discarded"}


@frozen(kw_only=True)
class Batch:
    """What one transaction is to do."""

    owner: str
    done: Sequence[Claim] = ()
    endings: Sequence[JobEnd]
    doubtful: Sequence[JobEnd] = ()
    """Those of all endings that a COMMIT, of which nobody knows whether it happened, may have written."""
    kinds: Sequence[str]
    priorities: Sequence[int]
    room: int
    now: datetime


@frozen(kw_only=True)
class BatchResult:
    """What one transaction brought."""

    completed: Collection[Claim] = ()
    """Jobs that have ended as usual; the other endings are in `settled`, unless they were not ours to give."""
    settled: Sequence[Settled] = ()
    claimed: Sequence[ClaimedJob] = ()
    next_due: datetime | None = None


def run_batch(connection: Connection, batch: Batch) -> BatchResult:
    """Let go of what is done, then claim what there is room for."""
    completed, settled = settle_all(connection, batch)
    claimed = jobs.claim(
        connection,
        owner=batch.owner,
        kinds=batch.kinds,
        priorities=batch.priorities,
        limit=batch.room,
        now=batch.now,
    )
    due = jobs.next_due(connection, priorities=batch.priorities, now=batch.now) if len(claimed) < batch.room else None
    return BatchResult(completed=completed, settled=settled, claimed=claimed, next_due=due)


def settle_all(connection: Connection, batch: Batch) -> tuple[set[Claim], list[Settled]]:
    """End what is done: nearly all of it in the usual way, the rest as each one has it."""
    completed = jobs.complete(connection, owner=batch.owner, done=batch.done, now=batch.now)
    others = [
        JobEnd(id=job_id, token=token, to=JobState.SUCCEEDED)
        for job_id, token in batch.done
        if (job_id, token) not in completed
    ]
    settled = jobs.settle(connection, owner=batch.owner, endings=[*others, *batch.endings], now=batch.now)
    return completed, settled


@frozen(kw_only=True)
class Reconciled(BatchResult):
    """What the database and we agree on."""

    lost: set[Claim]
    cancelled: set[Claim]
    """Those of the lost ones that somebody cancelled; the others were taken from us."""
    is_paused: bool
    priorities: Sequence[int]
    """Those that jobs wait with. Some may be of an older configuration."""


def reconcile(connection: Connection, batch: Batch, *, known: set[Claim]) -> Reconciled:
    """Settle what has ended, find what was settled before, and release what was claimed unseen."""
    completed, settled = settle_all(connection, batch)
    settled += jobs.settled_before(connection, batch.doubtful)
    lost = known - jobs.release_unknown(connection, owner=batch.owner, known=known, now=batch.now)
    return Reconciled(
        completed=completed,
        settled=settled,
        lost=lost,
        cancelled=jobs.cancelled_among(connection, lost),
        is_paused=pauses.is_all_paused(connection),
        priorities=jobs.priorities_in_use(connection),
    )


def leave(connection: Connection, batch: Batch, *, is_orderly: bool) -> BatchResult:
    """End a run. In disorder, what ran has used up an attempt: it may be the reason."""
    # First, because it waits for a claim of ours whose COMMIT is in doubt and still under way. What that has claimed would
    # not be seen before, and would belong to nobody after.
    workers.retire(connection, batch.owner)
    completed, settled = settle_all(connection, batch)
    workers.free_claims(connection, batch.owner, limit=LEAVE_MOST)
    if is_orderly:
        jobs.release_all(connection, owner=batch.owner, now=batch.now)
    else:
        jobs.reclaim(connection, owner=batch.owner, limit=LEAVE_MOST, now=batch.now)
    settled += jobs.settled_before(connection, batch.doubtful)
    return BatchResult(completed=completed, settled=settled)


PRUNED: Final = "finished jobs are pruned after a while"


@frozen(kw_only=True)
class JobChange:
    """What became of one job that was changed by hand."""

    id: int
    is_done: bool = True
    said: str
    """What follows, or why it was not changed."""
    cancelled: JobView | None = None
    """The job as it was before it was cancelled."""
    token: int = 0
    """The token of its last claim. Runs of a cancelled job under it, or under an earlier one, are to be stopped."""


def change_page(connection: Connection, verb: str, ids: Sequence[int], *, now: datetime) -> list[JobChange]:
    """Retry, cancel or discard jobs by hand. A job that cannot be changed does not keep the others from it."""
    return [_change_or_refuse(connection, verb, job_id, now) for job_id in ids]


def change_one(connection: Connection, verb: str, job_id: int, *, now: datetime) -> JobChange:
    """Retry, cancel or discard a job by hand, or raise `NotFound`, `IllegalChange` or `KeyTaken`."""
    try:
        return _CHANGES[verb](connection, job_id, now)
    except IllegalChange as illegal:
        if illegal.state in set(JobState):
            raise
        raise NotFound("job", job_id, PRUNED) from None


def _change_or_refuse(connection: Connection, verb: str, job_id: int, now: datetime) -> JobChange:
    try:
        return change_one(connection, verb, job_id, now=now)
    except NotFound:
        said = f"there is no such job; {PRUNED}"
    except IllegalChange as illegal:
        *most, last = [each.value for each in JobState if each in _ALLOWED[verb]]
        said = f"it is {illegal.state}; only what is {', '.join(most)} or {last} can be {_DONE[verb]}"
    except KeyTaken:
        said = "another job of its kind and key is waiting or running, and does its work"
    return JobChange(id=job_id, is_done=False, said=said)


def _retry(connection: Connection, job_id: int, now: datetime) -> JobChange:
    jobs.revive(connection, job_id, now=now)
    job = reports.show(connection, job_id)
    then = f"held because {job.kind} is paused" if job is not None and job.held else "due now"
    return JobChange(id=job_id, said=f"retried; {then}")


def _cancel(connection: Connection, job_id: int, now: datetime) -> JobChange:
    job = reports.show(connection, job_id)
    token = jobs.cancel(connection, job_id, now=now)
    said = "cancelled"
    if job is not None and job.state is JobState.RUNNING:
        said += f"; its handler at {job.owner} is stopped soon, at the next heartbeat at the latest"
    return JobChange(id=job_id, said=said, cancelled=job, token=token)


def _discard(connection: Connection, job_id: int, now: datetime) -> JobChange:  # noqa: ARG001 - one signature for all changes
    jobs.discard(connection, job_id)
    return JobChange(id=job_id, said="discarded")


_CHANGES: Final = {"retry": _retry, "cancel": _cancel, "discard": _discard}


def enqueue_or_join(connection: Connection, job: NewJob, *, join: Callable[[str, str], str], now: datetime) -> bool:
    """Enqueue a job, or join its payload to that of the job that waits under its key.

    `join(waiting, new)` returns the payload of both. False while the job of that key is running: a payload that joined it
    would be lost if its handler fails.
    """
    # SQLite has one writer. On PostgreSQL another process could claim the waiting job, or enqueue one at the same moment.
    is_shared = connection.dialect.name == "postgresql"
    if is_shared:
        connection.execute(_LOCK_KEY, {"turn": f"{job.kind} {job.dedupe_key}"})
    words = {"kind": job.kind, "key": job.dedupe_key}
    there = connection.execute(_LIVE_LOCKED if is_shared else _LIVE, words).one_or_none()
    if there is not None and there.state == "running":
        return False
    if there is not None:
        job = evolve(job, payload=join(there.payload, job.payload))
    jobs.enqueue(connection, job, now=now)
    return True


def last_due(connection: Connection, kind: str) -> dict[str, datetime]:
    """When the last job of each key was due. Reads every job of the kind; meant for the start of a service."""
    return {row.dedupe_key: from_micros(row.due) for row in connection.execute(_LAST_DUE, {"kind": kind})}


_SELECT_LIVE = """
    SELECT state, payload FROM jobs
    WHERE kind = :kind AND dedupe_key = :key AND state IN ('pending', 'retryable', 'running')
"""
_LIVE = text(_SELECT_LIVE)
_LIVE_LOCKED = text(f"{_SELECT_LIVE} FOR UPDATE")
_LOCK_KEY = text("SELECT pg_advisory_xact_lock(hashtextextended(:turn, 0))")
_LAST_DUE = text("""
    SELECT dedupe_key, max(run_at) AS due FROM jobs WHERE kind = :kind AND dedupe_key IS NOT NULL GROUP BY dedupe_key
""")
