"""Every state change of one job."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from attrs import frozen
from sqlalchemy import Connection, text
from sqlalchemy.exc import IntegrityError

from cormorant.rules.errors import IllegalChange, KeyTaken, LeaseLost
from cormorant.rules.jobs.states import WAITING, JobState
from storage.engine.columns import from_micros, maybe_from_micros, to_micros
from storage.engine.statements import announce
from storage.jobs import sql
from storage.tables import JOBS, RowCodec

Claim = tuple[int, int]
"""A job's id and the token under which it was claimed: the id alone does not say which of its runs is meant."""


@frozen(kw_only=True)
class NewJob:
    """A job to be taken in. `payload` is JSON text that has been checked."""

    uid: str
    kind: str
    payload: str
    priority: int
    run_at: datetime
    max_attempts: int
    dedupe_key: str | None = None
    correlation_id: str | None = None


@frozen(kw_only=True)
class Enqueued:
    """What became of an enqueue: the job's id, and whether it joined one that was there already."""

    id: int
    state: JobState
    joined: bool


class ClaimedJob(NamedTuple):
    """A job that is ours to run, under the lease of `token`. A tuple: thousands are made in a second."""

    id: int
    token: int
    kind: str
    payload: str
    priority: int
    attempts: int
    max_attempts: int
    correlation_id: str | None
    last_errors: str | None
    run_at_us: int

    @property
    def run_at(self) -> datetime:
        """When it was due."""
        return from_micros(self.run_at_us)


@frozen(kw_only=True)
class JobEnd:
    """How an owner lets go of a job: the state it shall have, whether an attempt was used up, when it is due again."""

    id: int
    token: int
    to: JobState
    attempts: int = 0
    """How many were used up before."""
    uses_attempt: bool = False
    run_at: datetime | None = None
    last_errors: str | None = None


@frozen(kw_only=True)
class Settled:
    """A job as its owner left it."""

    id: int
    token: int
    state: JobState
    attempts: int


@frozen(kw_only=True)
class Reclaimed:
    """A job that was taken from a dead owner."""

    id: int
    kind: str
    state: JobState
    attempts: int
    correlation_id: str | None


_NEW_JOB = RowCodec(JOBS, NewJob)
_RECLAIMED = RowCodec(JOBS, Reclaimed)


def enqueue(connection: Connection, job: NewJob, *, now: datetime) -> Enqueued:
    """Take a job in; one with a live key joins the one that has it.

    A waiting job takes over the new payload; a running one runs again with it when it is done.
    """
    row = connection.execute(
        sql.ENQUEUE_KEYED if job.dedupe_key is not None else sql.ENQUEUE,
        _NEW_JOB.to_row(job, now=to_micros(now)),
    ).one()
    announce(connection, sql.CHANNEL)
    return Enqueued(id=row.id, state=JobState(row.state), joined=row.uid != job.uid)


def make_due_now(connection: Connection, kind: str, dedupe_key: str, *, now: datetime) -> None:
    """Let the job of a key run now that waits for a later time."""
    if connection.execute(sql.HURRY, {"kind": kind, "key": dedupe_key, "now": to_micros(now)}).rowcount:
        announce(connection, sql.CHANNEL)


def enqueue_again(connection: Connection, job: NewJob, *, now: datetime) -> Enqueued:
    """Take a job in, unless an earlier try, whose COMMIT was in doubt, has done it, or does it in this moment."""
    before = find(connection, job.uid)
    if before is not None:
        return before
    try:
        with connection.begin_nested() as attempt:
            done = enqueue(connection, job, now=now)
            # The earlier try may have been waited for, and what it took in may run by now, where no index stops us.
            before = find(connection, job.uid, but=done.id)
            if before is None:
                return done
            attempt.rollback()
    except IntegrityError:
        before = find(connection, job.uid)
        if before is None:
            raise
    return before


def find(connection: Connection, uid: str, *, but: int = 0) -> Enqueued | None:
    """The job that was enqueued as `uid`: after a lost COMMIT, look before repeating."""
    row = connection.execute(sql.FIND, {"uid": uid, "but": but}).one_or_none()
    return None if row is None else Enqueued(id=row.id, state=JobState(row.state), joined=False)


def claim(
    connection: Connection,
    *,
    owner: str,
    kinds: Sequence[str],
    priorities: Sequence[int],
    limit: int,
    now: datetime,
) -> list[ClaimedJob]:
    """Take up to `limit` due jobs for `owner`, if it lives: by priority, then by when they were due, then by age."""
    if limit < 1 or not kinds:
        return []
    words = {"owner": owner, "now": to_micros(now)}
    if connection.dialect.name == "postgresql":
        lists = {"kinds": list(kinds), "priorities": list(priorities)}
        found = connection.execute(sql.CLAIM_POSTGRES, words | lists | {"n": limit}).all()
    else:
        found = _claim_sqlite(connection, words, kinds=kinds, priorities=priorities, limit=limit)
    claimed = [ClaimedJob(*row) for row in found]
    claimed.sort(key=lambda job: (job.priority, job.run_at_us, job.id))  # RETURNING has no order
    return claimed


