"""Heartbeat: registers this process, beats, and stops handlers when the lease is in doubt."""

from __future__ import annotations

import math
import os
import socket

import trio
from attrs import define, field

from actors.actor import Address, Recheck
from actors.environment import Environment
from actors.jobs.producer import Producer
from actors.jobs.working_set import LOST, UNCONFIRMED, OwnerLease, is_claimed
from cormorant import __version__
from cormorant.rules.errors import CommitUnknown, StorageUnavailable
from cormorant.rules.jobs.events import WorkerLeaseLost, WorkerRegistered, WorkerUnconfirmed
from storage.engine.file_locks import WorkerLocks
from storage.jobs import workers

RETRY_S = 1.0
UNCONFIRMED_SHARE = 0.8
"""Handlers stop when this much of the silence has passed after which others may take their jobs."""
LOOK_S = 0.05
"""Shortest time between two looks at whether the lease is in doubt."""


@define(eq=False, kw_only=True)
class Heartbeat:
    """Registers this process, beats, and stops its handlers when the lease is in doubt.

    A database in memory has one owner: no other process could take its lease, and it does not beat.
    """

    environment: Environment = field(kw_only=False)
    lease: OwnerLease
    producer: Producer
    sweeper: Address[Recheck]

    @property
    def _name(self) -> str:
        return self.environment.settings.service.worker_id or f"{socket.gethostname()}.{os.getpid()}"

    @property
    def _unconfirmed_s(self) -> float:
        if not self.environment.database.is_shared:
            return math.inf
        return self.environment.settings.jobs.lock_timeout_s * UNCONFIRMED_SHARE

    async def run(self) -> None:
        """Beat for ever; when declared dead, begin anew under another name."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch)
            while True:
                await self._register()
                await self._beat_until_lost()

    async def _watch(self) -> None:
        """Lose the lease in time, even while a beat hangs in the database."""
        while True:
            await trio.sleep_until(max(self.lease.doubtful_at, trio.current_time() + LOOK_S))
            if self.lease.held.is_set() and trio.current_time() >= self.lease.doubtful_at:
                self._on_beat_missed()

    async def _register(self) -> None:
        # A new name for each run: a process that comes back must not be taken for the one that was given up.
        await self._rename()
        while True:
            asked_at = trio.current_time()
            try:
                await self.environment.database.run(
                    workers.register,
                    self.lease.owner,
                    kinds=self.producer.kinds,
                    version=__version__,
                    now=self.environment.now(),
                )
            except StorageUnavailable:
                await trio.sleep(RETRY_S)
            except CommitUnknown:
                await self._rename()
            else:
                break
        self._confirm(asked_at)
        self.environment.emit(WorkerRegistered(worker=self.lease.owner))

    async def _rename(self) -> None:
        """Take a new id, and hold its lock before the others can see it."""
        database = self.environment.database
        if self.lease.owner:
            await database.with_locks(WorkerLocks.release, self.lease.owner)
        self.lease.owner = f"{self._name}.{self.environment.chance.getrandbits(48):012x}"
        await database.with_locks(WorkerLocks.hold, self.lease.owner)

    async def _beat_until_lost(self) -> None:
        if not self.environment.database.is_shared:
            await trio.sleep_forever()
        while True:
            await trio.sleep_until(self.lease.confirmed_at + self.environment.settings.jobs.heartbeat_s)
            seen_at = await self._beat()
            if seen_at is None:
                self._on_lease_lost()
                return
            self._confirm(seen_at)
            if self.producer.working_set.claims() or self.environment.database.may_miss_changes:
                self.producer.check()

    async def _beat(self) -> float | None:
        """When the database saw us alive, however long it takes to reach it; None when we were declared dead."""
        while True:
            asked_at = trio.current_time()
            try:
                beat = await self.environment.database.run(workers.beat, self.lease.owner, now=self.environment.now())
            except (StorageUnavailable, CommitUnknown):
                await trio.sleep(RETRY_S)
            else:
                if beat is None:
                    return None
                if trio.current_time() - asked_at < self._unconfirmed_s:
                    return asked_at
                # Answered so late, after an outage, that it says nothing about now: ask once more.

    def _confirm(self, at: float) -> None:
        """The database has seen us alive at a time: when we asked, not when the answer came."""
        was_held = self.lease.is_held
        self.lease.confirm(at, doubtful_after_s=self._unconfirmed_s)
        if not was_held:
            self.producer.wake_up.set()
            self.sweeper.tell_once(Recheck())

    def _on_beat_missed(self) -> None:
        """Others may be taking our jobs: stop working on them, before they start."""
        stopped = self._stop_claimed(UNCONFIRMED)
        silent_s = trio.current_time() - self.lease.confirmed_at
        self.environment.emit(WorkerUnconfirmed(worker=self.lease.owner, silent_s=silent_s, handlers=stopped))

    def _on_lease_lost(self) -> None:
        stopped = self._stop_claimed(LOST)
        self.environment.emit(WorkerLeaseLost(worker=self.lease.owner, handlers=stopped))

    def _stop_claimed(self, why: str) -> int:
        """Claim nothing, stop the handlers of claimed jobs, and forget those that none has begun. Returns how many ran."""
        self.lease.lose()
        stopped = self.producer.working_set.cancel(why, is_claimed)
        self.producer.working_set.queue.purge(is_claimed)
        return len(stopped)
