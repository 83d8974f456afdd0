"""Producer: settles finished jobs and claims new ones in one transaction, then emits the job events."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timedelta

import trio
from attrs import define, field

from actors.environment import Environment
from actors.jobs.working_set import CANCELLED, FinishedJob, JobWakeUp, OwnerLease, WorkingSet, about
from cormorant.rules.errors import CommitUnknown, StorageUnavailable
from cormorant.rules.jobs.error_log import describe_error, remember_error
from cormorant.rules.jobs.events import (
    JobCancelled,
    JobCompleted,
    JobEvent,
    JobFailed,
    JobReleased,
    JobResultDropped,
    JobRetried,
    JobSnoozed,
)
from cormorant.rules.jobs.states import WAITING, JobState, Verb
from cormorant.rules.jobs.verdicts import DONE
from storage.engine.file_locks import WorkerLocks
from storage.jobs.batch import Batch, BatchResult, Reconciled, leave, reconcile, run_batch
from storage.jobs.jobs import JobEnd, Settled

LEAVE_S = 2.0
CALLED = 2
"""Workers woken at once. Each calls as many when it waits; while none has to, waking more would be in vain."""
RETRY_S = 1.0
ENOUGH = 32
"""So many endings, or those of half of the workers, are worth a transaction of their own while another is under way."""
CHECK_S = 1.0
"""At most so often it is checked what is ours because others have announced a change of jobs."""


@define(eq=False, kw_only=True)
class Producer:
    """Claims jobs for this process, and settles those that have ended."""

    environment: Environment = field(kw_only=False)
    lease: OwnerLease
    working_set: WorkingSet
    wake_up: JobWakeUp
    kinds: Sequence[str]
    may_claim: bool = field(init=False, default=True)
    is_closing: bool = field(init=False, default=False)
    is_leaving: bool = field(init=False, default=False)
    workers_lot: trio.lowlevel.ParkingLot = field(init=False, factory=trio.lowlevel.ParkingLot)
    _helper_lot: trio.lowlevel.ParkingLot = field(init=False, factory=trio.lowlevel.ParkingLot)
    _is_out: bool = field(init=False, default=False)
    _is_helper_out: bool = field(init=False, default=False)
    """Who of the two waits for a transaction that ends jobs and claims others."""
    _is_full: bool = field(init=False, default=False)
    """Whether there were at least as many as there was room for, so that there may be more."""
    _look_at: float = field(init=False, default=-math.inf)
    _is_doubtful: bool = field(init=False, default=True)
    """Whether the database and we may disagree about what is ours, and about whether claiming is paused."""
    _priorities: Sequence[int] = field(init=False, factory=list)
    _check_at: float = field(init=False, default=math.inf)
    _checked_at: float = field(init=False, default=-math.inf)

    async def run(self) -> None:
        """Work until told to leave; then release everything."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._help)
                while not self.is_leaving or self._is_helper_out:
                    await self._work()
                nursery.cancel_scope.cancel()
        finally:
            # Bounded: a database that is away now is told by nobody; the jobs are reclaimed from us later.
            with trio.move_on_after(LEAVE_S, shield=True):
                await self._leave()

    def close(self) -> None:
        """Claim nothing more. Jobs that were claimed and not begun are released at once, not after the grace."""
        self.is_closing = True
        self.check()

    def check(self) -> None:
        """See to it soon that the database and we agree about what is ours."""
        self._is_doubtful = True
        self.wake_up.notify_without_fetch()

    def call_worker(self) -> None:
        """Wake somebody, if there is something to do. A worker that has to wait calls the next ones."""
        if self.workers_lot and self.working_set.queue.has_ready:
            self.workers_lot.unpark(count=CALLED)

    def note_ended(self) -> None:
        """A handler has ended: write that down, now or with others."""
        if self._is_out and len(self.working_set.finished) >= min(ENOUGH, self.working_set.concurrency // 2):
            self._helper_lot.unpark()
        self.wake_up.notify_without_fetch()

    def on_change(self) -> None:
        """Others have written: there may be more to do, something of ours may be cancelled, all may be paused."""
        self._check_at = min(self._check_at, max(trio.current_time(), self._checked_at + CHECK_S))
        self.wake_up.set()

    async def _work(self) -> None:
        if trio.current_time() >= self._check_at:
            self._is_doubtful = True
        if not self._is_needed():
            await self._wait()
        elif self._is_doubtful and self._is_helper_out:
            await self.wake_up.wait()  # what is ours is compared only while nothing is being claimed or let go of
        elif self._is_doubtful:
            await self._reconcile()
        else:
            self._is_out = True
            await self._run_batch()
            self._is_out = False

    async def _help(self) -> None:
        """Be at hand while a transaction takes long: the database works on one while handlers run for the other."""
        while True:
            await self._helper_lot.park()
            if self._is_out and self.lease.is_held and not self._is_doubtful:
                self._is_helper_out = True
                await self._run_batch()
                self._is_helper_out = False
                self.wake_up.notify_without_fetch()

    def _is_needed(self) -> bool:
        return self.lease.is_held and bool(self.working_set.finished or self._is_doubtful or self._room())

    def _room(self) -> int:
        has_capacity = self.wake_up.has_capacity or self._is_full
        return self.working_set.room() if self.may_claim and has_capacity and not self.is_closing else 0

    async def _wait(self) -> None:
        look_at = self._look_at if self.may_claim else math.inf
        if await self.wake_up.wait(min(look_at, self._check_at) if self.lease.is_held else math.inf):
            return
        if trio.current_time() >= look_at:
            self.wake_up.has_capacity = True
            self._look_at = math.inf

    async def _run_batch(self) -> None:
        """Let go of what is done and claim what there is room for, in one transaction."""
        room = self._room()
        finished, self.working_set.finished = self.working_set.finished, []
        if room:
            self.wake_up.has_capacity = False
        self.working_set.claiming += room
        look_at = self._look_at
        found: BatchResult | None = None
        try:
            found = await self.environment.database.run(run_batch, self._batch(finished, room))
        except StorageUnavailable:
            await trio.sleep(RETRY_S)  # the gateway has waited out its time; handlers may still be at work
        except CommitUnknown:
            self._is_doubtful = True
            _mark_doubtful(finished)
        finally:
            self.working_set.claiming -= room
            if found is None:
                self._take_back(finished, room)
        if found is not None:
            self._emit_settled(finished, found)
            self._accept(found, room, look_at)

    def _batch(self, finished: Sequence[FinishedJob], room: int) -> Batch:
        now = self.environment.now()
        return Batch(
            owner=self.lease.owner,
            done=[(each.job.id, each.job.token) for each in finished if each.verdict is DONE],
            endings=[_ending_of(each, now=now) for each in finished if each.verdict is not DONE],
            doubtful=[_ending_of(each, now=now) for each in finished if each.in_doubt],
            kinds=self.kinds,
            priorities=self._priorities,
            room=room,
            now=now,
        )

    def _take_back(self, finished: list[FinishedJob], room: int) -> None:
        self.working_set.finished[:0] = finished
        if room:
            self.wake_up.has_capacity = True

    def _emit_settled(self, finished: Sequence[FinishedJob], found: BatchResult) -> None:
        settled = {(each.id, each.token): each for each in found.settled}
        now = trio.current_time()
        for done in finished:
            claim = (done.job.id, done.job.token)
            mine = settled.get(claim)
            if claim in found.completed:
                self.environment.emit(_completed(done))
            elif mine is None:  # it was no longer ours
                self.environment.emit(JobResultDropped(**about(done.job), verb=done.verdict.verb.value))
            else:
                if mine.state in WAITING:  # it may be due before the next look
                    self._look_at = min(self._look_at, now + done.verdict.delay_s)
                self.environment.emit(_event_of(done, mine))

    def _accept(self, found: BatchResult, room: int, look_at: float) -> None:
        if self.is_closing:  # nobody will begin them any more
            self._is_doubtful = self._is_doubtful or bool(found.claimed)
            return
        now = trio.current_time()
        for job in found.claimed:
            self.working_set.queue.put_claimed(job, priority=job.priority, now=now)
        self.call_worker()
        if room:
            self._is_full = len(found.claimed) == room
        if room and self._is_full:
            self.wake_up.has_capacity = True
        elif room:
            due = now + self._until(found.next_due)
            # The other transaction may have put something off that this one did not see yet.
            self._look_at = due if self._look_at == look_at else min(due, self._look_at)

    def _until(self, next_due: datetime | None) -> float:
        """Seconds until the next look: when a job is due, or after the poll where a notification may get lost."""
        poll_s = self.environment.settings.jobs.poll_s if self.environment.database.may_miss_changes else math.inf
        return (
            poll_s if next_due is None else min(poll_s, max(0.0, (next_due - self.environment.now()).total_seconds()))
        )

    async def _reconcile(self) -> None:
        """See to it that the database and we agree: after a COMMIT in doubt, and at every heartbeat."""
        finished, self.working_set.finished = self.working_set.finished, []
        known = self.working_set.claims()
        self._checked_at, self._check_at = trio.current_time(), math.inf
        self._is_doubtful = False  # before the look, which says nothing of doubts that arise meanwhile
        reconciled: Reconciled | None = None
        try:
            reconciled = await self.environment.database.run(reconcile, self._batch(finished, 0), known=known)
        except StorageUnavailable:
            await trio.sleep(RETRY_S)
        except CommitUnknown:
            _mark_doubtful(finished)
            await trio.sleep(RETRY_S)
        finally:
            if reconciled is None:
                self._is_doubtful = True
                self._take_back(finished, 1)
        if reconciled is not None:
            self.may_claim = not reconciled.is_paused
            self._priorities = sorted({*self.environment.settings.queue.priorities.values(), *reconciled.priorities})
            self.wake_up.has_capacity = True
            self._emit_settled(finished, reconciled)
            self._stop_lost(reconciled)

    def _stop_lost(self, reconciled: Reconciled) -> None:
        """Stop handlers whose jobs are no longer ours, cancelled or reclaimed by others, and begin none."""
        if not reconciled.lost:
            return
        for job in self.working_set.withdraw(CANCELLED, lambda job: (job.id, job.token) in reconciled.lost):
            if (job.id, job.token) in reconciled.cancelled:
                self.environment.emit(JobCancelled(**about(job), why="from outside"))

    async def _leave(self) -> None:
        """The last transaction: settle what has ended, release the rest, and remove the worker row."""
        self.lease.lose()  # nothing is claimed under it any more, also not by the tickers
        if not self.lease.owner:
            return
        finished, self.working_set.finished = self.working_set.finished, []
        found: BatchResult | None = None
        while found is None:
            batch = self._batch(finished, 0)
            try:
                # A stop that was asked for is orderly also when a handler does not obey and it takes too long.
                found = await self.environment.database.run(leave, batch, is_orderly=self.is_closing)
            except CommitUnknown:
                _mark_doubtful(finished)  # if it happened, to do it once more changes nothing
            except StorageUnavailable:
                return
        self._emit_settled(finished, found)
        await self.environment.database.with_locks(WorkerLocks.forget, self.lease.owner)


def _mark_doubtful(finished: Sequence[FinishedJob]) -> None:
    for each in finished:
        each.in_doubt = True


_STATE_AFTER = {
    Verb.COMPLETE: JobState.SUCCEEDED,
    Verb.RETRY: JobState.RETRYABLE,
    Verb.SNOOZE: JobState.PENDING,
    Verb.FAIL: JobState.FAILED,
    Verb.CANCEL: JobState.CANCELLED,
    Verb.RELEASE: JobState.PENDING,
}


def _ending_of(done: FinishedJob, *, now: datetime) -> JobEnd:
    """How a finished job is let go of."""
    job, verdict = done.job, done.verdict
    errors = None
    if verdict.error is not None and verdict.verb is not Verb.RELEASE:
        errors = remember_error(job.last_errors, verdict.error, job_id=job.id, attempt=job.attempts + 1, at=now)
    return JobEnd(
        id=job.id,
        token=job.token,
        to=_STATE_AFTER[verdict.verb],
        attempts=job.attempts,
        uses_attempt=verdict.verb is Verb.RETRY,
        # A job that is released keeps its place, and is due also for processes whose clocks are behind.
        run_at=job.run_at if verdict.verb is Verb.RELEASE else now + timedelta(seconds=verdict.delay_s),
        last_errors=errors,
    )


def _event_of(done: FinishedJob, settled: Settled) -> JobEvent:
    """What is told of a job that its owner let go of, once that is durable."""
    verdict, of = done.verdict, about(done.job)
    error = "" if verdict.error is None else describe_error(verdict.error)
    if settled.state is JobState.FAILED:
        return JobFailed(**of, attempts=settled.attempts, error=error)
    match verdict.verb:
        case Verb.SNOOZE:
            return JobSnoozed(**of, for_s=verdict.delay_s)
        case Verb.RETRY:
            return JobRetried(**of, attempts=settled.attempts, retry_in_s=verdict.delay_s, error=error)
        case Verb.CANCEL:
            return JobCancelled(**of, why=error)
        case Verb.RELEASE:
            return JobReleased(**of, why=error)
        case _:
            return _completed(done, runs_again=settled.state is JobState.PENDING)


def _completed(done: FinishedJob, *, runs_again: bool = False) -> JobCompleted:
    job = done.job
    # By name: most events of a busy queue are these.
    return JobCompleted(
        job_id=job.id, kind=job.kind, correlation_id=job.correlation_id, took_s=done.took_s, runs_again=runs_again
    )
