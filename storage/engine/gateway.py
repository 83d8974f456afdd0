"""Gateway, over worker threads or in line: admission, outages (held calls, probes with back-off) and an orderly end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import trio
from attrs import frozen
from sqlalchemy import Connection
from trio.lowlevel import ParkingLot, TrioToken, checkpoint_if_cancelled, current_trio_token
from typing_extensions import override

from cormorant.rules.errors import DatabaseNeedsNewerCode, DatabasePreRelease, StorageMisconfigured, StorageUnavailable
from cormorant.rules.events import StorageBack, StorageLost
from cormorant.rules.ports import Chance, Clock, Emit
from cormorant.rules.supervision import LOSSES_MAX, delay_before_probe, held_until
from storage.engine.calls import Admission, Call, CallQueue, ConnectionWorker, DatabaseAway
from storage.engine.change_listener import ChangeListener
from storage.engine.dialect import Dialect
from storage.engine.options import StorageOptions
from storage.engine.schema import Migration

T = TypeVar("T")

STOPPED = "the storage is not running: it was stopped, or is being restarted"
SHORTEST_LOOK_S = 0.02
HUNG_LOOKS = 4
"""How often, within the limit, it is looked for a session that hangs."""


@frozen(kw_only=True)
class GatewayParts:
    """What a run is made of and does not own."""

    dialect: Dialect
    options: StorageOptions
    changes: ChangeListener
    migrations: Sequence[Migration]
    clock: Clock
    emit: Emit
    chance: Chance


class Gateway(ABC):
    """One run, from start to stop."""

    def __init__(self, parts: GatewayParts, *, writes: CallQueue, reads: CallQueue) -> None:
        self._parts = parts
        self._dialect = parts.dialect
        self._writes = writes
        self._reads = reads
        self._lines = list(dict.fromkeys([writes, reads]))
        self._room = Admission(parts.options.queue_max)
        self._outage = Outage(
            self._lines, self._room, hold_s=parts.options.hold_s, emit=parts.emit, resume=self._resume
        )
        self._stopping = trio.Event()
        self._failure: StorageMisconfigured | None = None

    async def submit(self, work: Callable[[Connection], T], *, reads_only: bool) -> T:
        """Run `work` in a transaction of its own and return what it returns."""
        await checkpoint_if_cancelled()
        call = Call(work, reads_only=reads_only)
        await self._enter(call)
        line = self._reads if reads_only else self._writes
        line.put(call)
        self._wake()
        return await self._room.wait(call, line)

    async def serve(self, started: Callable[[], None]) -> None:
        """Prepare the database and serve until stopped."""
        is_ready = await self._try_to_prepare()
        try:
            async with trio.open_nursery() as watchers:
                watchers.start_soon(self._outage.expire)
                watchers.start_soon(self._watch_outages, is_ready)
                await self._work_until_stopped(started, watchers)
                watchers.cancel_scope.cancel()
        finally:
            self._refuse_all()
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Take no more calls, finish those in line, end. During an outage nothing can be finished."""
        self._stopping.set()
        self._wake()

    @abstractmethod
    def _wake(self) -> None:
        """Something has changed for those who serve calls."""

    @abstractmethod
    async def _work_until_stopped(self, started: Callable[[], None], watchers: trio.Nursery) -> None:
        """Serve calls. Invariant: stopped when it returns or raises."""

    @abstractmethod
    async def _call(self, function: Callable[[], T]) -> T:
        """Call a function of the dialect, which blocks."""

    async def _enter(self, call: Call[Any]) -> None:
        """Take a seat for the call, or wait for one; unless there is no point any more when it is had."""
        if not self._room.acquire():
            await self._room.enter()
        if self._stopping.is_set() or self._outage.is_too_late(call):
            self._room.leave()
            raise StorageUnavailable(STOPPED if self._stopping.is_set() else self._outage.refusal)

    async def _try_to_prepare(self) -> bool:
        """Whether the database is ready. If it is away, that is an outage like any other."""
        try:
            await self._prepare()
        except DatabaseAway as away:
            for line in self._lines:
                line.pause()
            self._outage.begin(away)
            return False
        return True

    async def _prepare(self) -> None:
        """Reach the database and bring it to our schema."""
        migrated = await self._call(partial(self._dialect.prepare, self._parts.migrations, self._parts.clock.now))
        if migrated is not None:
            self._parts.emit(migrated)

    async def _probe(self) -> None:
        """Raise `DatabaseAway` unless a call would be served now."""
        await self._prepare()
        await self._call(self._dialect.probe)

    async def _watch_outages(self, is_ready: bool) -> None:  # noqa: FBT001 - start_soon passes no names
        try:
            await self._outage.watch(self._probe, chance=self._parts.chance, was_ready=is_ready)
        except StorageMisconfigured as failure:
            self._failure = failure
            self.stop()

    def _answer(self, calls: Sequence[Call[Any]], announced: tuple[set[str], set[str]]) -> None:
        """Wake those whose calls have an outcome, and those who listen to what these have announced."""
        self._room.answer(calls)
        own, others = announced
        if own or others:
            self._parts.changes.deliver(own, others)

    def _resume(self) -> None:
        """Let those go on who were held."""
        for line in self._lines:
            line.resume()
        self._wake()

    def _refuse_all(self) -> None:
        for line in self._lines:
            self._room.refuse(line.take_now(), STOPPED)


