"""Whose price is due? Enqueues a job for each of its sources, in the transaction that takes it in hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from attrs import define, field
from sqlalchemy import Connection

from actors.rounds import Rounds
from cormorant.rules.ports import Clock
from cormorant.rules.prices import Intake
from storage import intakes
from storage.database import Database

LOOK_S = 30.0
"""How often is looked for what is due."""
TOGETHER = 50


@define(eq=False, kw_only=True)
class PriceTicker(Rounds):
    """Nothing is lost when it is cancelled: each of its steps is one transaction."""

    database: Database
    configured: Sequence[Intake]
    """Those of the settings file."""
    enqueue: Callable[..., int]
    """A statement: jobs for an intake, the first so many places after others. Returns how many."""
    is_paused: Callable[[Connection], bool]
    """A statement: whether the service is paused."""
    ring: Callable[[], None]
    clock: Clock
    interval_s: float = LOOK_S
    grace_s: float = 0.0
    _has_configured: bool = field(init=False, default=False)

    async def round(self) -> None:
        """Enqueue what is due."""
        if not self._has_configured:
            await self.database.run(intakes.set_configured, self.configured)
            self._has_configured = True
        if await self.database.read(self.is_paused):
            return
        taken, place = TOGETHER, 0
        while taken == TOGETHER:
            taken, place = await self.database.run(self._enqueue_due, place, now=self.clock.now())
        if place:
            self.ring()

    def _enqueue_due(self, connection: Connection, place: int, *, now: datetime) -> tuple[int, int]:
        due = intakes.take_due(connection, now=now, limit=TOGETHER)
        for intake in due:
            place += self.enqueue(connection, intake, place=place, now=now)
        return len(due), place
