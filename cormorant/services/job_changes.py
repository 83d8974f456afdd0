"""What can be done to jobs by hand? Each id has its own outcome; long work goes in pages and tells how far it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime

from attrs import frozen
from sqlalchemy import Connection

from cormorant.rules.errors import CommitUnknown, IllegalChange, KeyTaken
from cormorant.rules.jobs.states import FINISHED, PAUSED_FLAG, JobState, Verb, allowed_from
from storage import pauses
from storage.database import Database
from storage.engine.statements import in_pages
from storage.jobs import jobs, reports

__all__ = [
    "CHANGES",
    "JobChange",
    "change_each",
    "dead_letters",
    "pause_all",
    "pause_kind",
    "resume_all",
    "resume_kind",
]

IDS_MOST = 100
"""Ids in one transaction: others must not wait long for the rows."""
PAGE = 1_000

Tell = Callable[[int], object]
"""Is told how many more are done."""
Change = Callable[[Connection, int, datetime], str]
"""Changes one job. Returns what is worth saying besides."""

_ALLOWED = {
    "retry": allowed_from(Verb.REVIVE),
    "cancel": allowed_from(Verb.CANCEL),
    "discard": FINISHED,
}
_DONE = {"retry": "retried", "cancel": "cancelled", "discard": "discarded"}


@frozen(kw_only=True)
class JobChange:
    """What became of one id."""

    id: int
    is_done: bool
    said: str
    """What follows, or why it could not be done."""


async def change_each(database: Database, verb: str, ids: Sequence[int], *, tell: Tell) -> list[JobChange]:
    """Do one thing to many jobs. What cannot be done to one of them does not keep it from the others."""
    done: list[JobChange] = []
    for page in _pages(sorted(set(ids))):
        try:
            done += await database.run(_change_page, verb, page, now=datetime.now(UTC))
        except CommitUnknown:
            said = "the connection broke at the end, so it may have happened: look with `cormorant jobs show`"
            done += [JobChange(id=job_id, is_done=False, said=said) for job_id in page]
        tell(len(page))
    return done


def _pages(ids: Sequence[int]) -> Iterator[Sequence[int]]:
    for first in range(0, len(ids), IDS_MOST):
        yield ids[first : first + IDS_MOST]


def _change_page(connection: Connection, verb: str, ids: Sequence[int], *, now: datetime) -> list[JobChange]:
    return [_change_one(connection, verb, job_id, now) for job_id in ids]


def _change_one(connection: Connection, verb: str, job_id: int, now: datetime) -> JobChange:
    try:
        said = CHANGES[verb](connection, job_id, now)
    except IllegalChange as illegal:
        return JobChange(id=job_id, is_done=False, said=_why_not(verb, illegal.state))
    except KeyTaken:
        said = "another job of its kind and key is waiting or running, and does its work"
        return JobChange(id=job_id, is_done=False, said=said)
    return JobChange(id=job_id, is_done=True, said=f"{_DONE[verb]}{said and f'; {said}'}")


def _why_not(verb: str, state: str) -> str:
    if state not in set(JobState):
        return "there is no such job; finished jobs are pruned after a while"
    *most, last = [each.value for each in JobState if each in _ALLOWED[verb]]
    return f"it is {state}; only what is {', '.join(most)} or {last} can be {_DONE[verb]}"


def _retry(connection: Connection, job_id: int, now: datetime) -> str:
    jobs.revive(connection, job_id, now=now)
    job = reports.show(connection, job_id)
    return f"held because {job.kind} is paused" if job is not None and job.held else "due now"


def _cancel(connection: Connection, job_id: int, now: datetime) -> str:
    job = reports.show(connection, job_id)
    jobs.cancel(connection, job_id, now=now)
    is_running = job is not None and job.state is JobState.RUNNING
    if job is None or not is_running:
        return ""
    return f"its handler at {job.owner} is stopped soon, at the next heartbeat at the latest"


def _discard(connection: Connection, job_id: int, now: datetime) -> str:  # noqa: ARG001 - one signature for all changes
    jobs.discard(connection, job_id)
    return ""


CHANGES: dict[str, Change] = {"retry": _retry, "cancel": _cancel, "discard": _discard}


async def dead_letters(database: Database, kind: str | None) -> list[int]:
    """The ids of all failed jobs, or of those of one kind."""
    ids: list[int] = []
    while page := await database.read(
        reports.recent, state=JobState.FAILED, kind=kind, before=ids[-1] if ids else None, limit=PAGE
    ):
        ids += [job.id for job in page]
    return ids


async def pause_all(database: Database) -> bool:
    """Let no process claim jobs. False: that was so already."""
    return await database.run(_switch, is_paused=True, now=datetime.now(UTC))


async def resume_all(database: Database) -> bool:
    """Let processes claim jobs again. False: they did."""
    return await database.run(_switch, is_paused=False, now=datetime.now(UTC))


def _switch(connection: Connection, *, is_paused: bool, now: datetime) -> bool:
    if pauses.is_set(connection, PAUSED_FLAG) is is_paused:
        return False
    pauses.set_all(connection, is_paused=is_paused, now=now)
    return True


async def pause_kind(database: Database, kind: str, *, tell: Tell) -> int:
    """Hold the jobs of a kind, those that wait and those to come. Returns how many were waiting."""
    await database.run(pauses.pause, kind, now=datetime.now(UTC))
    return await in_pages(database, pauses.hold_some, tell)


async def resume_kind(database: Database, kind: str, *, tell: Tell) -> int | None:
    """Free the jobs of a kind. Returns how many were held; None when the kind was not paused."""
    was_paused = await database.run(pauses.resume, kind)
    # Also if it was not: an earlier try may have been interrupted half-way.
    freed = await in_pages(database, pauses.free_some, tell)
    return freed if was_paused or freed else None
