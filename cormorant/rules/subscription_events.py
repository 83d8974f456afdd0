"""What happens to subscriptions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from attrs import frozen

from cormorant.rules.events import Event
from cormorant.rules.subscriptions import Check, CheckStatus, FeedPage, Next, Subscription


@frozen(kw_only=True)
class SubscriptionChecked(Event):
    """A feed was checked. `imported` of the new items are wanted; `left_out` more stand in it than are taken."""

    name: ClassVar[str] = "subscription.checked"

    subscription: str
    items_found: int
    new_items: int
    imported: int
    duration_ms: int
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
    """The hourly look: how many there are, and what is forgotten of old."""

    name: ClassVar[str] = "subscription.maintained"
    level: ClassVar[str] = "debug"

    scheduled_jobs: int
    active_checks: int
    pruned: int


def events_of(
    subscription: Subscription, page: FeedPage, check: Check, imported: int, following: Next
) -> Iterator[Event]:
    """What the end of a check is told as."""
    name = subscription.name
    if check.status is CheckStatus.SUCCESS:
        yield SubscriptionChecked(
            subscription=name,
            items_found=check.items_found,
            new_items=check.new_items,
            imported=imported,
            duration_ms=check.duration_ms,
            left_out=page.left_out,
        )
    else:
        error, failures = check.error or "", following.failures
        yield SubscriptionFailed(subscription=name, failures=failures, error=error, duration_ms=check.duration_ms)
    if following.paused_because is not None:
        yield SubscriptionPaused(subscription=name, why=following.paused_because)
