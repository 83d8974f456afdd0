"""Job handler that repeats a saved search."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from attrs import field, frozen

from actors.contained import Failed, contained
from actors.environment import Environment
from actors.jobs.handler import JobContext
from cormorant.rules.errors import LeaseLost
from cormorant.rules.jobs.verdicts import Cancel, Fail, Snooze
from cormorant.rules.search.outcomes import Outcome, opens_in_s
from cormorant.rules.search.priorities import Priority
from cormorant.rules.watch.events import SavedSearchChecked
from cormorant.rules.watch.watches import SavedSearch
from cormorant.services.durable_search import PATIENCE_S, SNOOZE_S_MIN
from cormorant.services.searches import Searches
from storage.search import answers
from storage.search.sources import UnknownSource
from storage.watch import choice, watches
from storage.watch.choice import CandidateChoice, SavedSearchCheck
from storage.watch.saved_searches import SAVED


@frozen(kw_only=True)
class SavedSearchJob:
    """The handler of the kind `saved_search`."""

    environment: Environment = field(kw_only=False)
    searches: Searches
    chooser: CandidateChoice

    async def __call__(self, context: JobContext) -> None:
        """Ask the sources that have not answered in this check, and come back for those that are closed."""
        number, by_hand = _read(context.payload)
        saved = await context.transaction(watches.by_id, SAVED, number)
        if saved is None:
            raise Cancel("it is no longer saved")
        if saved.is_paused and not by_hand:
            return  # not cancelled: a check by hand may have joined this job meanwhile
        check = partial(self._check, context, saved)
        checked = await contained(
            check, kind="saved search", item=saved.name, emit=self.environment.emit, expected=(LeaseLost, Snooze)
        )
        if isinstance(checked, Failed):
            await self._record(context, saved, (), error=checked.reason)

    async def _check(self, context: JobContext, saved: SavedSearch) -> None:
        try:
            outcomes = await self._ask(context, saved)
        except UnknownSource as unknown:
            await self._record(context, saved, (), error=str(unknown))
            return
        missing = [outcome for outcome in outcomes if not outcome.is_answer]
        error = "; ".join(f"{each.source}: {each.error or each.status.value}" for each in missing) or None
        waits = [opens_in_s(each.error) for each in missing]
        opens_s = max(SNOOZE_S_MIN, min((wait_s for wait_s in waits if wait_s is not None), default=math.inf))
        # A source that opens later is asked by the next check, which must not wait for it.
        is_last = opens_s >= (saved.next_attempt_at - self.environment.now()).total_seconds()
        await self._record(context, saved, outcomes, error=error, is_last=is_last)
        if not is_last:
            raise Snooze(opens_s)

    async def _ask(self, context: JobContext, saved: SavedSearch) -> Sequence[Outcome]:
        """Ask the sources, each through its limiter. One outcome for each."""
        assert context.job_id is not None
        await self.searches.directory.loaded.wait()  # right after a start not all are there
        answered = await context.transaction(answers.read_answers, context.job_id)
        left = [name for name in saved.sources or self.searches.searched() if name not in answered]
        if not left:
            return ()
        search = await self.searches.search(
            saved.request,
            sources=left,
            priority=Priority.RSS if saved.request.is_rss else Priority.BACKGROUND,
            max_wait_s=PATIENCE_S,
            consumer=f"saved:{saved.name}",
            # Not from the cache: there is nothing new in it.
            execute=None if saved.request.is_rss else self.environment.clients.search,
        )
        async with search:
            return [outcome async for outcome in search]

    async def _record(
        self,
        context: JobContext,
        saved: SavedSearch,
        outcomes: Sequence[Outcome],
        *,
        error: str | None,
        is_last: bool = True,
    ) -> None:
        assert context.job_id is not None
        answered = [outcome for outcome in outcomes if outcome.is_answer]
        check = SavedSearchCheck(
            found=[(outcome.source, result) for outcome in answered for result in outcome.results],
            answered=[outcome.source for outcome in answered],
            error=error,
            is_last=is_last,
            now=self.environment.now(),
        )
        wanted = await context.transaction(choice.record_saved_check, self.chooser, saved, check, job_id=context.job_id)
        self.environment.emit(SavedSearchChecked(saved=saved.name, found=len(check.found), wanted=wanted, error=error))


def _read(payload: Any) -> tuple[int, bool]:
    number = payload.get("saved") if isinstance(payload, dict) else None
    if isinstance(number, bool) or not isinstance(number, int):
        raise Fail('the payload names no saved search; it is { "saved": NUMBER }')
    return number, payload.get("by_hand") is True
