"""What the handlers of a server share: its services, its state, and the end of long waits."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, TypeVar

import trio
from attrs import define, field, frozen
from litestar.connection import ASGIConnection
from litestar.types import Receive

from actors.environment import Environment
from cormorant.rules.errors import CommitUnknown, StorageUnavailable
from cormorant.rules.supervision import ChildView
from cormorant.services.event_bus import EventBus, ServiceMonitor
from cormorant.services.gate.client_apps import Apps
from cormorant.services.jobs import Jobs
from cormorant.services.schedule import Timetable
from cormorant.services.searches import Searches
from cormorant.services.watch.feeds import Feeds
from cormorant.services.watch.prices import Prices
from cormorant.services.watch.wants import Wants
from cormorant.services.watch.watches import Artists, SavedSearches
from cormorant.web.metrics import Metrics
from storage.jobs.reports import KindCount

if TYPE_CHECKING:  # these modules know the state of the server
    from cormorant.services.gate.gate import GateService
    from cormorant.services.keys import Keys
    from cormorant.web.api.searches import RunningSearches
    from cormorant.web.auth import KeyThrottle, SignOuts
    from cormorant.web.event_stream import EventStreams
    from cormorant.web.problems import Crashes


def all_children(children: Iterable[ChildView]) -> Iterator[ChildView]:
    """Every child of a tree, each before its own children."""
    for child in children:
        yield child
        yield from all_children(child.children)


@frozen(kw_only=True)
class WebParts:
    """What the web serves: the environment and the services."""

    environment: Environment = field(kw_only=False)
    searches: Searches
    jobs: Jobs
    artists: Artists
    saved: SavedSearches
    feeds: Feeds
    prices: Prices
    wants: Wants
    apps: Apps
    monitor: ServiceMonitor
    bus: EventBus
    timetable: Timetable
    metrics: Metrics


PATIENCE_S: Final = 2.0


@contextmanager
def database_patience() -> Iterator[None]:
    """Give the database 2 s. What it cannot do in this time, or while it is away, is left out."""
    with trio.move_on_after(PATIENCE_S), suppress(StorageUnavailable, CommitUnknown):
        yield


TIMES: Final = 20.0
"""A count is kept for so many times as long as it took: counting takes at most a twentieth of the time."""
KEPT_S_MAX: Final = 30.0

P = ParamSpec("P")
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


@define(eq=False)
class Shutdown:
    """Told once that the server stops."""

    nursery: trio.Nursery
    told: trio.Event = field(factory=trio.Event)
    _scopes: set[trio.CancelScope] = field(init=False, factory=set)

    @property
    def is_stopping(self) -> bool:
        """Whether the server stops."""
        return self.told.is_set()

    def tell(self) -> None:
        """End all that waits."""
        self.told.set()
        for scope in list(self._scopes):
            scope.cancel()

    async def run_until_disconnect(
        self, receive: Receive, work: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T | None:
        """The same, and it ends when whoever asked has hung up: nothing is spent for nobody."""
        watching = trio.CancelScope()
        scope = trio.CancelScope()
        result: T | None = None
        self.nursery.start_soon(_cancel_on_disconnect, receive, scope, watching)
        try:
            with scope:
                result = await self.run_until_shutdown(work, *args, **kwargs)
        finally:
            watching.cancel()
        return result

    async def run_until_shutdown(self, work: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """What comes of something that may wait for long; None when the server stops first."""
        scope = trio.CancelScope()
        self._scopes.add(scope)
        if self.is_stopping:
            scope.cancel()
        result: T | None = None
        try:
            with scope:
                result = await work(*args, **kwargs)
        finally:
            self._scopes.discard(scope)
        return result


async def _cancel_on_disconnect(receive: Receive, scope: trio.CancelScope, watching: trio.CancelScope) -> None:
    with watching:
        while (await receive())["type"] != "http.disconnect":
            pass
        scope.cancel()


@frozen(kw_only=True)
class WebState:
    """What the handlers of a server share. One server has one, from its start to its end."""

    parts: WebParts
    keys: Keys
    closing: Shutdown
    gate: GateService
    searches: RunningSearches
    sign_outs: SignOuts
    feeds: EventStreams
    key_throttle: KeyThrottle
    crashes: Crashes
    job_counts: CountCache[Sequence[KindCount]] = field(factory=CountCache)
    subscription_counts: CountCache[tuple[int, int]] = field(factory=CountCache)


def state_of(connection: ASGIConnection[Any, Any, Any, Any]) -> WebState:
    """The state of the server that this request came to."""
    state: WebState = connection.app.state["web"]
    return state