class Inline(Gateway):
    """Without threads, for tests and simulation. An outage can be played.

    Serves together what came in the same turn of the loop, as the writer's thread does.
    """

    def __init__(self, parts: GatewayParts, *, is_away: Callable[[], bool]) -> None:
        line = CallQueue()
        super().__init__(parts, writes=line, reads=line)
        self._is_away = is_away
        self._worker = ConnectionWorker(parts.dialect.open_session)
        self._idle = ParkingLot()

    @override
    def _wake(self) -> None:
        self._idle.unpark()

    @override
    async def _work_until_stopped(self, started: Callable[[], None], watchers: trio.Nursery) -> None:
        try:
            started()
            while True:
                self._serve_line()
                if self._stopping.is_set():
                    return
                # Whoever calls in the turn that now begins is served in the next one, all together.
                await self._idle.park()
        finally:
            self.stop()
            self._worker.close()

    def _serve_line(self) -> None:
        line = self._writes
        while not line.is_paused and (calls := line.take_now(self._dialect.group_max)):
            away = self._attempt(calls)
            if away is not None:
                held = [call for call in calls if call.outcome is None]
                line.put_back(held)
                self._outage.hold(held, line, away)
            self._answer([call for call in calls if call.outcome is not None], self._worker.announced.take())

    def _attempt(self, calls: Sequence[Call[Any]]) -> DatabaseAway | None:
        try:
            self._check_played_outage()
        except DatabaseAway as away:
            return away
        return self._worker.serve(calls)

    @override
    async def _call(self, function: Callable[[], T]) -> T:
        self._check_played_outage()
        self._worker.close()  # a database in memory has one connection, and it may be set to read only
        return function()

    def _check_played_outage(self) -> None:
        if self._is_away():
            self._worker.close()  # as in a real one
            raise DatabaseAway("an outage is played")


