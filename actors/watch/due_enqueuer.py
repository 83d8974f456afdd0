"""DueEnqueuer: makes durable jobs of due rows. PriceTicker and SavedSearchTicker are its two kinds."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar

from attrs import define, field

from actors.actor import Recheck
from actors.contained import Failed, contained
from actors.jobs.working_set import JobWakeUp
from actors.periodic import Periodic
from actors.watch.watch_jobs import collect_jobs, saved_search_jobs
from cormorant.rules.watch.prices import PriceWatch
from cormorant.rules.watch.watches import SavedSearch, next_check
from storage import pauses
from storage.jobs.jobs import NewJob
from storage.watch import watches
from storage.watch.prices import PRICE
from storage.watch.saved_searches import SAVED
from storage.watch.watches import WatchKind

T = TypeVar("T")
R = TypeVar("R", PriceWatch, SavedSearch)

TOGETHER = 50
"""So many due rows are read at once."""
AGAIN_S = 60.0
"""When the next tick is due after one that could not enqueue all that was due."""


@define(eq=False, kw_only=True)
class DueEnqueuer(Periodic[Recheck], Generic[R]):
    """Enqueues the jobs of due rows. Nothing is lost when it is cancelled: each of its steps is one transaction."""

    configured: Sequence[R]
    """Those of the settings file."""
    producer: JobWakeUp
    kind: ClassVar[WatchKind[Any]]
    _has_configured: bool = field(init=False, default=False)

    @property
    def channels(self) -> Sequence[str]:
        """The rows, and the switch that pauses everything."""
        return (self.kind.table, pauses.CHANNEL)

    @abstractmethod
    def jobs_of(self, row: R, place: int) -> Sequence[NewJob]:
        """The jobs of a row, after `place` others."""

    async def tick(self) -> float | None:
        """Enqueue what is due."""
        database = self.environment.database
        if not self._has_configured:
            await database.run(watches.set_configured, self.kind, self.configured)
            self._has_configured = True
        if await database.read(pauses.is_all_paused):
            return None
        place, has_failed = 0, False
        while due := await database.read(watches.due, self.kind, now=self.environment.now(), limit=TOGETHER):
            for row in due:
                enqueued = await self._enqueue(row, place)
                if enqueued:
                    self.producer.set()
                place += enqueued or 0
                has_failed |= enqueued is None
            if has_failed or not self.is_in_budget:  # one that stays due would be read again at once
                return AGAIN_S if has_failed else 0.0
        return self.seconds_until(await database.read(watches.next_due, self.kind))

    async def _enqueue(self, row: R, place: int) -> int | None:
        """Number of jobs. None: an error was contained, and the row stays due because its next time cannot be set."""
        now = self.environment.now()
        next_at = next_check(due=row.next_attempt_at, every_s=row.every_s, now=now)
        database = self.environment.database

        async def enqueue() -> int:
            jobs = self.jobs_of(row, place)
            return await database.run(
                watches.enqueue_due, self.kind.codec.table, (row.id, row.token), jobs, next_attempt_at=next_at, now=now
            )

        enqueued = await self._contained(row, enqueue)
        if not isinstance(enqueued, Failed):
            return enqueued
        postpone = partial(database.run, watches.postpone, self.kind.codec.table, row.id, next_attempt_at=next_at)
        return None if isinstance(await self._contained(row, postpone), Failed) else 0

    async def _contained(self, row: R, step: Callable[[], Awaitable[T]]) -> T | Failed:
        return await contained(step, kind=self.kind.what, item=row.name, emit=self.environment.emit)


@define(eq=False, kw_only=True)
class PriceTicker(DueEnqueuer[PriceWatch]):
    """Watched prices."""

    kind: ClassVar[WatchKind[Any]] = PRICE

    def jobs_of(self, row: PriceWatch, place: int) -> Sequence[NewJob]:
        """A job for each source."""
        return collect_jobs(self.environment, row, place)


@define(eq=False, kw_only=True)
class SavedSearchTicker(DueEnqueuer[SavedSearch]):
    """Saved searches."""

    kind: ClassVar[WatchKind[Any]] = SAVED

    def jobs_of(self, row: SavedSearch, place: int) -> Sequence[NewJob]:  # noqa: ARG002 - all start at once
        """One job, which asks all sources."""
        return saved_search_jobs(self.environment, row)
