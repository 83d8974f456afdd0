"""JobRunner: the actor that owns workers, producer and heartbeat; its messages."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import trio
from attrs import define, field, frozen

from actors.actor import Actor, Address, Recheck, Reply
from actors.environment import Environment
from actors.jobs.handler import Handler, JobServices
from actors.jobs.heartbeat import Heartbeat
from actors.jobs.producer import Producer
from actors.jobs.queue import JobQueue
from actors.jobs.worker import JobWorker
from actors.jobs.working_set import (
    CANCELLED,
    STOPPING,
    EphemeralJob,
    JobWakeUp,
    OwnerLease,
    Work,
    WorkingSet,
    about,
)
from cormorant.rules.errors import JobError
from cormorant.rules.jobs.error_log import describe_error
from cormorant.rules.jobs.events import EphemeralWorkDropped, JobFailed
from storage import pauses
from storage.engine.file_locks import WorkerLocks
from storage.jobs.sql import CHANNEL


@frozen(kw_only=True)
class CancelHandler:
    """Command: the job was cancelled; stop its handler if it runs here. Runs of later claims are none of its business."""

    job_id: int
    token: int


@frozen(kw_only=True)
class RunEphemeral:
    """Command: run this once, now or later; it need not survive a restart. Answered when it is in the queue."""

    job: EphemeralJob
    label: str
    delay_s: float
    reply: Reply[None] | None = None
    """None: who asks cannot wait. A refusal is told as a failure then."""


@frozen(kw_only=True)
class SetClaiming:
    """Command: claim jobs, or leave them where they are. What runs goes on."""

    is_on: bool


RunnerMessage = CancelHandler | RunEphemeral | SetClaiming | Recheck


@define(eq=False, kw_only=True)
class JobRunner(Actor[RunnerMessage]):
    """Owns a fixed number of workers, the producer that claims and settles jobs, and the heartbeat that keeps the lease."""

    environment: Environment = field(kw_only=False)
    handlers: Mapping[str, Handler]
    wake_up: JobWakeUp
    reach: JobServices
    lease: OwnerLease
    sweeper: Address[Recheck]
    """It begins to sweep when this process is registered."""
    working_set: WorkingSet = field(init=False)
    producer: Producer = field(init=False)
    _producer_left: trio.Event = field(init=False, factory=trio.Event)

    async def begin(self) -> None:
        """Start the workers. Claiming begins as soon as the database knows us; nobody waits for that."""
        options = self.environment.settings
        queue: JobQueue[Work] = JobQueue(
            priorities=options.queue.priorities,
            max_in_memory=options.queue.max_in_memory,
            warn_depth=options.queue.warn_depth,
            emit=self.environment.emit,
        )
        self.working_set = WorkingSet(concurrency=options.jobs.concurrency, queue=queue)
        self.lease.lose()
        self.producer = Producer(
            self.environment,
            lease=self.lease,
            working_set=self.working_set,
            wake_up=self.wake_up,
            kinds=tuple(self.handlers),
        )
        heartbeat = Heartbeat(self.environment, lease=self.lease, producer=self.producer, sweeper=self.sweeper)
        self.nursery.start_soon(self._run_producer)
        self.nursery.start_soon(heartbeat.run)
        listen = self.environment.database.listen
        self.nursery.start_soon(listen, CHANNEL, self.wake_up.set)
        for channel in (CHANNEL, pauses.CHANNEL):
            self.nursery.start_soon(partial(listen, channel, self.producer.on_change, own=False))
        for _ in range(options.jobs.concurrency):
            self.nursery.start_soon(self._employ)

    async def handle(self, message: RunnerMessage) -> None:
        """Do what one message says."""
        match message:
            case CancelHandler(job_id=job_id, token=token):
                self.working_set.withdraw(CANCELLED, lambda job: job.id == job_id and job.token <= token)
                self.wake_up.set()  # there may be room for another one
            case RunEphemeral():
                self._queue_ephemeral(message)
            case Recheck():
                self.wake_up.set()
            case SetClaiming(is_on=is_on):
                self.producer.may_claim = is_on
                self.producer.check()  # a look that is under way may have seen how it was before
                self.wake_up.set()

    async def wake(self) -> None:
        """A delayed item has become ready."""
        self._call_workers()

    async def end(self) -> None:
        """Let handlers finish within the grace, stop the rest, and release what is not done."""
        self.producer.close()
        self._drop_waiting()
        self.working_set.queue.shut_down()
        with trio.move_on_after(self.environment.settings.jobs.grace_s):
            await self.working_set.wait_until_idle()
        self.working_set.cancel(STOPPING)
        await self.working_set.wait_until_idle()
        self.producer.is_leaving = True
        self.wake_up.notify_without_fetch()
        await self._producer_left.wait()
        # The others see its death at once also where the database was away, and it could not leave.
        await self.environment.database.with_locks(WorkerLocks.release, self.lease.owner)

    def _drop_waiting(self) -> None:
        """Begin nothing more. Claimed jobs are released; work that need not survive a restart is dropped."""
        dropped = self.working_set.queue.purge()
        passing = sum(isinstance(work, EphemeralJob) for work in dropped)
        if passing:
            self.environment.emit(EphemeralWorkDropped(dropped=passing))

    def _queue_ephemeral(self, message: RunEphemeral) -> None:
        now = trio.current_time()
        try:
            self.working_set.queue.put(message.job, label=message.label, now=now, delay_s=message.delay_s)
        except (JobError, ValueError) as refusal:
            if message.reply is None:
                self.environment.emit(JobFailed(**about(message.job), attempts=0, error=describe_error(refusal)))
            else:
                message.reply.refuse(refusal)
        else:
            if message.reply is not None:
                message.reply.answer(None)
            self._call_workers()

    def _call_workers(self) -> None:
        self.working_set.queue.promote(trio.current_time())
        self.producer.call_worker()
        self.wake_at = self.working_set.queue.next_ready_at()

    async def _employ(self) -> None:
        await JobWorker(self.environment, producer=self.producer, handlers=self.handlers, reach=self.reach).run()
        self.nursery.start_soon(self._employ)  # in a task that no handler has spoilt

    async def _run_producer(self) -> None:
        try:
            await self.producer.run()
        finally:
            self._producer_left.set()