class Threaded(Gateway):
    """Lines in front of worker threads. The threads are tasks of this run and end with it."""

    def __init__(self, parts: GatewayParts) -> None:
        writes = CallQueue()
        super().__init__(parts, writes=writes, reads=CallQueue() if parts.dialect.has_reader else writes)
        self._workers: list[ConnectionWorker] = []
        # Not trio's shared limiter: forty busy threads elsewhere must not keep the database from starting.
        self._threads = trio.CapacityLimiter(parts.dialect.writers + 2)
        # Also while the run is cancelled: trio waits for the threads, and a thread may wait for a server that hangs.
        self._hung_watch = trio.CancelScope(shield=True)

    @override
    def _wake(self) -> None:
        """The threads wait for their lines themselves."""

    @override
    async def _work_until_stopped(self, started: Callable[[], None], watchers: trio.Nursery) -> None:
        limit_s = self._dialect.hang_limit_s
        if limit_s is not None:
            watchers.start_soon(self._watch_hung, limit_s)
        try:
            async with trio.open_nursery() as workers:
                self._start_workers(workers)
                started()
                await self._wait_until_stopped()
        finally:
            self._hung_watch.cancel()

    @override
    async def _call(self, function: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(function, limiter=self._threads)

    async def _wait_until_stopped(self) -> None:
        parts = self._parts
        follow = partial(parts.changes.follow, self._dialect.open_changes, chance=parts.chance, emit=parts.emit)
        try:
            # Its connection is closed before those of the threads: whoever is last tidies up a SQLite file, which blocks.
            async with trio.open_nursery() as listening:
                listening.start_soon(follow)
                await self._stopping.wait()
                listening.cancel_scope.cancel()
        finally:
            if not self._stopping.is_set():  # cancelled
                self._refuse_all()
            # Also when cancelled: the threads end only by this, and trio waits for them.
            self.stop()
            for line in self._lines:
                line.close()

    async def _watch_hung(self, limit_s: float) -> None:
        with self._hung_watch:
            while True:
                await trio.sleep(limit_s / HUNG_LOOKS)
                for worker in self._workers:
                    worker.cancel_if_hung(limit_s)

    def _start_workers(self, workers: trio.Nursery) -> None:
        token = current_trio_token()
        lines = [self._writes] * self._dialect.writers
        if self._reads is not self._writes:
            lines.append(self._reads)
        for line in lines:
            worker = ConnectionWorker(self._dialect.open_session)
            self._workers.append(worker)
            workers.start_soon(self._call, partial(self._work, line, worker, token))

    def _work(self, line: CallQueue, worker: ConnectionWorker, token: TrioToken) -> None:
        """The life of a worker thread."""
        most = self._dialect.group_max if line is self._writes else 1
        try:
            while calls := line.take(most):
                self._serve(calls, line, worker, token)
        finally:
            worker.close()

    def _serve(self, calls: list[Call[Any]], line: CallQueue, worker: ConnectionWorker, token: TrioToken) -> None:
        try:
            away = worker.serve(calls)
        finally:
            # One wake-up of the loop for the whole group: it costs more than the answers themselves.
            answered = [call for call in calls if call.outcome is not None]
            token.run_sync_soon(self._answer, answered, worker.announced.take())
        if away is not None:
            held = [call for call in calls if call.outcome is None]
            line.put_back(held)
            token.run_sync_soon(self._outage.hold, held, line, away)


class Outage:
    """Told of the first call that meets an outage; holds what waits, probes with back-off, lets all go on in order."""

    def __init__(
        self, lines: Sequence[CallQueue], admission: Admission, *, hold_s: float, emit: Emit, resume: Callable[[], None]
    ) -> None:
        self._lines = lines
        self._room = admission
        self._hold_s = hold_s
        self._emit = emit
        self._resume = resume
        self._since: float | None = None
        self._why = ""
        self._begun = trio.Event()
        self._over = trio.Event()

    @property
    def refusal(self) -> str:
        """What a call is told that has waited long enough."""
        return f"the database was away for the {self._hold_s:g} s that a call waits ({self._why}): ask again later"

    def begin(self, away: DatabaseAway) -> None:
        """The database is away, as far as is known. Lines are paused by whoever noticed."""
        self._why = str(away)
        if self._since is None:
            self._since = trio.current_time()
            self._over = trio.Event()
            self._begun.set()
            self._emit(StorageLost(error=self._why))

    def hold(self, calls: Sequence[Call[Any]], line: CallQueue, away: DatabaseAway) -> None:
        """These calls met the outage and are back in line, unless nobody waits for them or they seem to be its cause."""
        self.begin(away)
        for call in calls:
            call.losses += away.is_stale
            call.held_since = trio.current_time() if call.held_since is None else call.held_since
            self._room.release(call, line)
            if call.losses >= LOSSES_MAX and line.withdraw(call):
                self._room.refuse([call], f"the database was lost {call.losses} times during this call: {self._why}")

    def is_too_late(self, call: Call[Any]) -> bool:
        """Whether a call used up its time before it could join the line."""
        return self._since is not None and self._deadline_of(call, self._since) <= trio.current_time()

    async def watch(self, probe: Callable[[], Awaitable[None]], *, chance: Chance, was_ready: bool) -> None:
        """See each outage to its end, one after the other. Runs as long as the gateway.

        Until the database was ready once, a refusal is a mistake in the settings and raised; later it may pass.
        """
        while True:
            await self._begun.wait()
            await self._wait_until_back(probe, chance=chance, was_ready=was_ready)
            was_ready = True
            self._end()

    async def expire(self) -> None:
        """Refuse whoever has waited long enough. Runs as long as the gateway."""
        while True:
            await self._begun.wait()
            next_at = self._refuse_expired()
            with trio.move_on_at(max(next_at, trio.current_time() + SHORTEST_LOOK_S)):
                await self._over.wait()

    async def _wait_until_back(self, probe: Callable[[], Awaitable[None]], *, chance: Chance, was_ready: bool) -> None:
        failures = 0
        while True:
            await trio.sleep(delay_before_probe(failures=failures, jitter=chance.random()))
            try:
                await probe()
            except DatabaseAway as away:
                self._why = str(away)
            except StorageMisconfigured as refused:
                if isinstance(refused, DatabaseNeedsNewerCode | DatabasePreRelease) or not was_ready:
                    raise
                self._why = str(refused)
            else:
                return
            failures += 1

    def _end(self) -> None:
        now = trio.current_time()
        since, self._since = self._since, None
        self._begun = trio.Event()
        self._over.set()
        self._emit(StorageBack(away_s=now - (now if since is None else since)))
        self._resume()

    def _refuse_expired(self) -> float:
        """When to look again: who comes later has a later deadline, so one timer is enough."""
        now = trio.current_time()
        next_at = now + self._hold_s
        if self._since is None:
            return next_at
        for line in self._lines:
            for call in line.waiting() if line.is_paused else ():
                deadline = self._deadline_of(call, self._since)
                if deadline > now:
                    next_at = min(next_at, deadline)
                    break
                if line.withdraw(call):
                    self._room.refuse([call], self.refusal)
        return next_at

    def _deadline_of(self, call: Call[Any], away_since: float) -> float:
        return held_until(
            arrived_at=call.arrived_at, away_since=away_since, held_since=call.held_since, hold_s=self._hold_s
        )
