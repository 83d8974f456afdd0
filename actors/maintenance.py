"""Maintenance: prunes old rows of every domain in pages, keeps paused kinds held, reports unknown job kinds."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import trio
from attrs import define, field

from actors.actor import Actor
from actors.environment import Environment
from cormorant.rules.errors import CommitUnknown, StorageUnavailable
from cormorant.rules.jobs.events import JobsPruned, KindUnknown
from cormorant.rules.jobs.states import JobState
from cormorant.rules.search.events import SearchesPruned
from cormorant.rules.watch.artists import KEPT as WALKS_KEPT
from storage import pauses
from storage.engine.statements import PAGE, in_pages, prune
from storage.jobs import jobs, reports, workers
from storage.search import answers, history, source_states
from storage.tables import FEED_ITEMS, GATE_LINKS, SEARCH_CACHE
from storage.watch import artists

REQUESTS_KEPT = timedelta(days=32)
"""Longer than the widest window, a month: what is older opens nothing."""

LINKS_KEPT = timedelta(days=60)
"""Apps may delay a download by weeks."""

NEWS_KEPT = timedelta(days=7)
"""What a site has not shown among what is new for a week is new to nobody."""


@define(eq=False, kw_only=True)
class Maintenance(Actor[None]):
    """Works in pages, so that nobody waits long behind it."""

    environment: Environment = field(kw_only=False)
    interval_s: float = 600.0

    async def begin(self) -> None:
        """Begin a little after the start, when the others have registered."""
        self.wake_at = trio.current_time() + min(60.0, self.interval_s)

    async def wake(self) -> None:
        """Do the rounds. What a database that is away prevents now is done the next time."""
        self.wake_at = trio.current_time() + self.interval_s
        try:
            await self._keep_pauses()
            await self._report_unknown_kinds()
            await self._prune()
            await self._prune_searches()
        except (StorageUnavailable, CommitUnknown):
            return

    async def _prune(self) -> None:
        succeeded = await self._prune_state(JobState.SUCCEEDED, self.environment.settings.jobs.keep_succeeded_s)
        cancelled = await self._prune_state(JobState.CANCELLED, self.environment.settings.jobs.keep_succeeded_s)
        failed = await self._prune_state(JobState.FAILED, self.environment.settings.jobs.keep_failed_s)
        if succeeded or cancelled or failed:
            self.environment.emit(JobsPruned(succeeded=succeeded, cancelled=cancelled, failed=failed))

    async def _prune_state(self, state: JobState, keep_s: float) -> int:
        before = self.environment.now() - timedelta(seconds=keep_s)
        return await self._in_pages(jobs.prune, state=state, before=before)

    async def _prune_searches(self) -> None:
        now = self.environment.now()
        oldest = now - timedelta(seconds=self.environment.settings.search.history_keep_s)
        pruned = SearchesPruned(
            history=await self._in_pages(
                history.prune, before=oldest, keep=self.environment.settings.search.history_max
            ),
            answers=await self._in_pages(prune, time=SEARCH_CACHE.c.expires_at, before=now)
            + await self._in_pages(answers.prune_answers)
            + await self._in_pages(prune, time=GATE_LINKS.c.seen_at, before=now - LINKS_KEPT)
            + await self._in_pages(prune, time=FEED_ITEMS.c.seen_at, before=now - NEWS_KEPT)
            + await self._in_pages(artists.prune_progress, before=now - WALKS_KEPT),
            requests=await self._in_pages(source_states.prune_requests, before=now - REQUESTS_KEPT),
        )
        if pruned.history or pruned.answers or pruned.requests:
            self.environment.emit(pruned)

    async def _in_pages(self, function: Callable[..., int], **words: Any) -> int:
        total = 0
        while done := await self.environment.database.run(function, limit=PAGE, **words):
            total += done
        return total

    async def _keep_pauses(self) -> None:
        """A job that was enqueued at the very moment its kind was paused or resumed may have missed it."""
        await in_pages(self.environment.database, pauses.hold_some)
        await in_pages(self.environment.database, pauses.free_some)

    async def _report_unknown_kinds(self) -> None:
        waiting = await self.environment.database.read(reports.waiting_kinds)
        living = await self.environment.database.read(workers.all_workers)
        known = {kind for worker in living if worker.dead_at is None for kind in worker.kinds}
        for kind, number in waiting.items():
            if kind not in known:
                self.environment.emit(KindUnknown(kind=kind, waiting=number))
