"""WebParts: the services and settings that the web is made from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from attrs import frozen

from cormorant.rules.ports import Clock, Emit, Offload
from cormorant.rules.settings.service import ClientSettings, WebSettings
from cormorant.rules.supervision import ChildView
from cormorant.services.event_bus import EventStream
from cormorant.services.jobs import Jobs
from cormorant.services.searches import Searches
from cormorant.services.source_clients import AskCaps, Fetch
from cormorant.services.watch.feeds import Feeds
from cormorant.services.watch.prices import Prices
from cormorant.services.watch.watches import Watches
from cormorant.web.metrics import Metrics
from storage.database import Database

__all__ = ["Scheduled", "WebParts"]


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
