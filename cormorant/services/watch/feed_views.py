"""Views of feeds, without the keys that their addresses may hold."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import attrs
from attrs import field, frozen

from cormorant.rules.secrets import keys_in, redact_link, shortened
from cormorant.rules.watch.feeds import FeedCheck, Subscription

__all__ = [
    "CheckOut",
    "RescheduleBody",
    "SubscriptionBody",
    "SubscriptionOut",
    "SubscriptionShownOut",
    "SubscriptionsOut",
    "check_out",
    "subscription_out",
]

_ERROR_MAX = 500


@frozen(kw_only=True)
class SubscriptionBody:
    """A feed to be checked, every so many seconds or by `cron` in a `zone`; every 6 hours if neither is said.

    `first_check` says what becomes of all that is there already: skip, or take. `folder`: where an export puts it, from the
    outside in.
    """

    name: str
    url: str = field(repr=False)
    every_s: float | None = None
    cron: str = ""
    zone: str = ""
    adaptive: bool = False
    auto_import: bool = True
    first_check: str = "skip"
    accept: list[str] = field(factory=list)
    reject: list[str] = field(factory=list)
    hand_to: list[str] = field(factory=list)
    folder: list[str] = field(factory=list)


@frozen(kw_only=True)
class RescheduleBody:
    """When it is checked next; null: from its last check on, as its schedule says."""

    at: datetime | None = None


@frozen(kw_only=True)
class SubscriptionOut:
    """A feed and when it is checked. `effective_s`: how often it is really checked, after failures or by its activity."""

    id: int
    name: str
    url: str
    every_s: float | None
    cron: str | None
    zone: str
    effective_s: float | None
    adaptive: bool
    auto_import: bool
    first_check: str
    accept: list[str]
    reject: list[str]
    hand_to: list[str]
    folder: list[str]
    origin: str
    is_paused: bool
    paused_because: str | None
    next_check_at: datetime
    last_checked_at: datetime | None
    last_success_at: datetime | None
    failures: int
    last_error: str | None
    added_at: datetime


@frozen(kw_only=True)
class CheckOut:
    """How a check went. `new_items`: those that were not there before."""

    started_at: datetime
    status: str
    items_found: int
    new_items: int
    duration_ms: int
    error: str | None


@frozen(kw_only=True)
class SubscriptionsOut:
    """A page of subscriptions in the order they came, and the last check of each by its id.

    `next_after` gets the next page; null: there is none.
    """

    subscriptions: list[SubscriptionOut]
    last_checks: dict[str, CheckOut]
    next_after: int | None


@frozen(kw_only=True)
class SubscriptionShownOut:
    """A subscription with its last checks, newest first."""

    subscription: SubscriptionOut
    checks: list[CheckOut]


def subscription_out(subscription: Subscription) -> SubscriptionOut:
    """One of them as it is shown."""
    schedule = subscription.schedule
    named: dict[str, Any] = {
        "url": redact_link(subscription.url),
        "every_s": schedule.every_s,
        "cron": schedule.cron,
        "zone": schedule.zone,
        "adaptive": subscription.is_adaptive,
        "first_check": "take" if subscription.takes_first else "skip",
        "hand_to": list(subscription.targets),
        "paused_because": _hidden(subscription, subscription.paused_because),
        "last_checked_at": subscription.last_checked,
        "last_success_at": subscription.last_success,
        "last_error": _hidden(subscription, subscription.last_error),
    }
    same = {
        name: _plain(getattr(subscription, name)) for name in attrs.fields_dict(SubscriptionOut) if name not in named
    }
    return SubscriptionOut(**named, **same)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def check_out(subscription: Subscription, check: FeedCheck) -> CheckOut:
    """A check as it is shown."""
    return CheckOut(
        started_at=check.started_at,
        status=check.status.value,
        items_found=check.items_found,
        new_items=check.new_items,
        duration_ms=check.duration_ms,
        error=_hidden(subscription, check.error),
    )


def _hidden(subscription: Subscription, text: str | None) -> str | None:
    return None if text is None else shortened(text, keys_in(subscription.url), length_max=_ERROR_MAX)
