"""What does the end of a check write? What was new and what it is wanted for together, and when the next one is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from attrs import evolve, frozen
from sqlalchemy import Connection

from cormorant.rules.watch.feeds import (
    IMPORTED_TOGETHER,
    CheckStatus,
    DueFeed,
    FeedCheck,
    FeedEntryItem,
    FetchedFeed,
    NextCheck,
    after_check,
    is_wanted,
)
from storage.watch import feed_claims, feed_items
from storage.watch.feed_claims import CheckedElsewhere

ADAPTED_BY = 10
"""So many of the last checks say how busy a feed is."""


@frozen(kw_only=True)
class RecordCheck:
    """A statement: what a check brought. A crash in the middle of many items leaves the rest new for the next check."""

    take: Callable[..., int]
    """Another: items of a subscription are wanted; how many of them are new."""

    def __call__(
        self,
        connection: Connection,
        subscription: DueFeed,
        page: FetchedFeed,
        check: FeedCheck,
        *,
        until: datetime,
        now: datetime,
    ) -> tuple[FeedCheck, int, NextCheck | None]:
        """The check with what was new, how many of that are wanted, and what follows; None: there is more to be brought in.

        Raises `CheckedElsewhere`, which undoes it: who has it in hand now finds the same as new.
        """
        is_first = not subscription.has_succeeded and not subscription.takes_first
        is_imported = subscription.auto_import and not is_first
        limit = IMPORTED_TOGETHER if is_imported else None
        new: Sequence[FeedEntryItem] = ()
        if check.status is CheckStatus.SUCCESS and not page.is_unchanged:
            is_whole = page.left_out == 0
            new = feed_items.take_in(connection, subscription.id, page.items, now=now, is_whole=is_whole, limit=limit)
        check = check if is_first else evolve(check, new_items=check.new_items + len(new))
        wanted = [item for item in new if is_wanted(item, subscription)] if is_imported else []
        if limit is not None and len(new) == limit:
            if not feed_claims.renew(connection, [subscription], until=until):
                raise CheckedElsewhere(subscription.id)
            return check, self.take(connection, subscription, wanted, now=now), None
        following = self._end(connection, subscription, page, check, is_first=is_first, now=now)
        return check, self.take(connection, subscription, wanted, now=now) if wanted else 0, following

    def _end(
        self,
        connection: Connection,
        subscription: DueFeed,
        page: FetchedFeed,
        check: FeedCheck,
        *,
        is_first: bool,
        now: datetime,
    ) -> NextCheck:
        recent: Sequence[int] = ()
        if subscription.is_adaptive and not is_first:  # what was there before says nothing of how busy it is
            before = feed_items.recent_new(connection, subscription.id, limit=ADAPTED_BY - 1)
            recent = [check.new_items, *before]
        following = after_check(subscription, error=check.error, recent_new=recent, now=now, wait_s=page.wait_s)
        is_ours = feed_claims.end_check(
            connection,
            subscription,
            following,
            check=check,
            etag=subscription.etag if page.is_unchanged else page.etag,
            last_modified=subscription.last_modified if page.is_unchanged else page.last_modified,
            url=page.moved_to,
        )
        if not is_ours:
            raise CheckedElsewhere(subscription.id)
        return following
