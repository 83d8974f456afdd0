"""Fetches one feed and records the check."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

import trio
from attrs import define, evolve, field

from actors.contained import Failed, contained
from actors.environment import Environment
from actors.jobs.working_set import JobWakeUp
from cormorant.rules.errors import CormorantError
from cormorant.rules.search.outcomes import SourceError
from cormorant.rules.secrets import keys_in, shortened
from cormorant.rules.watch.feed_statistics import CheckStatistics
from cormorant.rules.watch.feeds import CheckStatus, DueFeed, FeedCheck, FetchedFeed, NextCheck, after_check, events_of
from storage.watch import feed_claims, feed_items
from storage.watch.choice import CandidateChoice
from storage.watch.feed_claims import CheckedElsewhere

__all__ = ["PUT_OFF_S", "CheckNotRecorded", "FeedChecker"]

T = TypeVar("T")

ERROR_LENGTH_MAX = 500
PUT_OFF_S = 3_600.0
"""So long one is left alone of which nothing can be written."""

_EXPECTED = (SourceError, trio.TooSlowError, CheckedElsewhere)
_NOTHING = FetchedFeed(is_unchanged=True)


class CheckNotRecorded(CormorantError):
    """Nothing of how a check went can be written, not even when the feed is due again."""

    def __init__(self, number: int, why: str) -> None:
        super().__init__(f"how the check of subscription {number} went cannot be written; {why}")


@define(eq=False, kw_only=True)
class FeedChecker:
    """Checks one feed after the other, or several at once."""

    environment: Environment = field(kw_only=False)
    chooser: CandidateChoice
    statistics: CheckStatistics
    producer: JobWakeUp
    active: dict[int, datetime] = field(factory=dict)
    """Those that are being asked, and since when."""

    async def check(self, subscription: DueFeed, *, current: Callable[[], DueFeed]) -> FeedCheck:
        """Check one that is claimed; `current` is how it is claimed at the end. Raises `CheckedElsewhere`, as that does."""
        began, started_at = trio.current_time(), self.environment.now()
        self.active[subscription.id] = started_at
        try:
            page, error = await self._ask(subscription)
        finally:
            self.active.pop(subscription.id, None)
        check = FeedCheck(
            subscription_id=subscription.id,
            started_at=started_at,
            status=CheckStatus.FAILED if error else CheckStatus.SUCCESS,
            items_found=len(page.items),
            duration_ms=round((trio.current_time() - began) * 1_000),
            error=error,
        )
        following, imported = None, 0
        while following is None:  # many new items bit by bit, so that nobody else waits long for the database
            subscription = current()
            check, more, following = await self._keep(subscription, page, check)
            imported += more
        self._emit_check(subscription, page, check, imported, following)
        return check

    async def _ask(self, subscription: DueFeed) -> tuple[FetchedFeed, str | None]:
        try:
            page = await self._contained(subscription, partial(self._fetch, subscription))
        except trio.TooSlowError:
            return _NOTHING, f"no answer in full within {self.environment.settings.subscriptions.check_timeout_s:g} s"
        except SourceError as trouble:
            error = shortened(
                str(trouble) or type(trouble).__name__, keys_in(subscription.url), length_max=ERROR_LENGTH_MAX
            )
            return evolve(_NOTHING, wait_s=trouble.retry_after_s or 0.0), error
        return (_NOTHING, page.reason) if isinstance(page, Failed) else (page, None)

    async def _contained(self, subscription: DueFeed, step: Callable[[], Awaitable[T]]) -> T | Failed:
        return await contained(
            step,
            kind="feed",
            item=subscription.name,
            emit=self.environment.emit,
            expected=_EXPECTED,
            secrets=keys_in(subscription.url),
        )

    async def _fetch(self, subscription: DueFeed) -> FetchedFeed:
        with trio.fail_after(self.environment.settings.subscriptions.check_timeout_s):
            return await self.environment.clients.feed(subscription)

    async def _keep(
        self, mine: DueFeed, page: FetchedFeed, check: FeedCheck
    ) -> tuple[FeedCheck, int, NextCheck | None]:
        async def written(page: FetchedFeed, check: FeedCheck) -> tuple[FeedCheck, int, NextCheck | None]:
            return await self.environment.database.run(
                feed_items.record_check,
                mine,
                page,
                check,
                chooser=self.chooser,
                now=self.environment.now(),
            )

        kept = await self._contained(mine, partial(written, page, check))
        if not isinstance(kept, Failed):
            return kept
        failed = evolve(check, status=CheckStatus.FAILED, error=kept.reason)
        # The page cannot be stored. The failure can be, or at least the time of the next check.
        for lesser in (partial(written, _NOTHING, failed), partial(self._postpone, mine, failed)):
            noted = await self._contained(mine, lesser)
            if not isinstance(noted, Failed):
                return noted
        later = self.environment.now() + timedelta(seconds=PUT_OFF_S)
        self._emit_check(
            mine, _NOTHING, failed, 0, NextCheck(next_check_at=later, effective_s=None, failures=mine.failures + 1)
        )
        raise CheckNotRecorded(mine.id, failed.error or "")

    async def _postpone(self, mine: DueFeed, check: FeedCheck) -> tuple[FeedCheck, int, NextCheck | None]:
        following = after_check(mine, error=check.error, now=self.environment.now())
        if not await self.environment.database.run(feed_claims.postpone, mine, following, error=check.error or ""):
            raise CheckedElsewhere(mine.id)
        return check, 0, following

    def _emit_check(
        self, subscription: DueFeed, page: FetchedFeed, check: FeedCheck, imported: int, following: NextCheck
    ) -> None:
        self.statistics.record(
            at=check.started_at,
            success=check.status is CheckStatus.SUCCESS,
            duration_ms=check.duration_ms,
            items_found=check.items_found,
            new_items=check.new_items,
        )
        for event in events_of(subscription, page, check, imported, following):
            self.environment.emit(event)
        if imported:
            self.producer.set()
