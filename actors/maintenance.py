"""Maintenance: prunes old rows of every domain in pages, keeps paused kinds held, reports unknown job kinds."""

from __future__ import annotations

from datetime import datetime

import trio
from attrs import define

from actors.actor import Recheck
from actors.periodic import Periodic
from cormorant.rules.jobs.events import JobsPruned, KindUnknown
from cormorant.rules.search.events import SearchesPruned
from cormorant.rules.watch.feeds import SubscriptionsMaintained
from storage import pauses
from storage.engine.statements import in_pages
from storage.jobs import reports
from storage.pruning import PrunedPage, prune_page
from storage.watch import feed_claims, feeds

BEGIN_S = 60.0
"""How long after the start the first tick begins: the other processes have registered by then."""
HOUR_S = 3_600.0


@define(eq=False, kw_only=True)
class Maintenance(Periodic[Recheck]):
    """Prunes once an hour, and when the clock was set. A page of each table is one transaction, so that nobody waits long behind it."""

    interval_s: float = 60.0
    budget_s: float = 600.0

    async def begin(self) -> None:
        """Begin a little after the start."""
        self.wake_at = trio.current_time() + BEGIN_S

    async def tick(self) -> float | None:
        """Prune every table, and report the jobs that no process has a handler for."""
        pruned = await self._prune(self.environment.now())
        # Jobs that were enqueued at the very moment their kind was paused or resumed may have missed it.
        await in_pages(self.environment.database, pauses.hold_some)
        await in_pages(self.environment.database, pauses.free_some)
        for kind, waiting in (await self.environment.database.read(reports.unknown_kinds)).items():
            self.environment.emit(KindUnknown(kind=kind, waiting=waiting))
        await self._report(pruned)
        return HOUR_S

    async def _prune(self, now: datetime) -> PrunedPage:
        database, settings = self.environment.database, self.environment.settings
        pruned = page = await database.run(prune_page, settings, now=now)
        while page.full and self.is_in_budget:
            page = await database.run(prune_page, settings, now=now, names=page.full)
            pruned = pruned.plus(page)
        return pruned

    async def _report(self, pruned: PrunedPage) -> None:
        emit = self.environment.emit
        if pruned.succeeded or pruned.cancelled or pruned.failed:
            emit(JobsPruned(succeeded=pruned.succeeded, cancelled=pruned.cancelled, failed=pruned.failed))
        answers = pruned.answers + pruned.ledger + pruned.links + pruned.news + pruned.walks
        if pruned.history or answers or pruned.requests:
            emit(SearchesPruned(history=pruned.history, answers=answers, requests=pruned.requests))
        total, _ = await self.environment.database.read(feeds.count)
        if total:
            active = await self.environment.database.read(feed_claims.count)
            emit(
                SubscriptionsMaintained(
                    scheduled_jobs=total, active_checks=active, pruned=pruned.checks, items_pruned=pruned.items
                )
            )
