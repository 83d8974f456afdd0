"""PriceTicker: enqueues a job for each source of a due price."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

from attrs import define, field

from actors.contained import Failed, contained
from actors.environment import Environment
from actors.jobs.working_set import JobWakeUp
from actors.periodic import Periodic
from actors.watch.watch_jobs import collect_jobs
from cormorant.rules.watch.prices import PriceWatch
from storage import pauses
from storage.watch import price_watches, prices

T = TypeVar("T")

LOOK_S = 30.0
"""How often is looked for what is due."""
TOGETHER = 50


@define(eq=False, kw_only=True)
class PriceTicker(Periodic):
    """Nothing is lost when it is cancelled: each of its steps is one transaction."""

    environment: Environment = field(kw_only=False)
    configured: Sequence[PriceWatch]
    """Those of the settings file."""
    producer: JobWakeUp
    interval_s: float = LOOK_S
    grace_s: float = 0.0
    _has_configured: bool = field(init=False, default=False)

    async def round(self) -> None:
        """Enqueue what is due."""
        if not self._has_configured:
            await self.environment.database.run(price_watches.set_configured, self.configured)
            self._has_configured = True
        if await self.environment.database.read(pauses.is_all_paused):
            return
        place, is_more = 0, True
        while is_more:
            due = await self.environment.database.read(price_watches.due, now=self.environment.now(), limit=TOGETHER)
            is_more = len(due) == TOGETHER
            for intake in due:
                enqueued = await self._enqueue_contained(intake, place)
                place += enqueued or 0
                is_more &= enqueued is not None  # one that stays due would be read again at once
        if place:
            self.producer.set()

    async def _enqueue_contained(self, intake: PriceWatch, place: int) -> int | None:
        """Number of jobs. None: the intake failed, and stays due because its next time cannot be set."""
        now = self.environment.now()
        enqueue = partial(
            self.environment.database.run,
            prices.enqueue_due,
            intake,
            place,
            make_jobs=partial(collect_jobs, self.environment),
            now=now,
        )
        enqueued = await self._contained(intake, enqueue)
        if not isinstance(enqueued, Failed):
            return enqueued
        put_off = await self._contained(
            intake, partial(self.environment.database.run, price_watches.postpone, intake, now=now)
        )
        return None if isinstance(put_off, Failed) else 0

    async def _contained(self, intake: PriceWatch, step: Callable[[], Awaitable[T]]) -> T | Failed:
        return await contained(step, kind="price", item=intake.name, emit=self.environment.emit)
