"""Does this process still own its jobs? It shows the others that it lives, and stops its handlers when it cannot."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import trio
from attrs import define, field

from actors.jobs_in_hand import LOST, UNCONFIRMED, JobsInHand, WorkBell
from actors.lease import Lease
from cormorant.rules.errors import CommitUnknown, StorageUnavailable
from cormorant.rules.job_events import WorkerLeaseLost, WorkerRegistered, WorkerUnconfirmed
from cormorant.rules.ports import Chance, Clock, Emit
from storage import workers
from storage.database import Database

RETRY_S = 1.0


@define(eq=False)
class Heart:
    """Registers, beats, and knows when to stop believing."""

    database: Database
    lease: Lease
    in_hand: JobsInHand
    bell: WorkBell
    worker_id: str
    version: str
    kinds: Sequence[str]
    beat_s: float
    unconfirmed_s: float
    clock: Clock
    chance: Chance
    emit: Emit
    on_beat: Callable[[], None] = lambda: None
    _is_unconfirmed: bool = field(init=False, default=False)

    async def run(self) -> None:
        """Beat for ever; when declared dead, begin anew under another name."""
        while True:
            await self._register()
            await self._beat_until_lost()

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
                self._lose()
                return
            self._confirm(seen_at)
            self.on_beat()

    async def _beat(self) -> float | None:
        """When the database saw us alive, however long it takes to reach it; None when we were declared dead."""
        with trio.CancelScope(deadline=self.lease.confirmed_at + self.unconfirmed_s):
            return await self._beat_patiently()
        self._doubt()
        return await self._beat_patiently()

    async def _beat_patiently(self) -> float | None:
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
        self.lease.is_held = True
        self.bell.ring()

    def _doubt(self) -> None:
        """Others may be taking our jobs: stop working on them, before they start."""
        self.lease.is_held = False
        silent_s = trio.current_time() - self.lease.confirmed_at
        stopped = self.in_hand.cancel(UNCONFIRMED)
        self.in_hand.drop_claimed()
        self.emit(WorkerUnconfirmed(worker=self.lease.owner, silent_s=silent_s, handlers=stopped))

    def _lose(self) -> None:
        self.lease.is_held = False
        stopped = self.in_hand.cancel(LOST)
        self.in_hand.drop_claimed()
        self.emit(WorkerLeaseLost(worker=self.lease.owner, handlers=stopped))
