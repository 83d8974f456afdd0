"""Feeds: add, check and reschedule them, spread their checks, and what they did."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, ClassVar

from attrs import define, evolve

from actors.actor import Address, Recheck
from actors.watch.feed_ticker import OVERDUE, CheckNow
from cormorant.rules.schedules import (
    HostPacing,
    Schedule,
    ScheduledWatch,
    overdue_delay_s,
    spread_over,
)
from cormorant.rules.search.requests import BadRequest
from cormorant.rules.secrets import shortened
from cormorant.rules.settings.watch import FeedSettings, checked, feed_conflicts, feed_of, refuse
from cormorant.rules.watch.feed_statistics import CheckStatistics
from cormorant.rules.watch.feeds import CheckStatus, FeedCheck, Subscription, check_names, host_of
from cormorant.services.watch.views import SubscriptionOut, subscription_out
from cormorant.services.watch.watches import WatchService
from storage import pauses
from storage.watch import feed_items, feeds, watches
from storage.watch.feeds import FEED
from storage.watch.watches import WatchKind

CHECK_S = 120.0
"""How long a check by hand is waited for."""
PAGE = 500
SPREAD_S = 10.0
SPREAD_S_MAX = 3_600.0
"""Many that are subscribed to together are checked at least so far apart, all within an hour: otherwise they stay together."""
_OWN_PARTS = frozenset({"name", "url", "folder"})
"""What each of many has of its own; all else they share."""


@define(eq=False, kw_only=True)
class Feeds(WatchService[Subscription]):
    """The feeds of a service. One is named by its number or its name."""

    ticker: Address[CheckNow | Recheck]
    statistics: CheckStatistics
    running: Mapping[int, datetime]
    """The feeds that are being checked here, and since when."""
    targets: Collection[str]
    kind: ClassVar[WatchKind[Any]] = FEED

    @property
    def configured(self) -> Mapping[str, FeedSettings]:
        """[feeds]."""
        return self.environment.settings.feeds

    def make(self, name: str, options: FeedSettings, *, now: datetime) -> Subscription:
        """The feed that options mean."""
        return feed_of(name, options, now=now)

    async def view(self, watch: Subscription) -> SubscriptionOut:
        """A feed as it is shown."""
        return subscription_out(watch)

    async def add(self, name: str, options: FeedSettings, *, folder: Sequence[str] = ()) -> Subscription:
        """Subscribe to a feed. It is checked at once. Raises `BadRequest` or `AlreadyExists`."""
        [made] = await self._add([self._checked(name, options, folder, at=self.environment.now())])
        return made

    async def add_all(
        self, found: Sequence[tuple[str, str, tuple[str, ...]]], options: FeedSettings
    ) -> list[Subscription]:
        """Subscribe to many by name, address and folder, all or none. Their checks are spread out."""
        window_s = min(SPREAD_S * len(found), SPREAD_S_MAX, options.every_s or SPREAD_S_MAX)
        times = spread_over(range(len(found)), start=self.environment.now(), window_s=window_s)
        wanted = []
        for place, (name, url, folder) in enumerate(found):
            try:
                wanted.append(self._checked(name, evolve(options, url=url), folder, at=times[place]))
            except BadRequest as problem:
                if problem.part not in _OWN_PARTS:
                    raise
                raise BadRequest(f'feed "{shortened(name, length_max=60)}"', str(problem)) from None
        return await self._add(wanted)

    def _checked(self, name: str, options: FeedSettings, folder: Sequence[str], *, at: datetime) -> Subscription:
        options = checked(options)
        refuse(feed_conflicts("", options, self.targets))
        made = self.make(name, options, now=self.environment.now())
        wanted = evolve(made, folder=tuple(folder), next_attempt_at=at)
        check_names(wanted, configured=self.configured)
        return wanted

    async def _add(self, wanted: Sequence[Subscription]) -> list[Subscription]:
        made: list[Subscription] = await self.environment.database.run(watches.add_all, self.kind, wanted)
        return made

    async def names(self) -> list[tuple[str, str]]:
        """The names and addresses of all; several may have one address."""
        return await self.environment.database.read(feeds.names)

    async def checks(self, number: int, *, limit: int = 20) -> list[FeedCheck]:
        """How the last checks went, newest first; one that runs here has only started."""
        kept = await self.environment.database.read(feed_items.checks, number, limit=limit)
        since = self.running.get(number)
        now = [] if since is None else [FeedCheck(subscription_id=number, started_at=since, status=CheckStatus.STARTED)]
        return [*now, *kept][:limit]

    async def last_checks(self, numbers: Sequence[int]) -> dict[int, FeedCheck]:
        """How the last check of each of these went."""
        return await self.environment.database.read(feed_items.last_checks, numbers)

    async def check_and_wait(self, wanted: str) -> FeedCheck:
        """Check one now, also while it is paused, and wait for what comes of it; a check that runs is joined."""
        found = await self.find(wanted)
        return await self.ticker.ask(partial(CheckNow, number=found.id), timeout_s=CHECK_S)

    async def reschedule(self, number: int, at: datetime | None = None) -> None:
        """Check one at this time; without a time now."""
        await self.environment.database.run(feeds.reschedule, number, at or self.environment.now())

    async def reschedule_anew(self, number: int) -> Subscription:
        """Give one its next time anew: from its last check on; one that would be late gets its share of the next minute."""
        return await self.environment.database.run(feeds.reschedule_anew, number, now=self.environment.now())

    async def spread(self, *, window_s: float) -> int:
        """Distribute all checks evenly over a window from now on."""
        numbers: list[int] = []
        while found := await self.page(after_id=numbers[-1] if numbers else 0, limit=PAGE):
            numbers += [each.id for each in found]
        times = spread_over(numbers, start=self.environment.now(), window_s=window_s)
        for first in range(0, len(numbers), PAGE):
            page = {number: times[number] for number in numbers[first : first + PAGE]}
            await self.environment.database.run(feeds.reschedule_all, page)
        return len(numbers)

    async def planned(self, *, until: datetime, most: int) -> list[ScheduledWatch]:
        """Those that are due by then, with the spread of what is overdue and the turns that their hosts take."""
        found = await self.environment.database.read(feeds.due_until, until=until, limit=most)
        now, apart_s = self.environment.now(), self.environment.settings.subscriptions.domain_request_delay_s
        return [
            ScheduledWatch(
                kind="subscription",
                name=each.name,
                first=_first_run(each, now),
                schedule=_effective(each),
                turns=HostPacing(name=host_of(each.url), apart_s=apart_s),
            )
            for each in found
        ]

    async def status(self) -> dict[str, Any]:
        """The scheduler's status by the names of old. One that is paused is pending: it has no next time."""
        database = self.environment.database
        total, running = await database.read(feeds.count)
        next_run = await database.read(feeds.next_due)
        return {
            "running": not await database.read(pauses.is_all_paused),
            "total_jobs": total,
            "active_checks": len(self.running),
            "pending_jobs": total - running,
            "next_run": None if next_run is None else next_run.isoformat(),
            "concurrent_limit": self.environment.settings.subscriptions.max_concurrent_checks,
        }

    def statistics_now(self) -> dict[str, float]:
        """What checks did in the last hour."""
        return self.statistics.summary(now=self.environment.now())


def _effective(each: Subscription) -> Schedule:
    return each.schedule if each.effective_s is None else evolve(each.schedule, every_s=each.effective_s)


def _first_run(each: Subscription, now: datetime) -> datetime:
    """As the ticker does it: what is overdue for long waits its share of a minute."""
    if each.last_checked is not None and now - each.next_attempt_at > OVERDUE:
        return now + timedelta(seconds=overdue_delay_s(each.id))
    return max(now, each.next_attempt_at)
