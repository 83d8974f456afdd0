"""Heartbeat: registers this process, beats, and stops handlers when the lease is in doubt."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import trio
from attrs import define

from actors.jobs.working_set import LOST, UNCONFIRMED, JobWakeUp, OwnerLease, WorkingSet, is_claimed
from cormorant.rules.errors import CommitUnknown, StorageUnavailable
from cormorant.rules.jobs.events import WorkerLeaseLost, WorkerRegistered, WorkerUnconfirmed
from cormorant.rules.ports import Chance, Clock, Emit
from storage.database import Database
from storage.jobs import workers

RETRY_S = 1.0
LOOK_S = 0.05
"""Shortest time between two looks at whether the lease is in doubt."""


@define(eq=False)
class Heartbeat:
    """Registers, beats, and knows when to stop believing."""

    database: Database
    lease: OwnerLease
    working_set: WorkingSet
    wake_up: JobWakeUp
    worker_id: str
    version: str
    kinds: Sequence[str]
    beat_s: float
    unconfirmed_s: float
    clock: Clock
    chance: Chance
    emit: Emit
    on_beat: Callable[[], None] = lambda: None

    async def run(self) -> None:
        """Beat for ever; when declared dead, begin anew under another name."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch)
            while True:
                await self._register()
                await self._beat_until_lost()

    async def _watch(self) -> None:
        """Stop believing in time, even while a beat hangs in the database and cannot be waited for."""
        while True:
            await trio.sleep_until(max(self.lease.doubtful_at, trio.current_time() + LOOK_S))
            if self.lease.is_held and trio.current_time() >= self.lease.doubtful_at:
                self._on_beat_missed()

    async def _register(self) -> None:
        # A new name for each run: a process that comes back must not be taken for the one that was given up.
        self.lease.owner = f"{self.worker_id}.{self.chance.getrandbits(48):012x}"
        while True:
            asked_at = trio.current_time()
            try:
                await self.database.run(
                    workers.register, self.lease.owner, kinds=self.kinds, version=self.version, now=self.clock.now()
                )
            except StorageUnavailable:
                await trio.sleep(RETRY_S)
            except CommitUnknown:
                self.lease.owner = f"{self.worker_id}.{self.chance.getrandbits(48):012x}"
            else:
                break
        self._confirm(asked_at)
        self.emit(WorkerRegistered(worker=self.lease.owner))

    async def _beat_until_lost(self) -> None:
        while True:
            await trio.sleep_until(self.lease.confirmed_at + self.beat_s)
            seen_at = await self._beat()
            if seen_at is None:
                self._on_lease_lost()
                return
            self._confirm(seen_at)
            self.on_beat()

    async def _beat(self) -> float | None:
        """When the database saw us alive, however long it takes to reach it; None when we were declared dead."""
        while True:
            asked_at = trio.current_time()
            try:
                beat = await self.database.run(workers.beat, self.lease.owner, now=self.clock.now())
            except (StorageUnavailable, CommitUnknown):
                await trio.sleep(RETRY_S)
            else:
                if beat is None:
                    return None
                if trio.current_time() - asked_at < self.unconfirmed_s:
                    return asked_at
                # Answered so late, after an outage, that it says nothing about now: ask once more.

    def _confirm(self, at: float) -> None:
        """The database has seen us alive at a time: when we asked, not when the answer came."""
        self.lease.confirmed_at = at
        self.lease.doubtful_at = at + self.unconfirmed_s
        self.lease.is_held = trio.current_time() < self.lease.doubtful_at
        self.wake_up.set()

    def _on_beat_missed(self) -> None:
        """Others may be taking our jobs: stop working on them, before they start."""
        self.lease.is_held = False
        silent_s = trio.current_time() - self.lease.confirmed_at
        stopped = self.working_set.cancel(UNCONFIRMED, is_claimed)
        self.working_set.drop_claimed()
        self.emit(WorkerUnconfirmed(worker=self.lease.owner, silent_s=silent_s, handlers=len(stopped)))

    def _on_lease_lost(self) -> None:
        self.lease.is_held = False
        stopped = self.working_set.cancel(LOST, is_claimed)
        self.working_set.drop_claimed()
        self.emit(WorkerLeaseLost(worker=self.lease.owner, handlers=len(stopped)))
