"""WebParts: the services and settings that the web is made from."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Generic, TypeVar

import trio
from attrs import define, field, frozen

from cormorant.rules.ports import Clock, Emit, Offload
from cormorant.rules.settings.service import ClientSettings, WebSettings
from cormorant.rules.supervision import ChildView
from cormorant.services.event_bus import EventStream
from cormorant.services.jobs import Jobs
from cormorant.services.searches import Searches
from cormorant.services.sources import AskCaps, Fetch
from cormorant.services.watch.feeds import Feeds
from cormorant.services.watch.prices import Prices
from cormorant.services.watch.watches import Watches
from cormorant.web.metrics import Metrics
from storage.database import Database


@frozen(kw_only=True)
class Scheduled:
    """Something that runs at its time."""

    name: str
    due_in_s: float | None
    """None: it has no next time just now."""


@frozen(kw_only=True)
class WebParts:
    """What the web is put together from."""

    web: WebSettings
    clients: Mapping[str, ClientSettings]
    data: str
    file_mode: int
    mode: str
    """What becomes of finds: observe shows them, live hands them over."""
    rss_ttl_s: float
    searches: Searches
    jobs: Jobs
    watches: Watches
    subscriptions: Feeds
    prices: Prices
    database: Database
    fetch: Fetch
    caps: AskCaps | None
    """Asks a source what it can do; None where sources are asked in a way of the program's own."""
    is_ready: Callable[[], bool]
    tree: Callable[[], Sequence[ChildView]]
    events: Callable[[], EventStream]
    scheduled: Callable[[], Sequence[Scheduled]]
    metrics: Metrics
    clock: Clock
    emit: Emit
    offload: Offload


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
