"""DueTicker: claims due rows and works on them while the lease of this process is held."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, TypeVar

import trio
from attrs import define, field

from actors.jobs.working_set import OwnerLease
from actors.periodic import Periodic
from cormorant.rules.errors import CommitUnknown, StorageUnavailable
from storage import pauses
from storage.tables import ClaimedTable
from storage.watch import watches

M = TypeVar("M")

RELEASE_S = 0.4
"""How long releasing claims may take when the service stops."""


@define(eq=False, kw_only=True)
class DueTicker(Periodic[M]):
    """Claims due rows of a table in the name of this process, and works on them while its lease is held.

    Ticks and all other tasks that work on claimed rows run in `work`. They are cancelled when the lease is lost: another
    process may claim the same rows then. The heartbeat keeps the claims alive, and the reclaim sweeper frees those of a process
    that is dead.
    """

    lease: OwnerLease
    work: trio.Nursery = field(init=False)
    table: ClassVar[ClaimedTable]
    _may_start: bool = field(init=False, default=False)
    """Whether `work` is open. The lease may be held again while the work of the lost one still ends."""

    @property
    def channels(self) -> Sequence[str]:
        """The rows, and the switch that pauses everything."""
        return (self.table.name, pauses.CHANNEL)

    async def begin(self) -> None:
        """Begin with the lease."""
        await super().begin()
        self.wake_at = math.inf
        self.nursery.start_soon(self._work_while_held)

    async def _work_while_held(self) -> None:
        while True:
            await self.lease.held.wait()
            async with trio.open_nursery() as self.work:
                self._may_start = True
                self.tick_now()
                await self.lease.lost.wait()
                self._may_start = False
                self.work.cancel_scope.cancel()
            self.forget_claims()

    def forget_claims(self) -> None:
        """The lease is lost, and no task works on a claimed row any more."""

    async def wake(self) -> None:
        """Start a tick, unless the lease is lost: then the next one starts when it is held again."""
        if self._may_start:
            self.start_tick(self.work)
        else:
            self.wake_at = math.inf

    async def end(self) -> None:
        """Stop all work, and release what this process has claimed: it is due as before."""
        await super().end()
        self.nursery.cancel_scope.cancel()
        if self.lease.is_held:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + RELEASE_S):
                await self._release_all()

    async def _release_all(self) -> None:
        try:
            await self.release_unknown(known=())
        except (StorageUnavailable, CommitUnknown):
            return  # they are freed when this process leaves, or is declared dead

    async def release_unknown(self, *, known: Sequence[int]) -> int:
        """Release the rows that this process has claimed and does not know of."""
        return await self.environment.database.run(
            watches.release_unknown, self.table, worker=self.lease.owner, known=known
        )
