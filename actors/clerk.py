"""Who writes down what became of jobs, and fetches more? One transaction at a time does both."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

import trio
from attrs import define, field, frozen
from sqlalchemy import Connection

from actors.job_notes import about, note_completed, note_dropped, note_settled
from actors.jobs_in_hand import CANCELLED, FinishedJob, JobsInHand, WorkBell
from actors.lease import Lease
from cormorant.rules.errors import CommitUnknown, StorageUnavailable
from cormorant.rules.job_errors import remember_error
from cormorant.rules.job_events import JobCancelled
from cormorant.rules.jobs import PAUSED_FLAG, WAITING, JobState, Verb
from cormorant.rules.ports import Clock, Emit
from cormorant.rules.verdicts import DONE
from storage import flags, jobs, workers
from storage.database import Database
from storage.jobs import ClaimedJob, Ending, Settled

LEAVE_S = 2.0
CALLED = 2
"""Workers woken at once. Each calls as many when it waits; while none has to, waking more would be in vain."""
RETRY_S = 1.0
CHECK_S = 1.0
"""At most so often it is checked what is ours because others write: on SQLite one hears of every write of theirs."""


@frozen(kw_only=True)
class Errand:
    """What one transaction is to do."""

    owner: str
    done: Sequence[tuple[int, int]] = ()
    endings: Sequence[Ending]
    kinds: Sequence[str]
    priorities: Sequence[int]
    room: int
    now: datetime


@frozen(kw_only=True)
class Harvest:
    """What one transaction brought."""

    completed: Collection[int] = ()
    """Jobs that have ended as usual; the other endings are in `settled`, unless they were not ours to give."""
    settled: Sequence[Settled] = ()
    claimed: Sequence[ClaimedJob] = ()
    next_due: datetime | None = None


def run_errand(connection: Connection, errand: Errand) -> Harvest:
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
    return Harvest(completed=completed, settled=settled, claimed=claimed, next_due=due)


def let_go(connection: Connection, errand: Errand) -> tuple[set[int], list[Settled]]:
    """End what is done: nearly all of it in the usual way, the rest as each one has it."""
    completed = jobs.complete(connection, owner=errand.owner, done=errand.done, now=errand.now)
    others = [done_ending(*each) for each in errand.done if each[0] not in completed]
    settled = jobs.settle(connection, owner=errand.owner, endings=[*others, *errand.endings], now=errand.now)
    return completed, settled


def done_ending(job_id: int, token: int) -> Ending:
    """How a job ends that is done."""
    return Ending(id=job_id, token=token, to=JobState.SUCCEEDED)


def all_endings(errand: Errand) -> list[Ending]:
    """Everything that the errand lets go of."""
    return [*(done_ending(*each) for each in errand.done), *errand.endings]


@frozen(kw_only=True)
class Cleared:
    """What the database and we agree on."""

    completed: Collection[int]
    settled: Sequence[Settled]
    lost: set[int]
    cancelled: set[int]
    """Those of the lost ones that somebody cancelled; the others were taken from us."""
    is_paused: bool
    priorities: Sequence[int]
    """Those that jobs wait with. Some may be of an older configuration."""


def clear_up(connection: Connection, errand: Errand, *, known: set[int]) -> Cleared:
    """Let go of what is done, find what was let go of before, and give back what was claimed unseen."""
    completed, settled = let_go(connection, errand)
    settled += jobs.settled_before(connection, all_endings(errand))
    lost = known - jobs.release_unknown(connection, owner=errand.owner, known=known, now=errand.now)
    return Cleared(
        completed=completed,
        settled=settled,
        lost=lost,
        cancelled=jobs.cancelled_among(connection, lost),
        is_paused=flags.is_set(connection, PAUSED_FLAG),
        priorities=jobs.priorities_in_use(connection),
    )


_STATE_AFTER = {
    Verb.COMPLETE: JobState.SUCCEEDED,
    Verb.RETRY: JobState.RETRYABLE,
    Verb.SNOOZE: JobState.PENDING,
    Verb.FAIL: JobState.FAILED,
    Verb.CANCEL: JobState.CANCELLED,
    Verb.RELEASE: JobState.PENDING,
}


def ending_of(done: FinishedJob, *, now: datetime) -> Ending:
    """How a finished job is let go of."""
    job, verdict = done.job, done.verdict
    errors = None
    if verdict.error is not None and verdict.verb is not Verb.RELEASE:
        errors = remember_error(job.last_errors, verdict.error, job_id=job.id, attempt=job.attempts + 1, at=now)
    return Ending(
        id=job.id,
        token=job.token,
        to=_STATE_AFTER[verdict.verb],
        uses_attempt=verdict.verb is Verb.RETRY,
        # What is given back keeps its place, and is due for others too whose clocks are behind ours.
        run_at=job.run_at if verdict.verb is Verb.RELEASE else now + timedelta(seconds=verdict.delay_s),
        last_errors=errors,
    )


@define(eq=False)
class Clerk:
    """Keeps the database and what this process has in hand in step."""

    database: Database
    lease: Lease
    in_hand: JobsInHand
    bell: WorkBell
    kinds: Sequence[str]
    priorities: Sequence[int]
    poll_s: float
    clock: Clock
    emit: Emit
    may_claim: bool = field(init=False, default=True)
    is_closing: bool = field(init=False, default=False)
    is_leaving: bool = field(init=False, default=False)
    workers_lot: trio.lowlevel.ParkingLot = field(init=False, factory=trio.lowlevel.ParkingLot)
    _look_at: float = field(init=False, default=-math.inf)
    _is_doubtful: bool = field(init=False, default=True)
    """Whether the database and we may disagree about what is ours, and about whether claiming is paused."""
    _priorities: Sequence[int] = field(init=False, factory=list)
    _check_at: float = field(init=False, default=math.inf)
    _checked_at: float = field(init=False, default=-math.inf)

    async def run(self) -> None:
        """Work until told to leave; then give everything back."""
        try:
            while not self.is_leaving:
                await self._work()
        finally:
            # Bounded: a database that is away now is told by nobody; the jobs are reclaimed from us later.
            with trio.move_on_after(LEAVE_S, shield=True):
                await self._leave()

    def close(self) -> None:
        """Claim nothing more. What was claimed and nobody has begun is given back at once, not after the grace."""
        self.is_closing = True
        self.check()

    def check(self) -> None:
        """See to it soon that the database and we agree about what is ours."""
        self._is_doubtful = True
        self.bell.nudge()

    def call_worker(self) -> None:
        """Wake somebody, if there is something to do. A worker that has to wait calls the next ones."""
        if self.workers_lot and self.in_hand.queue.has_ready:
            self.workers_lot.unpark(count=CALLED)

    def hear(self) -> None:
        """Others have written: there may be more to do, something of ours may be cancelled, all may be paused."""
        self._check_at = min(self._check_at, max(trio.current_time(), self._checked_at + CHECK_S))
        self.bell.ring()

    async def _work(self) -> None:
        if trio.current_time() >= self._check_at:
            self._is_doubtful = True
        if not self._is_needed():
            await self._wait()
        elif self._is_doubtful:
            await self._clear_up()
        else:
            await self._go()

    def _is_needed(self) -> bool:
        return self.lease.is_held and bool(self.in_hand.finished or self._is_doubtful or self._room())

    def _room(self) -> int:
        return self.in_hand.room() if self.may_claim and self.bell.is_hungry and not self.is_closing else 0

    async def _wait(self) -> None:
        look_at = self._look_at if self.may_claim else math.inf
        if await self.bell.wait(min(look_at, self._check_at) if self.lease.is_held else math.inf):
            return
        if trio.current_time() >= look_at:
            self.bell.is_hungry = True
            self._look_at = trio.current_time() + self.poll_s

    async def _go(self) -> None:
        """Let go of what is done and claim what there is room for, in one transaction."""
        room = self._room()
        finished, self.in_hand.finished = self.in_hand.finished, []
        if room:
            self.bell.is_hungry = False
        self.in_hand.claiming += room
        harvest: Harvest | None = None
        try:
            harvest = await self.database.run(run_errand, self._errand(finished, room))
        except StorageUnavailable:
            await trio.sleep(RETRY_S)  # the gateway has waited out its time; handlers may still be at work
        except CommitUnknown:
            self._is_doubtful = True
        finally:
            self.in_hand.claiming -= room
            if harvest is None:
                self._take_back(finished, room)
        if harvest is not None:
            self._told(finished, harvest)
            self._accept(harvest, room)

    def _errand(self, finished: Sequence[FinishedJob], room: int) -> Errand:
        now = self.clock.now()
        return Errand(
            owner=self.lease.owner,
            done=[(each.job.id, each.job.token) for each in finished if each.verdict is DONE],
            endings=[ending_of(each, now=now) for each in finished if each.verdict is not DONE],
            kinds=self.kinds,
            priorities=self._priorities,
            room=room,
            now=now,
        )

    def _take_back(self, finished: list[FinishedJob], room: int) -> None:
        self.in_hand.finished[:0] = finished
        if room:
            self.bell.is_hungry = True

    def _told(self, finished: Sequence[FinishedJob], harvest: Harvest) -> None:
        settled = {each.id: each for each in harvest.settled}
        now = trio.current_time()
        for done in finished:
            if done.job.id in harvest.completed:
                self.emit(note_completed(done))
                continue
            mine = settled.get(done.job.id)
            if mine is not None and mine.state in WAITING:  # it may be due before the next look
                self._look_at = min(self._look_at, now + done.verdict.delay_s)
            self.emit(note_dropped(done.job, done.verdict.verb) if mine is None else note_settled(done, mine))

    def _accept(self, harvest: Harvest, room: int) -> None:
        if self.is_closing:  # nobody will begin them any more
            self._is_doubtful = self._is_doubtful or bool(harvest.claimed)
            return
        now = trio.current_time()
        for job in harvest.claimed:
            self.in_hand.queue.put_claimed(job, priority=job.priority, now=now)
        self.call_worker()
        if room and len(harvest.claimed) == room:
            self.bell.is_hungry = True  # there may be more than there was room for
        elif room:
            self._look_at = now + self._until(harvest.next_due)

    def _until(self, next_due: datetime | None) -> float:
        """Seconds until the next look. Never longer than the poll: other processes, and clocks that jump."""
        if next_due is None:
            return self.poll_s
        return min(self.poll_s, max(0.0, (next_due - self.clock.now()).total_seconds()))

    async def _clear_up(self) -> None:
        """See to it that the database and we agree: after a COMMIT in doubt, and at every heartbeat."""
        finished, self.in_hand.finished = self.in_hand.finished, []
        known = self.in_hand.job_ids()
        self._checked_at, self._check_at = trio.current_time(), math.inf
        cleared: Cleared | None = None
        try:
            cleared = await self.database.run(clear_up, self._errand(finished, 0), known=known)
        except (StorageUnavailable, CommitUnknown):
            await trio.sleep(RETRY_S)
        finally:
            if cleared is None:
                self._take_back(finished, 1)
        if cleared is not None:
            self._is_doubtful = False
            self.may_claim = not cleared.is_paused
            self._priorities = sorted({*self.priorities, *cleared.priorities})
            self.bell.is_hungry = True
            self._told(finished, Harvest(completed=cleared.completed, settled=cleared.settled))
            self._stop_lost(cleared)

    def _stop_lost(self, cleared: Cleared) -> None:
        """Stop handlers whose jobs are no longer ours: cancelled, or reclaimed by others."""
        if not cleared.lost:
            return
        stopped = self.in_hand.cancel(CANCELLED, lambda work: isinstance(work, ClaimedJob) and work.id in cleared.lost)
        for work in stopped:
            if isinstance(work, ClaimedJob) and work.id in cleared.cancelled:
                self.emit(JobCancelled(**about(work), why="from outside"))

    async def _leave(self) -> None:
        """The last transaction: what is done is let go of, what is not is given back, and we are forgotten."""
        if not self.lease.owner:
            return
        finished, self.in_hand.finished = self.in_hand.finished, []
        errand = self._errand(finished, 0)
        harvest: Harvest | None = None
        while harvest is None:
            try:
                harvest = await self.database.run(leave, errand, is_orderly=self.is_leaving)
            except CommitUnknown:
                continue  # if it happened, to do it once more changes nothing
            except StorageUnavailable:
                return
        self._told(finished, harvest)


def leave(connection: Connection, errand: Errand, *, is_orderly: bool) -> Harvest:
    """End a run. In disorder, what ran has used up an attempt: it may be the reason."""
    completed, settled = let_go(connection, errand)
    if is_orderly:
        jobs.release_all(connection, owner=errand.owner, now=errand.now)
    else:
        jobs.reclaim(connection, owner=errand.owner, limit=LEAVE_MOST, now=errand.now)
    workers.retire(connection, errand.owner)
    before = jobs.settled_before(connection, all_endings(errand))
    return Harvest(completed=completed, settled=[*settled, *before])


LEAVE_MOST = 100_000
