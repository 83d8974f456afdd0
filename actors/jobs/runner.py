"""JobRunner: the actor that owns workers, producer and heartbeat; its messages."""

from __future__ import annotations

from collections.abc import Mapping

import trio
from attrs import define, field, frozen

from actors.actor import Actor, Reply
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
from actors.periodic import WakeUp
from cormorant.rules.errors import JobError
from cormorant.rules.jobs.error_log import describe_error
from cormorant.rules.jobs.events import EphemeralWorkDropped, JobFailed
from cormorant.rules.jobs.states import RetryPolicy
from cormorant.rules.ports import Chance, Clock, Emit
from storage.database import Database
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


RunnerMessage = CancelHandler | RunEphemeral | SetClaiming


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
    wake_up: JobWakeUp
    reach: JobServices
    clock: Clock
    chance: Chance
    emit: Emit
    in_hand: WorkingSet = field(init=False)
    clerk: Producer = field(init=False)
    lease: OwnerLease = field(init=False)
    _all_done: WakeUp = field(init=False, factory=WakeUp)
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
        self.in_hand = WorkingSet(concurrency=options.concurrency, queue=queue)
        self.lease = OwnerLease()
        self.clerk = self._make_clerk(self.lease)
        self.nursery.start_soon(self._run_clerk)
        self.nursery.start_soon(self._make_heart(self.lease).run)
        self.nursery.start_soon(self.database.listen, CHANNEL, self.clerk.on_change)
        for _ in range(options.concurrency):
            self.nursery.start_soon(self._employ)

    async def handle(self, message: RunnerMessage) -> None:
        """Do what one message says."""
        match message:
            case CancelHandler(job_id=job_id, token=token):
                self.in_hand.withdraw(CANCELLED, lambda job: job.id == job_id and job.token <= token)
                self.wake_up.set()  # there may be room for another one
            case RunEphemeral():
                self._queue_ephemeral(message)
            case SetClaiming(is_on=is_on):
                self.clerk.may_claim = is_on
                self.clerk.check()  # a look that is under way may have seen how it was before
                self.wake_up.set()

    async def wake(self) -> None:
        """A delayed item has become ready."""
        self._call_workers()

    async def end(self) -> None:
        """Let handlers finish within the grace, stop the rest, and give back what is not done."""
        self.clerk.close()
        self._drop_waiting()
        self.in_hand.queue.shut_down()
        with trio.move_on_after(self.options.grace_s):
            await self._until_idle()
        self.in_hand.cancel(STOPPING)
        await self._until_idle()
        self.clerk.is_leaving = True
        self.wake_up.notify_without_fetch()
        await self._clerk_left.wait()

    def _drop_waiting(self) -> None:
        """Nothing is begun any more. What was claimed is given back; the rest was not to survive this."""
        dropped = self.in_hand.queue.purge()
        passing = sum(isinstance(work, EphemeralJob) for work in dropped)
        if passing:
            self.emit(EphemeralWorkDropped(dropped=passing))

    def _queue_ephemeral(self, message: RunEphemeral) -> None:
        now = trio.current_time()
        try:
            self.in_hand.queue.put(message.job, label=message.label, now=now, delay_s=message.delay_s)
        except (JobError, ValueError) as refusal:
            if message.reply is None:
                self.emit(JobFailed(**about(message.job), attempts=0, error=describe_error(refusal)))
            else:
                message.reply.refuse(refusal)
        else:
            if message.reply is not None:
                message.reply.answer(None)
            self._call_workers()

    def _call_workers(self) -> None:
        self.in_hand.queue.promote(trio.current_time())
        self.clerk.call_worker()
        self.wake_at = self.in_hand.queue.next_ready_at()

    async def _until_idle(self) -> None:
        while self.in_hand.running:
            await self._all_done.wait()

    async def _employ(self) -> None:
        await self._make_worker().run()
        self.nursery.start_soon(self._employ)  # in a task that no handler has spoilt

    async def _run_clerk(self) -> None:
        try:
            await self.clerk.run()
        finally:
            self._clerk_left.set()

    def _make_clerk(self, lease: OwnerLease) -> Producer:
        return Producer(
            database=self.database,
            lease=lease,
            in_hand=self.in_hand,
            wake_up=self.wake_up,
            kinds=tuple(self.handlers),
            priorities=sorted(self.options.priorities.values()),
            poll_s=self.options.poll_s,
            clock=self.clock,
            emit=self.emit,
        )

    def _make_worker(self) -> JobWorker:
        return JobWorker(
            in_hand=self.in_hand,
            clerk=self.clerk,
            lease=self.lease,
            all_done=self._all_done,
            handlers=self.handlers,
            reach=self.reach,
            usual_timeout_s=self.options.timeout_s,
            block_s=self.options.block_s,
            retry=self.options.retry,
            clock=self.clock,
            chance=self.chance,
            emit=self.emit,
        )

    def _make_heart(self, lease: OwnerLease) -> Heartbeat:
        return Heartbeat(
            database=self.database,
            lease=lease,
            in_hand=self.in_hand,
            wake_up=self.wake_up,
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
