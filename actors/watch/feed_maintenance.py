"""FeedMaintenance: prunes old checks and items of feeds, once an hour."""

from __future__ import annotations

import math
from collections.abc import Sized
from datetime import timedelta

import trio
from attrs import define, field

from actors.environment import Environment
from cormorant.rules.watch.feeds import SubscriptionsMaintained
from storage.watch import feed_items, feeds

__all__ = ["FeedMaintenance"]

MAINTENANCE_S = 3_600.0
PAGE = 500
AHEAD = timedelta(days=1)
"""What is dated later was dated by a clock that ran ahead."""


@define(eq=False, kw_only=True)
class FeedMaintenance:
    """Forgets old records and items, finds those that a clock that ran ahead put off, tells how many there are."""

    environment: Environment = field(kw_only=False)
    active: Sized
    """Those that are being asked."""
    _ran_at: float = field(init=False, default=-math.inf)

    def run_soon(self) -> None:
        """Do it at the next occasion."""
        self._ran_at = -math.inf

    async def run(self) -> bool:
        """Do some of it when an hour has passed. True: look again soon."""
        if trio.current_time() < self._ran_at + MAINTENANCE_S:
            return False
        now = self.environment.now()
        before = now - timedelta(seconds=self.environment.settings.subscriptions.keep_checks_s)
        pruned = await self.environment.database.run(
            feed_items.prune_checks, before=before, after=now + AHEAD, limit=PAGE
        )
        gone_before = now - timedelta(seconds=self.environment.settings.subscriptions.keep_items_s)
        forgotten = await self.environment.database.run(feed_items.prune, before=gone_before, limit=PAGE)
        found = 0
        if await self.environment.database.read(feeds.is_any_ahead, now=now):
            found = await self.environment.database.run(feeds.reschedule_after_clock_jump, now=now, limit=PAGE)
        if PAGE in {pruned, forgotten, found}:
            return True
        self._ran_at = trio.current_time()
        total, _ = await self.environment.database.read(feeds.count)
        self.environment.emit(
            SubscriptionsMaintained(
                scheduled_jobs=total, active_checks=len(self.active), pruned=pruned, items_pruned=forgotten
            )
        )
        return found > 0
