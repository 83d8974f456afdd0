"""What does the web need of subscriptions? Only this; the composition hands it in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Protocol

from cormorant.rules.schedules import Schedule
from cormorant.rules.watch.feeds import Check, Subscription

__all__ = ["SubscriptionsPort"]


class SubscriptionsPort(Protocol):
    """Feeds that are looked at again and again."""

    concurrent_limit: int
    active: Callable[[], int]
    """How many are being checked."""

    async def subscribe(self, name: str, url: str, schedule: Schedule, **how: Any) -> Subscription:
        """Subscribe to a feed."""
        ...

    async def unsubscribe(self, wanted: str) -> Subscription:
        """Subscribe no more."""
        ...

    async def page(self, *, after_id: int = 0, limit: int = 100) -> list[Subscription]:
        """Some of them, in the order they came."""
        ...

    async def find_any(self, wanted: str) -> Subscription:
        """One of them by name or number."""
        ...

    async def checks(self, number: int, *, limit: int = 20) -> list[Check]:
        """How the last checks went."""
        ...

    async def last_checks(self, numbers: Sequence[int]) -> dict[int, Check]:
        """How the last check of each of these went."""
        ...

    async def pause(self, name: str) -> None:
        """Leave one alone."""
        ...

    async def resume(self, name: str) -> None:
        """Go on with one."""
        ...

    async def reschedule(self, number: int, at: datetime | None = None) -> None:
        """Check one at this time."""
        ...

    async def reschedule_anew(self, number: int) -> Subscription:
        """Give one its next time anew."""
        ...

    async def check(self, wanted: str | int) -> Check:
        """Check one now and wait for what comes of it."""
        ...

    def statistics_now(self) -> dict[str, float]:
        """What checks did in the last hour."""
        ...
