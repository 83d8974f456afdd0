"""What runs when in the next hours, over all watches and periodic actors."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import Any, TypeVar

import trio
from attrs import define, evolve, field, frozen

from actors.actor import Actor
from actors.environment import Environment
from cormorant.rules.schedules import HostPacing, Schedule, ScheduledWatch, SchedulePreview, plan_of
from cormorant.rules.watch.artists import Artist
from cormorant.rules.watch.prices import PriceWatch
from cormorant.rules.watch.watches import SavedSearch
from cormorant.services.watch.feeds import Feeds
from cormorant.services.watch.prices import Prices
from cormorant.services.watch.watches import Watches


@frozen(kw_only=True)
class ScheduleService:
    """Looks ahead."""

    environment: Environment = field(kw_only=False)
    subscriptions: Feeds
    watches: Watches
    prices: Prices

    async def preview(self, *, hours: float, most: int, now: datetime) -> SchedulePreview:
        """What runs from now on, soonest first."""
        until = now + timedelta(hours=hours)
        saved = await self.watches.saved()
        prices = [each.intake for each in await self.prices.all()]
        planned = [
            *await self.subscriptions.planned(until=until, most=most + 1),
            *(_planned("saved search", each, now, each.every_s) for each in saved if not each.is_paused),
            *(self._artist(each, now) for each in await self.watches.artists() if not each.is_paused),
            *(_planned("price", each, now, each.every_s) for each in prices if not each.idle_because),
        ]
        return plan_of([each for each in planned if each.first < until], until=until, most=most)

    def _artist(self, artist: Artist, now: datetime) -> ScheduledWatch:
        """A tick takes only so many in hand; the others wait for the next."""
        options = self.environment.settings.watchlist
        first, every_s = max(now, artist.retry_block_until or now), artist.every_s or options.every_s
        turns = HostPacing(name="watchlist", room=options.max_per_tick, apart_s=options.interval_s)
        return evolve(_planned("artist", artist, first, every_s), turns=turns)


def _planned(kind: str, watch: Artist | SavedSearch | PriceWatch, now: datetime, every_s: float) -> ScheduledWatch:
    first = max(now, watch.next_attempt_at)
    return ScheduledWatch(kind=kind, name=watch.name, first=first, schedule=Schedule(every_s=every_s))


A = TypeVar("A", bound=Actor[Any])


@define(eq=False)
class Timetable:
    """The actors that wake by themselves, in the order they came."""

    _actors: dict[str, Actor[Any]] = field(init=False, factory=dict)

    def recorded(self, name: str, actor: A) -> A:
        """Remember an incarnation, in the place of the one before."""
        self._actors[name] = actor
        return actor

    def due(self) -> list[tuple[str, float | None]]:
        """Each with the seconds until its next time; None: it has none just now."""
        now = trio.current_time()
        times = {name: actor.due_at for name, actor in self._actors.items()}
        return [(name, None if at == math.inf else max(0.0, at - now)) for name, at in times.items()]
