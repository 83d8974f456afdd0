"""SavedSearchTicker: runs due saved searches and records what is new and fits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Protocol

import trio
from attrs import define, field

from actors.contained import Failed, contained
from actors.environment import Environment
from actors.jobs.working_set import JobWakeUp
from actors.periodic import Periodic
from cormorant.rules.search.outcomes import Outcome, OutcomeStatus, opens_in_s
from cormorant.rules.watch.events import SavedSearchChecked
from cormorant.rules.watch.watches import SavedSearch, next_check
from storage import pauses
from storage.search.sources import UnknownSource
from storage.watch import choice, watches
from storage.watch.choice import CandidateChoice, SavedSearchCheck

TOGETHER = 4
"""So many are run at the same time."""
CHECK_S = 600.0
"""The longest time for one check; sources that have not answered by then are asked the next time."""
CLAIM_SPARE_S = 60.0
LOOK_S = 60.0
"""How often is looked for what is due, should every notice be missed."""
RELEASE_S = 0.4
"""What giving one back may take when the service stops."""


class RunSearch(Protocol):
    """Asks the sources of a saved search, each through its gates."""

    async def __call__(self, saved: SavedSearch) -> Sequence[Outcome]:
        """One outcome for each source."""
        ...


@define(eq=False, kw_only=True)
class SavedSearchTicker(Periodic):
    """One check of each search at a time, whichever process does it."""

    environment: Environment = field(kw_only=False)
    configured: Sequence[SavedSearch]
    """Those of the settings file."""
    run: RunSearch
    chooser: CandidateChoice
    producer: JobWakeUp
    interval_s: float = LOOK_S
    grace_s: float = 0.0
    """None: a check that is stopped did not happen, and is due as before."""
    _has_configured: bool = field(init=False, default=False)

    async def round(self) -> None:
        """Run what is due."""
        if not self._has_configured:
            await self.environment.database.run(watches.set_configured, self.configured)
            self._has_configured = True
        if await self.environment.database.read(pauses.is_all_paused):
            return
        while await self._check_some() == TOGETHER:
            pass

    async def _check_some(self) -> int:
        """Take no more in hand than are checked at once: the others would be another's before their turn."""
        now = self.environment.now()
        until = now + timedelta(seconds=CHECK_S + CLAIM_SPARE_S)
        due = await self.environment.database.run(watches.claim, now=now, until=until, limit=TOGETHER)
        async with trio.open_nursery() as nursery:
            for saved in due:
                nursery.start_soon(self._check, saved)
        return len(due)

    async def _check(self, saved: SavedSearch) -> None:
        checked = await self._contained(saved, partial(self._check_one, saved))
        if isinstance(checked, Failed):
            # If this cannot be stored either, the search is due again when its claim ends.
            await self._contained(saved, partial(self._write_error, saved, checked.reason))

    async def _contained(self, saved: SavedSearch, step: Callable[[], Awaitable[None]]) -> Failed | None:
        return await contained(step, kind="saved search", item=saved.name, emit=self.environment.emit)

    async def _check_one(self, saved: SavedSearch) -> None:
        try:
            outcomes: Sequence[Outcome] | None = None
            with trio.move_on_after(CHECK_S):
                outcomes = await self.run(saved)
            await self._write(saved, outcomes)
        except UnknownSource as unknown:
            await self._write_error(saved, str(unknown))
        except trio.Cancelled:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + RELEASE_S):
                await self.environment.database.run(
                    watches.end_check, saved, next_attempt_at=saved.next_attempt_at, error=None, now=None
                )
            raise

    async def _write_error(self, saved: SavedSearch, error: str) -> None:
        """Store an error; the next check is due at its usual time."""
        now = self.environment.now()
        next_at = next_check(due=saved.next_attempt_at, every_s=saved.every_s, now=now)
        await self.environment.database.run(watches.end_check, saved, next_attempt_at=next_at, error=error, now=None)
        self.environment.emit(SavedSearchChecked(saved=saved.name, found=0, wanted=0, error=error))

    async def _write(self, saved: SavedSearch, came: Sequence[Outcome] | None) -> None:
        now, outcomes = self.environment.now(), came or ()
        answered = [outcome for outcome in outcomes if outcome.is_answer]
        missing = [outcome for outcome in outcomes if not outcome.is_answer]
        error = "; ".join(f"{each.source}: {each.error or each.status.value}" for each in missing) or None
        if came is None:
            error = f"not all had answered after {CHECK_S:g} s"
        found = [(outcome.source, result) for outcome in answered for result in outcome.results]
        next_at = next_check(due=saved.next_attempt_at, every_s=saved.every_s, now=now)
        if not answered and missing:
            next_at = _when_open(missing, now) or next_at
        names = [outcome.source for outcome in answered]
        check = SavedSearchCheck(found=found, answered=names, next_at=next_at, error=error, now=now)
        wanted = await self.environment.database.run(choice.record_saved_check, self.chooser, saved, check)
        if wanted:
            self.producer.set()
        self.environment.emit(SavedSearchChecked(saved=saved.name, found=len(found), wanted=wanted, error=error))


def _when_open(missing: Sequence[Outcome], now: datetime) -> datetime | None:
    """When the first of the closed sources opens, if nobody has answered because all are closed."""
    waits = [opens_in_s(outcome.error) for outcome in missing if outcome.status is OutcomeStatus.RATE_LIMITED]
    known = [wait for wait in waits if wait is not None]
    return now + timedelta(seconds=max(LOOK_S, min(known))) if known else None
