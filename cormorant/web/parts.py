"""WebParts: the services and settings that the web is made from."""

from __future__ import annotations

import math
from typing import Final, Generic, TypeVar

import trio
from attrs import define, field, frozen

from actors.environment import Environment
from cormorant.services.event_bus import EventBus
from cormorant.services.gate.client_apps import Apps
from cormorant.services.jobs import Jobs
from cormorant.services.schedule import Timetable
from cormorant.services.searches import Searches
from cormorant.services.status import ServiceMonitor
from cormorant.services.watch.feeds import Feeds
from cormorant.services.watch.prices import Prices
from cormorant.services.watch.watches import Watches
from cormorant.web.metrics import Metrics


@frozen(kw_only=True)
class Scheduled:
    """Something that runs at its time."""

    name: str
    due_in_s: float | None
    """None: it has no next time just now."""


@frozen(kw_only=True)
class WebParts:
    """What the web serves: the environment and the services."""

    environment: Environment = field(kw_only=False)
    searches: Searches
    jobs: Jobs
    watches: Watches
    subscriptions: Feeds
    prices: Prices
    apps: Apps
    monitor: ServiceMonitor
    bus: EventBus
    timetable: Timetable
    metrics: Metrics

    def scheduled(self) -> list[Scheduled]:
        """The actors that wake by themselves."""
        return [Scheduled(name=name, due_in_s=due_in_s) for name, due_in_s in self.timetable.due()]


TIMES: Final = 20.0
"""A count is kept for so many times as long as it took: counting takes at most a twentieth of the time."""
KEPT_S_MAX: Final = 30.0

T = TypeVar("T")


@define(eq=False)
class CountCache(Generic[T]):
    """What was counted last, as long as it may be shown."""

    _value: T | None = field(init=False, default=None)
    _until: float = field(init=False, default=-math.inf)

    @property
    def known(self) -> T | None:
        """The count; None: it has to be made."""
        return self._value if trio.current_time() < self._until else None

    def keep(self, value: T, *, took_s: float) -> None:
        """Remember a count that was just made."""
        self._value, self._until = value, trio.current_time() + min(KEPT_S_MAX, took_s * TIMES)
