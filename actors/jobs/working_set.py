"""WorkingSet: jobs queued, running or finished but unsettled in this process; OwnerLease and the wake-up of the producer."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import trio
from attrs import define, field, frozen

from actors.jobs.queue import JobQueue
from actors.periodic import WakeUp
from cormorant.rules.jobs.events import About
from cormorant.rules.jobs.verdicts import Verdict
from storage.jobs.jobs import Claim, ClaimedJob

CANCELLED = "cancelled"
STOPPING = "the service stops"
UNCONFIRMED = "the lease could not be confirmed"
LOST = "the lease was lost"
"""Why handlers are stopped."""


@frozen(kw_only=True)
class EphemeralJob:
    """Work of a kind that need not survive a restart. It has no row, and is tried once."""

    id: ClassVar[None] = None
    token: ClassVar[int] = 0
    attempts: ClassVar[int] = 0
    max_attempts: ClassVar[int] = 1

    kind: str
    payload: Any
    correlation_id: str | None = None


Work = ClaimedJob | EphemeralJob


def is_claimed(work: Work) -> bool:
    """Whether it is a durable job, ours as long as our lease is."""
    return isinstance(work, ClaimedJob)


@define(eq=False)
class RunningJob:
    """A handler at work. `why` says why it was cancelled, if not for taking too long."""

    work: Work
    scope: trio.CancelScope
    started_at: float
    deadline: float = math.inf
    """Until when it may run; infinity as long as it has not waited."""
    why: str | None = None


@define(eq=False, kw_only=True)
class FinishedJob:
    """A durable job whose handler has ended, and what follows from that."""

    job: ClaimedJob
    verdict: Verdict
    took_s: float
    in_doubt: bool = False
    """Whether a COMMIT, of which nobody knows whether it happened, may have written it."""


@define(eq=False)
class JobWakeUp(WakeUp):
    """Rung when jobs may be due. Lives longer than the runner, so that nobody must know whether it runs."""

    has_capacity: bool = True

    def __attrs_pre_init__(self) -> None:
        WakeUp.__init__(self)

    def set(self) -> None:
        """Jobs may be due: look."""
        self.has_capacity = True
        super().set()

    def notify_without_fetch(self) -> None:
        """The working set has changed; there is no need to look for more jobs."""
        super().set()


@define(eq=False)
class WorkingSet:
    """The runner's working set. Invariant: running, queued and being claimed are never more than `concurrency`."""

    concurrency: int
    queue: JobQueue[Work]
    running: dict[RunningJob, None] = field(init=False, factory=dict)
    finished: list[FinishedJob] = field(init=False, factory=list)
    claiming: int = field(init=False, default=0)
    _idle: WakeUp = field(init=False, factory=WakeUp)
    """Set when nothing runs any more."""

    def room(self) -> int:
        """How many more jobs would find a worker at once."""
        ready = self.queue.snapshot().ready
        return max(0, self.concurrency - len(self.running) - ready - self.claiming)

    def begin(self, work: Work, scope: trio.CancelScope, now: float) -> RunningJob:
        """Take down that a handler begins."""
        running = RunningJob(work, scope, now)
        self.running[running] = None
        return running

    def forget(self, running: RunningJob) -> None:
        """Take down that a handler has ended."""
        del self.running[running]
        if not self.running:
            self._idle.set()

    async def wait_until_idle(self) -> None:
        """Wait until no handler runs."""
        while self.running:
            await self._idle.wait()

    def cancel(self, why: str, which: Callable[[Work], bool] | None = None) -> list[Work]:
        """Stop handlers, and say why. Returns whose."""
        chosen = [running for running in self.running if running.why is None]
        chosen = [running for running in chosen if which is None or which(running.work)]
        for running in chosen:
            running.why = why
            running.scope.cancel()
        return [running.work for running in chosen]

    def withdraw(self, why: str, which: Callable[[ClaimedJob], bool]) -> list[ClaimedJob]:
        """Stop those durable jobs that run, and forget those that no handler has begun. Returns which."""

        def is_chosen(work: Work) -> bool:
            return isinstance(work, ClaimedJob) and which(work)

        return [
            work for work in self.cancel(why, is_chosen) + self.queue.purge(is_chosen) if isinstance(work, ClaimedJob)
        ]

    def claims(self) -> set[Claim]:
        """The durable jobs that run, wait for a worker, or are not yet let go of.

        Not their ids alone: one that was cancelled and revived may be claimed anew while its old run goes on.
        """
        works = [running.work for running in self.running] + [done.job for done in self.finished]
        works += self.queue.jobs()
        return {(work.id, work.token) for work in works if isinstance(work, ClaimedJob)}


def about(work: Work) -> About:
    """Which job it is."""
    return About(job_id=work.id, kind=work.kind, correlation_id=work.correlation_id)


@define(eq=False)
class OwnerLease:
    """The worker row of this process: its id, and when the database last confirmed it. A new registration has a new id.

    Only the heartbeat writes it. Every actor that claims something reads it.
    """

    owner: str = ""
    confirmed_at: float = -math.inf
    doubtful_at: float = -math.inf
    """From when on others may be taking what this process has claimed, unless it is confirmed before."""
    held: trio.Event = field(factory=trio.Event)
    """Set while rows may be claimed under it."""
    lost: trio.Event = field(factory=trio.Event)
    """Set when it is lost. Replaced by a new event when it is confirmed again."""

    @property
    def is_held(self) -> bool:
        """Whether rows may be claimed under it now."""
        return self.held.is_set() and trio.current_time() < self.doubtful_at

    def confirm(self, at: float, *, doubtful_after_s: float) -> None:
        """The database has seen this process at a time: when the heartbeat asked, not when the answer came."""
        self.confirmed_at, self.doubtful_at = at, at + doubtful_after_s
        if trio.current_time() < self.doubtful_at and not self.held.is_set():
            self.lost = trio.Event()
            self.held.set()

    def lose(self) -> None:
        """Claim nothing more until it is confirmed again."""
        if self.held.is_set():
            self.held = trio.Event()
            self.lost.set()