def _claim_sqlite(
    connection: Connection, words: dict[str, Any], *, kinds: Sequence[str], priorities: Sequence[int], limit: int
) -> Sequence[Any]:
    # Look first: a seek costs a tenth of an UPDATE that finds nothing.
    known = {f"kind{n}": kind for n, kind in enumerate(kinds)} | _numbered(priorities)
    look = sql.claim_candidates_sqlite(len(priorities), len(kinds))
    ids = list(connection.execute(look, known | {"now": words["now"], "n": limit}).scalars())
    if not ids:
        return ()
    return connection.execute(sql.CLAIM_SQLITE, words | {"ids": json.dumps(ids)}).all()


def _numbered(priorities: Sequence[int]) -> dict[str, int]:
    return {f"priority{n}": priority for n, priority in enumerate(priorities)}


def complete(connection: Connection, *, owner: str, done: Sequence[Claim], now: datetime) -> set[Claim]:
    """Let go of jobs, named by id and token, that are done. Returns which of them have ended with that.

    The others are no longer the owner's, or are to run again: `settle` knows what to do with those.
    """
    if not done:
        return set()
    words: dict[str, Any] = {"owner": owner, "now": to_micros(now)}
    in_order = sorted(done)  # two processes that lock rows in different order block each other
    if connection.dialect.name == "postgresql":
        ids, tokens = zip(*in_order, strict=True)
        ended = connection.execute(sql.COMPLETE_POSTGRES, words | {"ids": _array(ids), "tokens": _array(tokens)})
    else:
        ended = connection.execute(sql.COMPLETE_SQLITE, words | {"rows": json.dumps(in_order)})
    return {(job_id, token) for job_id, token in ended.all()}


def _array(numbers: Iterable[int]) -> str:
    """An array of PostgreSQL as text: for its driver a list of hundreds costs more than the statement."""
    return f"{{{','.join(map(str, numbers))}}}"


def settle(connection: Connection, *, owner: str, endings: Iterable[JobEnd], now: datetime) -> list[Settled]:
    """Let go of jobs. Those not in the answer are no longer the owner's: it changed nothing about them."""
    rows = sorted(_ending_row(ending, to_micros(now)) for ending in endings)
    if not rows:
        return []
    words: dict[str, Any] = {"owner": owner, "now": to_micros(now)}
    if connection.dialect.name == "postgresql":
        columns = [list(column) for column in zip(*rows, strict=True)]
        words |= dict(zip(("ids", "tokens", "tos", "used", "run_ats", "errors"), columns, strict=True))
        settled = connection.execute(sql.SETTLE_POSTGRES, words)
    else:
        settled = connection.execute(sql.SETTLE_SQLITE, words | {"rows": json.dumps(rows)})
    if any(to in WAITING for _, _, to, *_ in rows):
        announce(connection, sql.CHANNEL, own=False)  # another process may be the first with room when it is due
    return [_settled(row) for row in settled]


def release_all(connection: Connection, *, owner: str, now: datetime) -> int:
    """Release all jobs of an owner that stops in good order. No attempt is counted."""
    released: int = connection.execute(sql.RELEASE_ALL, {"owner": owner, "now": to_micros(now)}).rowcount
    if released:
        announce(connection, sql.CHANNEL, own=False)
    return released


def reclaim(connection: Connection, *, owner: str, limit: int, now: datetime) -> list[Reclaimed]:
    """Take jobs from a dead owner, oldest first. Each has used up an attempt; with the last one it has failed."""
    rows = connection.execute(sql.RECLAIM, {"owner": owner, "limit": limit, "now": to_micros(now)}).all()
    if rows:
        announce(connection, sql.CHANNEL)
    return [_RECLAIMED.from_row(row) for row in sorted(rows, key=lambda row: row.id)]


def cancel(connection: Connection, job_id: int, *, now: datetime) -> int:
    """End a live job; what its owner still does with it counts no more. Drops the run that was to follow, too.

    Returns the token of its last claim: runs under it, or under an earlier one, are to be stopped.
    """
    token: int | None = connection.execute(sql.CANCEL, {"id": job_id, "now": to_micros(now)}).scalar()
    if token is None:
        raise IllegalChange(verb="cancel", state=_state_of(connection, job_id))
    announce(connection, sql.CHANNEL)  # its owner is to stop the handler
    return token


