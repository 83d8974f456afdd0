"""What does the web need of the service? Only this; the composition hands it in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Protocol

from attrs import frozen

from actors.search.search import Execute, Search
from actors.search.source_reconciler import Desks
from cormorant.clients.files import Download
from cormorant.rules.events import Stamped
from cormorant.rules.ports import Clock, Emit, Offload
from cormorant.rules.search.limits import Lane
from cormorant.rules.search.priorities import Priority
from cormorant.rules.search.reasons import Explanation
from cormorant.rules.search.requests import Caps, SearchRequest
from cormorant.rules.settings.service import ClientSettings, WebSettings
from cormorant.web.metrics import Metrics
from cormorant.web.price_port import PricesPort
from cormorant.web.subscription_port import SubscriptionsPort
from cormorant.web.watch_port import WatchesPort
from storage.database import Database
from storage.jobs.reports import JobView
from storage.search.sources import SourceRecord

__all__ = ["ChildNode", "EventsPort", "Fetch", "JobsPort", "Scheduled", "SearchesPort", "WebParts"]

Fetch = Callable[[SourceRecord, str], Awaitable[Download]]
"""Fetches what a link of a source leads to."""


class SearchesPort(Protocol):
    """Searches and sources."""

    desks: Desks

    async def search(  # noqa: PLR0913 - the ways to search, all but the first with a default
        self,
        wanted: str | SearchRequest,
        *,
        sources: Iterable[str] | None = None,
        priority: Priority | None = None,
        max_wait_s: float | None = None,
        timeout_s: float | None = None,
        lane: Lane = Lane.QUERY,
        consumer: str = "",
        execute: Execute | None = None,
    ) -> Search:
        """Submit a search."""
        ...

    def explain(self, source: str, priority: Priority | None = None, *, lane: Lane = Lane.QUERY) -> Explanation:
        """Why a request submitted now would wait."""
        ...

    async def pause(self, source: str) -> None:
        """Ask a source no more."""
        ...

    async def resume(self, source: str) -> None:
        """Go on asking a source."""
        ...

    async def reset(self, source: str) -> None:
        """Forget the trouble with a source."""
        ...


class JobsPort(Protocol):
    """Durable jobs."""

    async def show(self, job_id: int) -> JobView:
        """One job, or `UnknownJob`."""
        ...

    async def cancel(self, job_id: int) -> None:
        """End a live job."""
        ...

    async def revive(self, job_id: int) -> None:
        """Let a failed or cancelled job start afresh."""
        ...

    async def pause(self) -> None:
        """Claim no more jobs."""
        ...

    async def resume(self) -> None:
        """Claim jobs again."""
        ...


class EventsPort(Protocol):
    """What happens from now on, to be read one by one. Who is slow loses the oldest, and is told how many."""

    async def __anext__(self) -> Stamped:
        """The next event; `StopAsyncIteration` when the service ends."""
        ...

    def end(self) -> None:
        """Stop listening."""
        ...


class ChildNode(Protocol):
    """A child of the supervision tree as it is shown."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def state(self) -> Enum:
        """Where it is in its life."""
        ...

    @property
    def restarts(self) -> int:
        """How often it was started again."""
        ...

    @property
    def last_crash(self) -> BaseException | None:
        """What it crashed with last."""
        ...

    @property
    def children(self) -> Sequence[ChildNode]:
        """Those below it."""
        ...


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
    searches: SearchesPort
    jobs: JobsPort
    watches: WatchesPort
    subscriptions: SubscriptionsPort
    prices: PricesPort
    database: Database
    fetch: Fetch
    caps: Callable[[SourceRecord], Awaitable[Caps]] | None
    """Asks a source what it can do; None where sources are asked in a way of the program's own."""
    is_ready: Callable[[], bool]
    tree: Callable[[], Sequence[ChildNode]]
    events: Callable[[], EventsPort]
    scheduled: Callable[[], Sequence[Scheduled]]
    metrics: Metrics
    clock: Clock
    emit: Emit
    offload: Offload
