"""What comes of one check of a feed? Asks it, keeps what is new together with how it went, and tells that."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

import trio
from attrs import define, evolve, field
from sqlalchemy import Connection

from cormorant.rules.check_statistics import CheckStatistics
from cormorant.rules.errors import CommitUnknown, CormorantError, StorageUnavailable
from cormorant.rules.job_errors import describe_error
from cormorant.rules.ports import Clock, Emit
from cormorant.rules.redaction import keys_in, told
from cormorant.rules.source_errors import SourceError
from cormorant.rules.subscription_events import SubscriptionChecked, SubscriptionFailed, SubscriptionPaused
from cormorant.rules.subscriptions import Check, CheckStatus, Due, FeedPage, Next, after_check, cadence_of, is_wanted
from storage import items, subscription_checks, subscription_claims
from storage.database import Database
from storage.subscription_claims import CheckedElsewhere

__all__ = ["FeedChecker"]

T = TypeVar("T")

ADAPTED_BY = 10
"""So many of the last checks say how busy a feed is."""
MISTAKE_LENGTH_MAX = 300

_FORESEEN = (SourceError, trio.TooSlowError, StorageUnavailable, CommitUnknown, CheckedElsewhere)
_NOTHING = FeedPage(is_unchanged=True)


class CheckMistake(CormorantError):
    """Something went wrong in a check that nobody foresaw."""


@define(eq=False, kw_only=True)
class FeedChecker:
    """Checks one feed after the other, or several at once."""

    database: Database
    fetch: Callable[[Due], Awaitable[FeedPage]]
    """Raises `SourceError`."""
    take: Callable[..., int]
    """A statement: items of a subscription are wanted; how many of them are new."""
    timeout_s: float
    statistics: CheckStatistics
    ring: Callable[[], None]
    clock: Clock
    emit: Emit
    active: set[int] = field(init=False, factory=set)

    async def check(self, subscription: Due, *, current: Callable[[], Due]) -> Check:
        """Check one that is in hand; `current` is how it is held at the end. Raises `CheckedElsewhere`."""
        began, started_at = trio.current_time(), self.clock.now()
        self.active.add(subscription.id)
        try:
            page, error = await self._ask(subscription)
        finally:
            self.active.discard(subscription.id)
        check = Check(
            subscription_id=subscription.id,
            started_at=started_at,
            status=CheckStatus.FAILED if error else CheckStatus.SUCCESS,
            items_found=len(page.items),
            duration_ms=round((trio.current_time() - began) * 1_000),
            error=error,
        )
        mine = current()
        done, imported, following = await self._keep(mine, page, check)
        self._tell(mine, done, imported, following, is_unchanged=page.is_unchanged)
        return done

    async def _ask(self, subscription: Due) -> tuple[FeedPage, str | None]:
        try:
            return await contained(partial(self._fetch, subscription), url=subscription.url), None
        except trio.TooSlowError:
            return _NOTHING, f"no answer in full within {self.timeout_s:g} s"
        except (SourceError, CheckMistake) as trouble:
            return _NOTHING, str(trouble) or type(trouble).__name__

    async def _fetch(self, subscription: Due) -> FeedPage:
        with trio.fail_after(self.timeout_s):
            return await self.fetch(subscription)

    async def _keep(self, mine: Due, page: FeedPage, check: Check) -> tuple[Check, int, Next]:
        now = self.clock.now()
        try:
            return await contained(partial(self.database.run, self._write, mine, page, check, now=now), url=mine.url)
        except CheckMistake as mistake:
            # What the feed brought cannot be kept. That it could not can be.
            failed = evolve(check, status=CheckStatus.FAILED, error=str(mistake))
            return await self.database.run(self._write, mine, _NOTHING, failed, now=now)

    def _write(
        self, connection: Connection, subscription: Due, page: FeedPage, check: Check, *, now: datetime
    ) -> tuple[Check, int, Next]:
        """What was new and what it is wanted for, together: otherwise a crash in between would lose it.

        Raises `CheckedElsewhere`, which undoes it: who has it in hand now finds the same as new.
        """
        is_first = not subscription.has_succeeded and not subscription.takes_first
        is_ok, is_whole = check.status is CheckStatus.SUCCESS, page.left_out == 0
        has_items = is_ok and not page.is_unchanged
        new = items.take_in(connection, subscription.id, page.items, now=now, is_whole=is_whole) if has_items else []
        done = evolve(check, new_items=0 if is_first else len(new))
        recent: Sequence[int] = ()
        if subscription.is_adaptive:
            recent = [
                done.new_items,
                *subscription_checks.recent_new(connection, subscription.id, limit=ADAPTED_BY - 1),
            ]
        following = after_check(subscription, error=check.error, recent_new=recent, now=now)
        is_ours = subscription_claims.end_check(
            connection,
            subscription,
            following,
            check=done,
            etag=subscription.etag if page.is_unchanged else page.etag,
            last_modified=subscription.last_modified if page.is_unchanged else page.last_modified,
            url=page.moved_to,
        )
        if not is_ours:
            raise CheckedElsewhere(subscription.id)
        if is_first or not subscription.auto_import:
            return done, 0, following
        wanted = [item for item in new if is_wanted(item, subscription)]
        return done, self.take(connection, subscription, wanted, now=now), following

    def _tell(self, subscription: Due, check: Check, imported: int, following: Next, *, is_unchanged: bool) -> None:
        is_ok = check.status is CheckStatus.SUCCESS
        self.statistics.record(
            at=check.started_at,
            success=is_ok,
            duration_ms=check.duration_ms,
            items_found=check.items_found,
            new_items=check.new_items,
        )
        facts: dict[str, Any] = {
            "subscription": subscription.name,
            "duration_ms": check.duration_ms,
            "next_check_at": following.next_check_at,
            "because": cadence_of(subscription, following, now=check.started_at),
        }
        if is_ok:
            facts |= {"items_found": check.items_found, "new_items": check.new_items, "imported": imported}
            self.emit(SubscriptionChecked(unchanged=is_unchanged, **facts))
        else:
            self.emit(SubscriptionFailed(failures=following.failures, error=check.error or "", **facts))
        if following.paused_because is not None:
            self.emit(SubscriptionPaused(subscription=subscription.name, why=following.paused_because))
        if imported:
            self.ring()


async def contained(step: Callable[[], Awaitable[T]], *, url: str) -> T:
    """What a step of a check brings. What nobody foresaw is a `CheckMistake`: it ends this check, and not all others."""
    try:
        return await step()
    except _FORESEEN:
        raise
    except Exception as mistake:
        said = told(describe_error(mistake), keys_in(url), length_max=MISTAKE_LENGTH_MAX)
        raise CheckMistake(f"a mistake in the program, please report it: {said}") from mistake
