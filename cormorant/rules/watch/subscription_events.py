"""What happens to subscriptions."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, ClassVar

from attrs import frozen

from cormorant.rules.events import Event
from cormorant.rules.watch.feeds import CheckStatus, DueFeed, FeedCheck, FetchedFeed, NextCheck, cadence_of


@frozen(kw_only=True)
class SubscriptionChecked(Event):
    """A feed was checked. `unchanged`: it said that nothing is new; `imported` of the new items are wanted.

    `left_out` more stand in it than are taken. The next check is at `next_check_at`, `because` of its schedule or what became of it.
    """

    name: ClassVar[str] = "subscription.checked"

    subscription: str
    unchanged: bool
    items_found: int
    new_items: int
    imported: int
    duration_ms: int
    next_check_at: datetime
    because: str
    left_out: int = 0


@frozen(kw_only=True)
class SubscriptionFailed(Event):
    """A check failed. From the third in a row on it is checked less often."""

    name: ClassVar[str] = "subscription.failed"
    level: ClassVar[str] = "warning"

    subscription: str
    failures: int
    error: str
    duration_ms: int
    next_check_at: datetime
    because: str


@frozen(kw_only=True)
class SubscriptionPaused(Event):
    """So many checks failed in a row that it is left alone until a person resumes it."""

    name: ClassVar[str] = "subscription.paused"
    level: ClassVar[str] = "error"

    subscription: str
    why: str


@frozen(kw_only=True)
class SubscriptionMisfired(Event):
    """A check is made so late that it counts as missed. It is made once, whatever was missed."""

    name: ClassVar[str] = "subscription.misfired"

    subscription: str
    late_s: float


@frozen(kw_only=True)
class SubscriptionsMaintained(Event):
    """The hourly look: how many there are, and how many records and items of old are forgotten."""

    name: ClassVar[str] = "subscription.maintained"
    level: ClassVar[str] = "debug"

    scheduled_jobs: int
    active_checks: int
    pruned: int
    items_pruned: int


def events_of(
    subscription: DueFeed, page: FetchedFeed, check: FeedCheck, imported: int, following: NextCheck
) -> Iterator[Event]:
    """What the end of a check is told as."""
    facts: dict[str, Any] = {
        "subscription": subscription.name,
        "duration_ms": check.duration_ms,
        "next_check_at": following.next_check_at,
        "because": cadence_of(subscription, following),
    }
    if check.status is CheckStatus.SUCCESS:
        facts |= {"items_found": check.items_found, "new_items": check.new_items, "imported": imported}
        yield SubscriptionChecked(unchanged=page.is_unchanged, left_out=page.left_out, **facts)
    else:
        yield SubscriptionFailed(failures=following.failures, error=check.error or "", **facts)
    if following.paused_because is not None:
        yield SubscriptionPaused(subscription=subscription.name, why=following.paused_because)
