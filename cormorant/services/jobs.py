"""Jobs: enqueue, show, cancel, retry, discard, pause; many at once in pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar

from attrs import define, field
from sqlalchemy import Connection

from actors.actor import Address
from actors.environment import Environment
from actors.jobs.new_jobs import check_terms, new_job
from actors.jobs.runner import CancelHandler, RunEphemeral, RunnerMessage, SetClaiming
from actors.jobs.working_set import EphemeralJob, JobWakeUp
from cormorant.rules.errors import CommitUnknown, MailboxFull, UnknownJob, WaitForbidden
from cormorant.rules.jobs.events import About, JobCancelled
from cormorant.rules.jobs.states import JobState
from storage import pauses
from storage.database import Database
from storage.engine.statements import in_pages
from storage.jobs import batch, jobs, reports
from storage.jobs.batch import JobChange
from storage.jobs.jobs import Enqueued, NewJob
from storage.jobs.reports import JobView

P = ParamSpec("P")
T = TypeVar("T")


@define(eq=False, kw_only=True)
class Jobs:
    """The durable jobs of a service."""

    environment: Environment = field(kw_only=False)
    runner: Address[RunnerMessage]
    wake_up: JobWakeUp
    max_attempts: Mapping[str, int]
    """For each kind that this process has a handler for."""

    def make(  # noqa: PLR0913 - the ways to enqueue a job, all but two with a default
        self,
        kind: str,
        payload: Any,
        *,
        priority: str = "normal",
        delay_s: float = 0.0,
        dedupe_key: str | None = None,
        correlation_id: str | None = None,
        max_attempts: int | None = None,
    ) -> NewJob:
        """A job to be enqueued, checked; for `storage.jobs.enqueue` inside a transaction of your own."""
        return new_job(
            self.environment,
            kind,
            payload,
            priority=priority,
            delay_s=delay_s,
            dedupe_key=dedupe_key,
            correlation_id=correlation_id,
            max_attempts=self.max_attempts.get(kind) if max_attempts is None else max_attempts,
        )

    async def enqueue(self, kind: str, payload: Any, **how: Any) -> int:
        """Take in a durable job and return its id; `how` as `make` has it."""
        return (await self.take_in(self.make(kind, payload, **how))).id

    async def transaction(
        self, function: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a plain function of a connection in one transaction. It may be run again, so it must do nothing else."""
        result = await self.environment.database.run(function, *args, **kwargs)
        self.wake_up.set()  # it may have enqueued something
        return result

    async def take_in(self, job: NewJob) -> Enqueued:
        """Take a job in, once: if COMMIT did not say whether it happened, it is looked up before it is repeated."""
        enqueue = jobs.enqueue
        while True:
            try:
                done = await self.environment.database.run(enqueue, job, now=self.environment.now())
            except CommitUnknown:
                enqueue = jobs.enqueue_again
            else:
                self.wake_up.set()
                return done

    async def run_ephemeral(self, kind: str, payload: Any, *, priority: str = "normal", delay_s: float = 0.0) -> None:
        """Run something once, now or later, that need not survive a restart and is not tried again.

        In a handler, which cannot wait for those that run it, a full queue is told by the event `job.failed`.
        """
        check_terms(self.environment, priority, delay_s)
        message = partial(RunEphemeral, job=EphemeralJob(kind=kind, payload=payload), label=priority, delay_s=delay_s)
        try:
            await self.runner.ask(message)
        except WaitForbidden:
            self.runner.tell_nowait(message())

    async def show(self, job_id: int) -> JobView:
        """One job, or `UnknownJob`."""
        view = await self.environment.database.read(reports.show, job_id)
        if view is None:
            raise UnknownJob(job_id)
        return view

    async def cancel(self, job_id: int) -> None:
        """End a live job and stop its handler, here at once, in another process as soon as that hears of it."""
        view = await self.show(job_id)
        token = await self.environment.database.run(jobs.cancel, job_id, now=self.environment.now())
        with suppress(MailboxFull):  # the next heartbeat finds out
            self.runner.tell_nowait(CancelHandler(job_id=job_id, token=token))
        of = About(job_id=job_id, kind=view.kind, correlation_id=view.correlation_id)
        self.environment.emit(JobCancelled(**of, why="by hand"))

    async def revive(self, job_id: int) -> None:
        """Let a failed or cancelled job start afresh."""
        await self.show(job_id)
        await self.environment.database.run(jobs.revive, job_id, now=self.environment.now())
        self.wake_up.set()

    async def discard(self, job_id: int) -> None:
        """Forget a finished job."""
        await self.show(job_id)
        await self.environment.database.run(jobs.discard, job_id)

    async def pause_kind(self, kind: str) -> int:
        """Start no more jobs of a kind, also after a restart. Returns how many were waiting."""
        await self.environment.database.run(pauses.pause, kind, now=self.environment.now())
        return await in_pages(self.environment.database, pauses.hold_some)

    async def resume_kind(self, kind: str) -> int:
        """Start jobs of a kind again. Returns how many were held."""
        await self.environment.database.run(pauses.resume, kind)
        freed = await in_pages(self.environment.database, pauses.free_some)
        self.wake_up.set()
        return freed

    async def pause(self) -> None:
        """Claim no more jobs of any kind, in every process that shares the database, also after a restart."""
        await self._set_claiming(is_on=False)

    async def resume(self) -> None:
        """Claim jobs again."""
        await self._set_claiming(is_on=True)

    async def _set_claiming(self, *, is_on: bool) -> None:
        await self.environment.database.run(pauses.set_all, is_paused=not is_on, now=self.environment.now())
        with suppress(MailboxFull):  # the next heartbeat finds out
            self.runner.tell_nowait(SetClaiming(is_on=is_on))


IDS_MOST = 100
"""Ids in one transaction: others must not wait long for the rows."""
PAGE = 1_000

Tell = Callable[[int], object]
"""Is told how many more are done."""


async def change_each(database: Database, verb: str, ids: Sequence[int], *, tell: Tell) -> list[JobChange]:
    """Do one thing to many jobs. What cannot be done to one of them does not keep it from the others."""
    done: list[JobChange] = []
    for page in _pages(sorted(set(ids))):
        try:
            done += await database.run(batch.change_page, verb, page, now=datetime.now(UTC))
        except CommitUnknown:
            said = "the connection broke at the end, so it may have happened: look with `cormorant jobs show`"
            done += [JobChange(id=job_id, is_done=False, said=said) for job_id in page]
        tell(len(page))
    return done


def _pages(ids: Sequence[int]) -> Iterator[Sequence[int]]:
    for first in range(0, len(ids), IDS_MOST):
        yield ids[first : first + IDS_MOST]


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
    return await database.run(pauses.switch_all, is_paused=True, now=datetime.now(UTC))


async def resume_all(database: Database) -> bool:
    """Let processes claim jobs again. False: they did."""
    return await database.run(pauses.switch_all, is_paused=False, now=datetime.now(UTC))


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
