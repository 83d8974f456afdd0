"""Jobs: enqueue, show, cancel, retry, discard, pause; many at once in pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar, Unpack

from attrs import define, field
from sqlalchemy import Connection

from actors.actor import Address
from actors.environment import Environment
from actors.jobs.new_jobs import JobTerms, new_job
from actors.jobs.queue import check_terms
from actors.jobs.runner import CancelHandler, RunEphemeral, RunnerMessage, SetClaiming
from actors.jobs.working_set import EphemeralJob, JobWakeUp
from cormorant.rules.errors import CommitUnknown, MailboxFull, NotFound, WaitForbidden
from cormorant.rules.jobs.events import About, JobCancelled
from cormorant.rules.jobs.states import JobState
from storage import pauses
from storage.engine.statements import in_pages
from storage.jobs import batch, jobs, reports
from storage.jobs.batch import JobChange
from storage.jobs.jobs import Enqueued, NewJob
from storage.jobs.reports import JobPage, JobStats, JobSurroundings, JobView

P = ParamSpec("P")
T = TypeVar("T")

Tell = Callable[[int], object]
"""Is told how many more are done."""

IDS_MOST = 100
"""Ids in one transaction: others must not wait long for the rows."""
PAGE = 1_000


@define(eq=False, kw_only=True)
class Jobs:
    """The durable jobs of a service."""

    environment: Environment = field(kw_only=False)
    runner: Address[RunnerMessage]
    wake_up: JobWakeUp
    max_attempts: Mapping[str, int]
    """For each kind that this process has a handler for."""

    def make(self, kind: str, payload: Any, **how: Unpack[JobTerms]) -> NewJob:
        """A job to be enqueued, checked; for `storage.jobs.enqueue` inside a transaction of your own."""
        if how.get("max_attempts") is None:
            how["max_attempts"] = self.max_attempts.get(kind)
        return new_job(self.environment, kind, payload, **how)

    async def enqueue(self, kind: str, payload: Any, **how: Unpack[JobTerms]) -> int:
        """Take in a durable job and return its id."""
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
        check_terms(self.environment.settings.queue.priorities, priority, delay_s)
        message = partial(RunEphemeral, job=EphemeralJob(kind=kind, payload=payload), label=priority, delay_s=delay_s)
        try:
            await self.runner.ask(message)
        except WaitForbidden:
            self.runner.tell_nowait(message())

    async def show(self, job_id: int) -> JobView:
        """One job, or `NotFound`."""
        view = await self.environment.database.read(reports.show, job_id)
        if view is None:
            raise NotFound("job", job_id, batch.PRUNED)
        return view

    async def page(self, *, state: JobState | None, kind: str | None, before: int | None, limit: int) -> JobPage:
        """The newest jobs, and what each waits for."""
        return await self._look(reports.read_list, state=state, kind=kind, before=before, limit=limit)

    async def stats(self) -> JobStats:
        """How many jobs there are, and who works on them."""
        return await self._look(reports.read_stats)

    async def stuck(self, *, silent_s: float) -> JobPage:
        """Running jobs whose owner has not been heard of for so long."""
        return await self._look(reports.read_stuck, silent_s=silent_s)

    async def surroundings(self) -> JobSurroundings:
        """Who works, and what is paused."""
        return await self._look(reports.read_surroundings)

    async def known_kinds(self) -> set[str]:
        """The kinds that there are jobs or handlers of."""
        return await self.environment.database.read(reports.known_kinds)

    async def dead_letters(self, kind: str | None = None) -> list[int]:
        """The ids of all failed jobs, or of those of one kind."""
        ids: list[int] = []
        while page := await self.environment.database.read(
            reports.recent, state=JobState.FAILED, kind=kind, before=ids[-1] if ids else None, limit=PAGE
        ):
            ids += [job.id for job in page]
        return ids

    async def _look(self, look: Callable[..., T], **words: Any) -> T:
        silence_s = self.environment.settings.jobs.lock_timeout_s
        return await self.environment.database.read(look, now=self.environment.now(), silence_s=silence_s, **words)

    async def cancel(self, job_id: int) -> None:
        """End a live job and stop its handler, here at once, in another process as soon as that hears of it."""
        await self._change("cancel", job_id)

    async def revive(self, job_id: int) -> None:
        """Let a failed or cancelled job start afresh."""
        await self._change("retry", job_id)

    async def discard(self, job_id: int) -> None:
        """Forget a finished job."""
        await self._change("discard", job_id)

    async def _change(self, verb: str, job_id: int) -> None:
        done = await self.environment.database.run(batch.change_one, verb, job_id, now=self.environment.now())
        self._announce(verb, [done])

    async def change_each(self, verb: str, ids: Sequence[int], *, tell: Tell = lambda _: None) -> list[JobChange]:
        """Retry, cancel or discard many jobs. One that cannot be changed does not keep the others from it."""
        done: list[JobChange] = []
        chosen = sorted(set(ids))
        for first in range(0, len(chosen), IDS_MOST):
            page = chosen[first : first + IDS_MOST]
            done += await self._change_page(verb, page)
            tell(len(page))
        return done

    async def _change_page(self, verb: str, ids: Sequence[int]) -> list[JobChange]:
        try:
            done = await self.environment.database.run(batch.change_page, verb, ids, now=self.environment.now())
        except CommitUnknown:
            said = "the connection broke at the end, so it may have happened: look with `cormorant jobs show`"
            return [JobChange(id=job_id, is_done=False, said=said) for job_id in ids]
        self._announce(verb, done)
        return done

    def _announce(self, verb: str, done: Sequence[JobChange]) -> None:
        """Tell this process of changes at once. The others hear of them from the database."""
        if verb == "retry":
            self.wake_up.set()
        for each in done:
            if each.cancelled is not None:
                self._tell_runner(CancelHandler(job_id=each.id, token=each.token))
                job = each.cancelled
                of = About(job_id=job.id, kind=job.kind, correlation_id=job.correlation_id)
                self.environment.emit(JobCancelled(**of, why="by hand"))

    async def pause_kind(self, kind: str, *, tell: Tell = lambda _: None) -> int:
        """Start no more jobs of a kind, also after a restart. Returns how many were waiting."""
        await self.environment.database.run(pauses.pause, kind, now=self.environment.now())
        return await in_pages(self.environment.database, pauses.hold_some, tell)

    async def resume_kind(self, kind: str, *, tell: Tell = lambda _: None) -> int | None:
        """Start jobs of a kind again. Returns how many were held; None when the kind was not paused."""
        was_paused = await self.environment.database.run(pauses.resume, kind)
        # Also if it was not: an earlier try may have been interrupted half-way.
        freed = await in_pages(self.environment.database, pauses.free_some, tell)
        self.wake_up.set()
        return freed if was_paused or freed else None

    async def pause(self) -> bool:
        """Claim no more jobs of any kind, in every process that shares the database, also after a restart.

        False: that was so already.
        """
        return await self._set_claiming(is_on=False)

    async def resume(self) -> bool:
        """Claim jobs again. False: that was so already."""
        return await self._set_claiming(is_on=True)

    async def _set_claiming(self, *, is_on: bool) -> bool:
        is_new = await self.environment.database.run(pauses.set_all, is_paused=not is_on, now=self.environment.now())
        self._tell_runner(SetClaiming(is_on=is_on))
        return is_new

    def _tell_runner(self, message: RunnerMessage) -> None:
        with suppress(MailboxFull):  # the next heartbeat finds out
            self.runner.tell_nowait(message)
