"""What does one transaction of the clerk do? Lets go of jobs, claims others, finds out what is ours, or leaves."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from attrs import frozen
from sqlalchemy import Connection

from cormorant.rules.jobs.states import JobState
from storage import pauses
from storage.jobs import jobs, workers
from storage.jobs.jobs import Claim, ClaimedJob, JobEnd, Settled

LEAVE_MOST = 100_000


@frozen(kw_only=True)
class Batch:
    """What one transaction is to do."""

    owner: str
    done: Sequence[Claim] = ()
    endings: Sequence[JobEnd]
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


def run_errand(connection: Connection, errand: Batch) -> BatchResult:
    """Let go of what is done, then claim what there is room for."""
    completed, settled = let_go(connection, errand)
    claimed = jobs.claim(
        connection,
        owner=errand.owner,
        kinds=errand.kinds,
        priorities=errand.priorities,
        limit=errand.room,
        now=errand.now,
    )
    due = (
        jobs.next_due(connection, priorities=errand.priorities, now=errand.now) if len(claimed) < errand.room else None
    )
    return BatchResult(completed=completed, settled=settled, claimed=claimed, next_due=due)


def let_go(connection: Connection, errand: Batch) -> tuple[set[Claim], list[Settled]]:
    """End what is done: nearly all of it in the usual way, the rest as each one has it."""
    completed = jobs.complete(connection, owner=errand.owner, done=errand.done, now=errand.now)
    others = [done_ending(*each) for each in errand.done if each not in completed]
    settled = jobs.settle(connection, owner=errand.owner, endings=[*others, *errand.endings], now=errand.now)
    return completed, settled


def done_ending(job_id: int, token: int) -> JobEnd:
    """How a job ends that is done."""
    return JobEnd(id=job_id, token=token, to=JobState.SUCCEEDED)


def all_endings(errand: Batch) -> list[JobEnd]:
    """Everything that the errand lets go of."""
    return [*(done_ending(*each) for each in errand.done), *errand.endings]


@frozen(kw_only=True)
class Reconciled:
    """What the database and we agree on."""

    completed: Collection[Claim]
    settled: Sequence[Settled]
    lost: set[Claim]
    cancelled: set[Claim]
    """Those of the lost ones that somebody cancelled; the others were taken from us."""
    is_paused: bool
    priorities: Sequence[int]
    """Those that jobs wait with. Some may be of an older configuration."""


def clear_up(connection: Connection, errand: Batch, *, doubtful: Sequence[JobEnd], known: set[Claim]) -> Reconciled:
    """Let go of what is done, find what was let go of before, and give back what was claimed unseen.

    `doubtful` are endings that a COMMIT, of which nobody knows whether it happened, may have written.
    """
    completed, settled = let_go(connection, errand)
    settled += jobs.settled_before(connection, doubtful)
    lost = known - jobs.release_unknown(connection, owner=errand.owner, known=known, now=errand.now)
    return Reconciled(
        completed=completed,
        settled=settled,
        lost=lost,
        cancelled=jobs.cancelled_among(connection, lost),
        is_paused=pauses.is_all_paused(connection),
        priorities=jobs.priorities_in_use(connection),
    )


def leave(connection: Connection, errand: Batch, *, doubtful: Sequence[JobEnd], is_orderly: bool) -> BatchResult:
    """End a run. In disorder, what ran has used up an attempt: it may be the reason."""
    # First, because it waits for a claim of ours whose COMMIT is in doubt and still under way. What that has claimed would
    # not be seen before, and would belong to nobody after.
    workers.retire(connection, errand.owner)
    completed, settled = let_go(connection, errand)
    if is_orderly:
        jobs.release_all(connection, owner=errand.owner, now=errand.now)
    else:
        jobs.reclaim(connection, owner=errand.owner, limit=LEAVE_MOST, now=errand.now)
    before = jobs.settled_before(connection, doubtful)
    return BatchResult(completed=completed, settled=[*settled, *before])
