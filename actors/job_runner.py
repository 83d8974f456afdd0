"""Who runs jobs? Claims what finds a worker at once, runs its handler, and lets go of it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import trio
from attrs import define, field, frozen

from actors.actor import Actor
from actors.bell import Bell
from actors.clerk import Clerk
from actors.handlers import Handler, JobContext, Reach, payload_of, run_handler
from actors.heart import Heart
from actors.job_notes import about
from actors.job_queue import JobQueue
from actors.jobs_in_hand import (
    CANCELLED,
    LOST,
    STOPPING,
    FinishedJob,
    JobsInHand,
    PassingJob,
    RunningJob,
    Work,
    WorkBell,
)
from actors.lease import Lease
from actors.reply import Reply
from cormorant.rules.errors import HandlerMisbehaved, JobError, JobTimedOut
from cormorant.rules.failures import split_crash
from cormorant.rules.job_errors import describe_error
from cormorant.rules.job_events import JobBlockedLoop, JobFailed, JobReturnedValue, JobStarted
from cormorant.rules.jobs import RetryPolicy, Verb
from cormorant.rules.ports import Chance, Clock, Emit
from cormorant.rules.verdicts import Verdict, verdict_on
from storage.database import Database
from storage.job_sql import CHANNEL
from storage.jobs import ClaimedJob


class Interrupted(Exception):
    """Why a handler was stopped before its end."""


@frozen(kw_only=True)
class CancelHandler:
    """Command: the job was cancelled; stop its handler if it runs here."""

    job_id: int


@frozen(kw_only=True)
class RunPassing:
    """Command: run this once, now or later; it need not survive a restart. Answered when it is in the queue."""

    job: PassingJob
    label: str
    delay_s: float
    reply: Reply[None]


@frozen(kw_only=True)
class SetClaiming:
    """Command: claim jobs, or leave them where they are. What runs goes on."""

    is_on: bool


RunnerMessage = CancelHandler | RunPassing | SetClaiming


@frozen(kw_only=True)
class RunnerOptions:
    """How jobs are run."""

    worker_id: str
    version: str
    concurrency: int = 20
    priorities: Mapping[str, int]
    timeout_s: float = 300.0
    grace_s: float = 5.0
    poll_s: float = 5.0
    beat_s: float = 20.0
    unconfirmed_s: float = 240.0
    block_s: float = 0.2
    max_in_memory: int = 5_000
    warn_depth: int = 1_000
    retry: RetryPolicy = field(factory=RetryPolicy)


@define(eq=False, kw_only=True)
class JobRunner(Actor[RunnerMessage]):
    """A fixed number of workers, a clerk that fetches and settles, and a heart that keeps the lease."""

    database: Database
    handlers: Mapping[str, Handler]
    options: RunnerOptions
    bell: WorkBell
    reach: Reach
    clock: Clock
    chance: Chance
    emit: Emit
    in_hand: JobsInHand = field(init=False)
    clerk: Clerk = field(init=False)
    lease: Lease = field(init=False)
    _quiet: Bell = field(init=False, factory=Bell)
    _clerk_left: trio.Event = field(init=False, factory=trio.Event)

    async def begin(self) -> None:
        """Start the workers. Claiming begins as soon as the database knows us; nobody waits for that."""
        options = self.options
        queue: JobQueue[Work] = JobQueue(
            priorities=options.priorities,
            max_in_memory=options.max_in_memory,
            warn_depth=options.warn_depth,
            emit=self.emit,
        )
        self.in_hand = JobsInHand(concurrency=options.concurrency, queue=queue)
        self.lease = Lease()
        self.clerk = self._make_clerk(self.lease)
        self.nursery.start_soon(self._run_clerk)
        self.nursery.start_soon(self._make_heart(self.lease).run)
        self.nursery.start_soon(self.database.listen, CHANNEL, self.clerk.hear)
        for _ in range(options.concurrency):
            self.nursery.start_soon(self._work)

    async def handle(self, message: RunnerMessage) -> None:
        """Do what one message says."""
        match message:
            case CancelHandler(job_id=job_id):
                self.in_hand.cancel(CANCELLED, lambda work: isinstance(work, ClaimedJob) and work.id == job_id)
            case RunPassing():
                self._queue_passing(message)
            case SetClaiming(is_on=is_on):
                self.clerk.may_claim = is_on
                self.bell.ring()

    async def wake(self) -> None:
        """A delayed item has become ready."""
        self._call_workers()

    async def end(self) -> None:
        """Let handlers finish within the grace, stop the rest, and give back what is not done."""
        self.clerk.close()
        self.in_hand.drop_claimed()
        self.in_hand.queue.shut_down()
        with trio.move_on_after(self.options.grace_s):
            await self._until_idle()
        self.in_hand.cancel(STOPPING)
        await self._until_idle()
        self.clerk.is_leaving = True
        self.bell.nudge()
        await self._clerk_left.wait()

    def _queue_passing(self, message: RunPassing) -> None:
        now = trio.current_time()
        try:
            self.in_hand.queue.put(message.job, label=message.label, now=now, delay_s=message.delay_s)
        except (JobError, ValueError) as refusal:
            message.reply.refuse(refusal)
        else:
            message.reply.answer(None)
            self._call_workers()

    def _call_workers(self) -> None:
        ready = self.in_hand.queue.promote(trio.current_time())
        self.clerk.workers_lot.unpark(count=ready)
        self.wake_at = self.in_hand.queue.next_ready_at()

    async def _until_idle(self) -> None:
        while self.in_hand.running:
            await self._quiet.wait()

    async def _run_clerk(self) -> None:
        try:
            await self.clerk.run()
        finally:
            self._clerk_left.set()

    async def _work(self) -> None:
        """The life of a worker: one handler after the other."""
        queue = self.in_hand.queue
        while True:
            item = queue.take(now=trio.current_time())
            if item is None:
                await self.clerk.workers_lot.park()
                continue
            await trio.lowlevel.checkpoint_if_cancelled()
            # A process that stood still may wake up with jobs that others have taken: the clerk finds out, and gives back.
            if isinstance(item.job, PassingJob) or trio.current_time() < self.lease.doubtful_at:
                await self._run(item.job)

    async def _run(self, work: Work) -> None:
        number, running = self.in_hand.begin(work, self._timeout_of(work.kind))
        try:
            error = await self._attempt(work, running)
        finally:
            del self.in_hand.running[number]
            self._quiet.ring()
        took_s = trio.current_time() - running.started_at
        if isinstance(work, ClaimedJob):
            self._finish(work, self._verdict(work, running, error), took_s)
        elif error is not None:
            self.emit(JobFailed(**about(work), attempts=1, error=describe_error(error)))

    async def _attempt(self, work: Work, running: RunningJob) -> Exception | None:
        """Run a handler. Returns what it raised, or the time-out."""
        with running.scope:
            try:
                await self._call(work)
            except BaseException as raised:  # noqa: BLE001 - foreign code; what is not its crash goes on up
                crash, rest = split_crash(raised)
                if rest is not None:
                    raise rest from None
                return crash
        if running.scope.cancelled_caught and running.why is None:
            return JobTimedOut(work.kind, self._timeout_of(work.kind))
        return None

    async def _call(self, work: Work) -> None:
        context = self._context(work)
        of = about(work)
        waited_s = 0.0
        if isinstance(work, ClaimedJob):
            waited_s = (self.clock.now() - work.run_at) / timedelta(seconds=1)
        self.emit(JobStarted(**of, attempt=context.attempt, waited_s=waited_s))
        returned = await run_handler(
            self.handlers[work.kind],
            context,
            stopwatch=self.clock.stopwatch,
            blocked=lambda for_s: self.emit(JobBlockedLoop(**of, for_s=for_s)),
            block_s=self.options.block_s,
        )
        if returned is not None:
            self.emit(JobReturnedValue(**of, returned=type(returned).__name__))

    def _context(self, work: Work) -> JobContext:
        if isinstance(work, PassingJob):
            return JobContext(
                job_id=None,
                kind=work.kind,
                payload=work.payload,
                attempt=1,
                max_attempts=1,
                correlation_id=work.correlation_id,
                reach=self.reach,
            )
        return JobContext(
            job_id=work.id,
            kind=work.kind,
            payload=payload_of(work.payload),
            attempt=work.attempts + 1,
            max_attempts=work.max_attempts,
            correlation_id=work.correlation_id,
            reach=self.reach,
            owner=self.lease.owner,
            token=work.token,
        )

    def _verdict(self, job: ClaimedJob, running: RunningJob, error: Exception | None) -> Verdict | None:
        """What follows for the job. None: it is not ours any more."""
        was_stopped = running.scope.cancelled_caught or (running.why is not None and error is not None)
        if was_stopped and running.why in {CANCELLED, LOST}:
            return None
        if was_stopped and running.why is not None:
            return Verdict(verb=Verb.RELEASE, error=Interrupted(running.why))
        if isinstance(error, HandlerMisbehaved):
            return Verdict(verb=Verb.FAIL, error=error)
        return verdict_on(error, attempts=job.attempts, policy=self.options.retry, jitter=self.chance.random())

    def _finish(self, job: ClaimedJob, verdict: Verdict | None, took_s: float) -> None:
        if verdict is not None:
            self.in_hand.finished.append(FinishedJob(job=job, verdict=verdict, took_s=took_s))
            self.bell.nudge()

    def _timeout_of(self, kind: str) -> float:
        handler = self.handlers.get(kind)
        own = None if handler is None else handler.timeout_s
        return self.options.timeout_s if own is None else own

    def _make_clerk(self, lease: Lease) -> Clerk:
        return Clerk(
            database=self.database,
            lease=lease,
            in_hand=self.in_hand,
            bell=self.bell,
            kinds=tuple(self.handlers),
            priorities=sorted(self.options.priorities.values()),
            poll_s=self.options.poll_s,
            clock=self.clock,
            emit=self.emit,
        )

    def _make_heart(self, lease: Lease) -> Heart:
        return Heart(
            database=self.database,
            lease=lease,
            in_hand=self.in_hand,
            bell=self.bell,
            worker_id=self.options.worker_id,
            version=self.options.version,
            kinds=tuple(self.handlers),
            beat_s=self.options.beat_s,
            unconfirmed_s=self.options.unconfirmed_s,
            clock=self.clock,
            chance=self.chance,
            emit=self.emit,
            on_beat=self.clerk.check,
        )
