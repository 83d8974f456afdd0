"""Operations on subscriptions: subscribe, list, pause, resume, reschedule, check now."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import attrs
from attrs import define, evolve, field

from actors.actor import Address
from actors.environment import Environment
from actors.periodic import WakeUp
from actors.watch.feed_ticker import LOOK_S, CheckNow
from cormorant.rules.schedules import (
    HostPacing,
    Schedule,
    ScheduledWatch,
    overdue_delay_s,
    plan_of,
    spread_over,
)
from cormorant.rules.search.requests import BadRequest
from cormorant.rules.secrets import shortened
from cormorant.rules.settings.watch import other_feed_values, schedule_of
from cormorant.rules.watch.feed_statistics import CheckStatistics
from cormorant.rules.watch.feeds import CheckStatus, FeedCheck, Subscription, check_order, host_of
from storage import pauses
from storage.watch import feed_items, watches
from storage.watch import feeds as subscriptions
from storage.watch.feeds import FEED, remove_added, reschedule_anew

CHECK_S = 120.0
"""How long a check by hand is waited for."""
PAGE = 500
SPREAD_S = 10.0
SPREAD_S_MAX = 3_600.0
"""Many that are subscribed to together are checked at least so far apart, all within an hour: otherwise they stay together."""
_OWN_PARTS = frozenset({"name", "url", "folder"})
"""What each of many has of its own; all else they share."""


@define(eq=False, kw_only=True)
class Feeds:
    """The subscriptions of a service."""

    environment: Environment = field(kw_only=False)
    ticker: Address[CheckNow]
    statistics: CheckStatistics
    running: Mapping[int, datetime]
    """The feeds that are being checked here, and since when."""
    wake_up: WakeUp
    """Wakes the ticker of this process."""
    targets: Collection[str] | None = None
    """Those that finds can be handed to; None: whoever is named is believed."""

    async def subscribe(self, name: str, url: str, schedule: Schedule, **how: Any) -> Subscription:
        """Subscribe to a feed; `how` as `Subscription` has it. It is checked at once. Raises `BadRequest`."""
        now = self.environment.now()
        wanted = Subscription(name=name, url=url, schedule=schedule, next_check_at=now, added_at=now, **how)
        check_order(wanted, targets=self.targets, configured=self.environment.settings.feeds.keys())
        made = await self.environment.database.run(subscriptions.add, wanted)
        self.wake_up.set()
        return made

    async def subscribe_all(
        self, feeds: Sequence[tuple[str, str, tuple[str, ...]]], schedule: Schedule, **how: Any
    ) -> list[Subscription]:
        """Subscribe to many by name, address and folder, all or none. Their checks are spread out."""
        now = self.environment.now()
        window_s = min(SPREAD_S * len(feeds), SPREAD_S_MAX, schedule.every_s or SPREAD_S_MAX)
        times = spread_over(range(len(feeds)), start=now, window_s=window_s)
        wanted = [
            Subscription(
                name=name, url=url, folder=folder, schedule=schedule, next_check_at=times[place], added_at=now, **how
            )
            for place, (name, url, folder) in enumerate(feeds)
        ]
        for each in wanted:
            try:
                check_order(each, targets=self.targets, configured=self.environment.settings.feeds.keys())
            except BadRequest as problem:
                if problem.part not in _OWN_PARTS:
                    raise
                raise BadRequest(f'feed "{shortened(each.name, length_max=60)}"', str(problem)) from None
        made = await self.environment.database.run(subscriptions.add_all, wanted)
        self.wake_up.set()
        return made

    async def unsubscribe(self, wanted: str) -> Subscription:
        """Subscribe no more. One of the settings file stays until it is taken out there."""
        return await self.environment.database.run(remove_added, wanted)

    async def page(self, *, after_id: int = 0, limit: int = 100) -> list[Subscription]:
        """Some of them, in the order they came."""
        return await self.environment.database.read(watches.page, FEED, after_id=after_id, limit=limit)

    async def find(self, wanted: str | int) -> Subscription:
        """One of them, or `NotFound`."""
        return await self.environment.database.read(subscriptions.find, wanted)

    async def find_any(self, wanted: str) -> Subscription:
        """One of them by what people write: its name, or its number."""
        return await self.environment.database.read(subscriptions.find_any, wanted)

    async def names(self) -> list[tuple[str, str]]:
        """The names and addresses of all; several may have one address."""
        return await self.environment.database.read(subscriptions.names)

    async def checks(self, number: int, *, limit: int = 20) -> list[FeedCheck]:
        """How the last checks went, newest first; one that runs here has only started."""
        kept = await self.environment.database.read(feed_items.checks, number, limit=limit)
        since = self.running.get(number)
        now = [] if since is None else [FeedCheck(subscription_id=number, started_at=since, status=CheckStatus.STARTED)]
        return [*now, *kept][:limit]

    async def last_checks(self, numbers: Sequence[int]) -> dict[int, FeedCheck]:
        """How the last check of each of these went."""
        return await self.environment.database.read(feed_items.last_checks, numbers)

    async def pause(self, name: str, *, why: str = "paused by hand") -> None:
        """Leave one alone."""
        await self.environment.database.run(subscriptions.set_paused, name, why=why, now=self.environment.now())

    async def resume(self, name: str) -> None:
        """Go on with one: failures and effective interval begin anew."""
        await self.environment.database.run(subscriptions.set_paused, name, why=None, now=self.environment.now())
        self.wake_up.set()

    async def reschedule(self, number: int, at: datetime | None = None) -> None:
        """Check one at this time; without a time now."""
        await self.environment.database.run(subscriptions.reschedule, number, at or self.environment.now())
        self.wake_up.set()

    async def reschedule_anew(self, number: int) -> Subscription:
        """Give one its next time anew: from its last check on; one that would be late gets its share of the next minute."""
        anew = await self.environment.database.run(reschedule_anew, number, now=self.environment.now())
        self.wake_up.set()
        return anew

    async def check(self, wanted: str | int) -> FeedCheck:
        """Check one now and wait for what comes of it; a check that runs is joined."""
        number = (await self.find(wanted)).id
        return await self.ticker.ask(partial(CheckNow, number=number), timeout_s=CHECK_S)

    async def spread(self, *, window_s: float) -> int:
        """Distribute all checks evenly over a window from now on."""
        numbers: list[int] = []
        while found := await self.page(after_id=numbers[-1] if numbers else 0, limit=PAGE):
            numbers += [each.id for each in found]
        times = spread_over(numbers, start=self.environment.now(), window_s=window_s)
        for first in range(0, len(numbers), PAGE):
            page = {number: times[number] for number in numbers[first : first + PAGE]}
            await self.environment.database.run(subscriptions.reschedule_all, page)
        self.wake_up.set()
        return len(numbers)

    async def planned(self, *, until: datetime, most: int) -> list[ScheduledWatch]:
        """Those that are due by then, with the spread of what is overdue and the turns that their hosts take."""
        found = await self.environment.database.read(subscriptions.due_until, until=until, limit=most)
        now = self.environment.now()
        return [
            ScheduledWatch(
                kind="subscription",
                name=each.name,
                first=_first_run(each, now),
                schedule=_effective(each),
                turns=HostPacing(
                    name=host_of(each.url), apart_s=self.environment.settings.subscriptions.domain_request_delay_s
                ),
            )
            for each in found
        ]

    async def upcoming(self, *, hours: float = 24.0, most: int = 1_000) -> list[tuple[datetime, str]]:
        """What is checked when, as far as it is known now."""
        until = self.environment.now() + timedelta(hours=hours)
        plan = plan_of(await self.planned(until=until, most=most + 1), until=until, most=most)
        return [(run.at, run.name) for run in plan.runs]

    async def status(self) -> dict[str, Any]:
        """The scheduler's status by the names of old. One that is paused is pending: it has no next time."""
        is_paused = await self.environment.database.read(pauses.is_all_paused)
        total, running = await self.environment.database.read(subscriptions.count)
        next_run = await self.environment.database.read(subscriptions.next_due)
        return {
            "running": not is_paused,
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
    late_s = (now - each.next_check_at).total_seconds()
    if each.last_checked is not None and late_s > 2 * LOOK_S:
        return now + timedelta(seconds=overdue_delay_s(each.id))
    return max(now, each.next_check_at)


def configured_feeds(environment: Environment) -> list[Subscription]:
    """The feeds of the settings file."""
    now = environment.now()
    return [
        Subscription(
            name=name,
            url=said.url,
            schedule=schedule_of(said),
            is_adaptive=said.adaptive,
            auto_import=said.auto_import,
            takes_first=said.first_check == "take",
            accept=said.accept,
            reject=said.reject,
            targets=said.hand_to,
            next_check_at=now,
            added_at=now,
            **other_feed_values(attrs.asdict(said, recurse=False)),
        )
        for name, said in sorted(environment.settings.feeds.items())
    ]