def revive(connection: Connection, job_id: int, *, now: datetime) -> None:
    """Let a failed or cancelled job start afresh."""
    try:
        with connection.begin_nested():
            changed = connection.execute(sql.REVIVE, {"id": job_id, "now": to_micros(now)}).rowcount
    except IntegrityError as taken:
        raise KeyTaken(job_id) from taken
    if not changed:
        raise IllegalChange(verb="revive", state=_state_of(connection, job_id))
    announce(connection, sql.CHANNEL)


def discard(connection: Connection, job_id: int) -> None:
    """Forget a finished job."""
    if not connection.execute(sql.DISCARD, {"id": job_id}).rowcount:
        raise IllegalChange(verb="discard", state=_state_of(connection, job_id))


def settled_before(connection: Connection, endings: Iterable[JobEnd]) -> list[Settled]:
    """Those of the endings that an earlier transaction, whose COMMIT was in doubt, has written after all.

    Nobody has claimed the job since, as each claim has a new token, and it is as the ending would have left it. Others may
    have brought it there: cancelled, or reclaimed.
    """
    by_claim = {(ending.id, ending.token): ending for ending in endings}
    rows = connection.execute(sql.LET_GO, {"ids": [job_id for job_id, _ in by_claim]}) if by_claim else ()
    found = [_settled(row) for row in rows if (row.id, row.token) in by_claim]
    return [each for each in found if _could_follow(by_claim[each.id, each.token], each)]


def _could_follow(ending: JobEnd, found: Settled) -> bool:
    if found.state is JobState.PENDING and found.attempts == 0 and ending.to is not JobState.PENDING:
        return ending.to is not JobState.CANCELLED  # enqueued again while it ran
    if ending.to in {JobState.SUCCEEDED, JobState.CANCELLED}:
        return found.state is ending.to
    is_there = found.state is ending.to or (ending.uses_attempt and found.state is JobState.FAILED)
    return is_there and found.attempts == ending.attempts + ending.uses_attempt


def release_unknown(connection: Connection, *, owner: str, known: set[Claim], now: datetime) -> set[Claim]:
    """Give back what an owner was given without knowing it, and say what it has: what it runs beyond that is lost."""
    owned = {(row.id, row.token) for row in connection.execute(sql.OWNED, {"owner": owner})}
    unknown = [JobEnd(id=job_id, token=token, to=JobState.PENDING) for job_id, token in owned - known]
    settle(connection, owner=owner, endings=unknown, now=now)
    return owned


def cancelled_among(connection: Connection, claims: set[Claim]) -> set[Claim]:
    """Those of some jobs that somebody has cancelled, and that nobody has claimed since."""
    if not claims:
        return set()
    rows = connection.execute(sql.CANCELLED, {"ids": sorted({job_id for job_id, _ in claims})})
    return claims & {(row.id, row.token) for row in rows}


def check_ours(connection: Connection, job_id: int, *, owner: str, token: int) -> None:
    """Raise `LeaseLost` unless the job is the owner's, and stays so until this transaction ends."""
    lock = " FOR SHARE" if connection.dialect.name == "postgresql" else ""
    words = {"id": job_id, "owner": owner, "token": token}
    if connection.execute(text(sql.IS_OURS + lock), words).scalar() is None:
        raise LeaseLost(job_id)


def next_due(connection: Connection, *, priorities: Sequence[int], now: datetime) -> datetime | None:
    """When the next job will be due that is not due yet."""
    words = _numbered(priorities) | {"now": to_micros(now)}
    return maybe_from_micros(connection.execute(sql.next_due(len(priorities)), words).scalar())


def priorities_in_use(connection: Connection) -> list[int]:
    """The priorities that live jobs have: those of an older configuration are to be served too."""
    found: list[int] = []
    while (
        following := connection.execute(sql.NEXT_PRIORITY, {"after": found[-1] if found else -32769}).scalar()
    ) is not None:
        found.append(following)
    return found


def prune(connection: Connection, *, state: JobState, before: datetime, limit: int) -> int:
    """Forget jobs that finished before a time, oldest first."""
    words = {"state": state.value, "before": to_micros(before), "limit": limit}
    pruned: int = connection.execute(sql.PRUNE, words).rowcount
    return pruned


def _state_of(connection: Connection, job_id: int) -> str:
    state: str | None = connection.execute(text("SELECT state FROM jobs WHERE id = :id"), {"id": job_id}).scalar()
    return state or "unknown"


def _settled(row: Any) -> Settled:
    return Settled(id=row.id, token=row.token, state=JobState(row.state), attempts=row.attempts)


def _ending_row(ending: JobEnd, now: int) -> tuple[int, int, str, bool, int, str | None]:
    run_at = now if ending.run_at is None else to_micros(ending.run_at)
    return ending.id, ending.token, ending.to.value, ending.uses_attempt, run_at, ending.last_errors
