"""Service and open_service: starts the tree around a body and stops it with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, Unpack

import trio
from attrs import evolve, frozen
from sqlalchemy import Connection

from actors.actor import StopServing
from actors.environment import Environment
from actors.jobs.handler import Handler, Run, as_handlers
from actors.jobs.new_jobs import JobTerms
from actors.search.callbacks import OnComplete, OnJobDone
from actors.search.search import Execute, Search
from cormorant import __version__
from cormorant.rules.errors import ServiceFailed, ServiceStopped, SettingsError
from cormorant.rules.events import ServiceReady, ServiceStopping
from cormorant.rules.ports import Clock, Emit, Listener
from cormorant.rules.search.priorities import Priority
from cormorant.rules.search.reasons import Explanation
from cormorant.rules.search.requests import SearchRequest
from cormorant.rules.settings.settings import Settings
from cormorant.rules.supervision import ChildView
from cormorant.services.data_folder import prepare_data
from cormorant.services.event_bus import EventBus, EventStream, ServiceMonitor
from cormorant.services.jobs import Jobs
from cormorant.services.searches import Searches, SourceStatus
from cormorant.services.watch.feeds import Feeds
from cormorant.services.watch.prices import Prices
from cormorant.services.watch.wants import Wants
from cormorant.services.watch.watches import Artists, SavedSearches
from supervisors.assembly import ServiceAssembly, complete, is_missing
from supervisors.child import ShutdownReport

P = ParamSpec("P")
T = TypeVar("T")


class ServiceState(Enum):
    """Where the service is in its life."""

    CLOSED = "closed"
    STARTING = "starting"
    READY = "ready"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"


@frozen(kw_only=True)
class ServiceStatus:
    """What the service is doing."""

    version: str
    state: ServiceState
    tree: tuple[ChildView, ...]
    sources: tuple[SourceStatus, ...]


class Service:
    """The tree as one object. Enter it with `async with`; it may be used once."""

    def __init__(self, environment: Environment, handlers: Mapping[str, Run | Handler] | None = None) -> None:
        self._bus = EventBus(environment.clock, environment.listeners)
        self._has_own_database = is_missing(environment.database)
        _check_store(environment)
        self._assembly = ServiceAssembly(complete(environment, self._bus), as_handlers(handlers or {}))
        self.environment = self._assembly.environment
        monitor = ServiceMonitor(is_ready=lambda: self._state_now() is ServiceState.READY, children=self._children)
        self._root = self._assembly.tree(self._bus, monitor)
        self._root.on_failure(self._failing)
        self._state = ServiceState.CLOSED

    def _children(self) -> tuple[ChildView, ...]:
        return self._root.children()

    @property
    def settings(self) -> Settings:
        """The settings of this service."""
        return self.environment.settings

    @property
    def clock(self) -> Clock:
        """The wall time of this service."""
        return self.environment.clock

    @property
    def report(self) -> ShutdownReport | None:
        """How it stopped; None before that."""
        return self._root.report

    @property
    def emit(self) -> Emit:
        """Where parts of the embedding program may tell of events of their own, to be logged and traced with ours."""
        return self._bus.emit

    def listen(self, listener: Listener) -> None:
        """Call `listener` with every event from now on, in line: it must be quick and must not raise."""
        self._bus.listen(listener)

    def events(self) -> EventStream:
        """The events from now on, to iterate over. A slow reader loses the oldest and is told how many."""
        return self._bus.stream()

    async def status(self) -> ServiceStatus:
        """What is running, how often it had to be restarted, and what each source is doing."""
        await trio.lowlevel.checkpoint()
        return ServiceStatus(
            version=__version__,
            state=self._state_now(),
            tree=self._root.children(),
            sources=self._assembly.searches.status(),
        )

    async def transaction(
        self, function: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a plain function of a connection in one transaction. It may be run again, so it must do nothing else."""
        return await self.jobs.transaction(function, *args, **kwargs)

    async def enqueue(self, kind: str, payload: Any, **how: Unpack[JobTerms]) -> int:
        """Take in a durable job and return its id. With a `dedupe_key` it joins a live job of the same kind and key."""
        return await self.jobs.enqueue(kind, payload, **how)

    @property
    def jobs(self) -> Jobs:
        """The durable jobs: look, cancel, revive, pause."""
        self._check_serving()
        return self._assembly.jobs

    async def search(  # noqa: PLR0913 - the ways to search, all but the first with a default
        self,
        wanted: str | SearchRequest,
        *,
        sources: Iterable[str] | None = None,
        priority: Priority | None = None,
        max_wait_s: float | None = None,
        timeout_s: float | None = None,
        pace_s: float | None = None,
        execute: Execute | None = None,
        on_complete: OnComplete | None = None,
        on_job_done: OnJobDone | None = None,
    ) -> Search:
        """Submit a search; what comes back at once can be iterated over, waited for, or cancelled.

        Without `sources` all are asked. `max_wait_s` counts from now; without it, and without a priority, a search waits
        as long as it takes.
        """
        return await self.sources.search(
            wanted,
            sources=sources,
            priority=priority,
            max_wait_s=max_wait_s,
            timeout_s=timeout_s,
            pace_s=pace_s,
            execute=execute,
            on_complete=on_complete,
            on_job_done=on_job_done,
        )

    @property
    def sources(self) -> Searches:
        """The sources: why one waits, pause, resume, reset."""
        self._check_serving()
        return self._assembly.searches

    @property
    def artists(self) -> Artists:
        """The artists whose releases are wanted."""
        self._check_serving()
        return self._assembly.watching.artists

    @property
    def saved_searches(self) -> SavedSearches:
        """The searches that are repeated."""
        self._check_serving()
        return self._assembly.watching.saved

    @property
    def feeds(self) -> Feeds:
        """The feeds: when each is checked, and what came of it."""
        self._check_serving()
        return self._assembly.watching.feeds

    @property
    def prices(self) -> Prices:
        """The prices: what is watched, what sources state of it, and what it is worth."""
        self._check_serving()
        return self._assembly.watching.prices

    @property
    def wants(self) -> Wants:
        """What is wanted, its candidates, and where it went."""
        self._check_serving()
        return self._assembly.watching.wants

    def explain(self, source: str, priority: Priority | None = None) -> Explanation:
        """Why a search submitted now would wait at a source, gate by gate, and until when."""
        return self.sources.explain(source, priority)

    async def pause_source(self, name: str) -> None:
        """Ask a source no more, in any process, also after a restart."""
        await self.sources.pause(name)

    async def resume_source(self, name: str) -> None:
        """Go on asking a source."""
        await self.sources.resume(name)

    async def reset_source(self, name: str) -> None:
        """Forget the trouble with a source; what was spent stays spent."""
        await self.sources.reset(name)

    async def pause(self) -> None:
        """Start nothing new, in every process that shares the database, also after a restart. What runs goes on."""
        await self.jobs.pause()

    async def resume(self) -> None:
        """Go on."""
        await self.jobs.resume()

    def _check_serving(self) -> None:
        state = self._state_now()
        if state is not ServiceState.READY:
            raise ServiceStopped(f"the service is {state.value} and takes no calls")

    def _state_now(self) -> ServiceState:
        if self._root.failure is not None:
            return ServiceState.FAILED
        return self._state

    async def __aenter__(self) -> Self:
        if self._state is not ServiceState.CLOSED:
            raise ServiceStopped("a service can be opened once: make another one")
        self._state = ServiceState.STARTING
        began_at = trio.current_time()
        try:
            if self._has_own_database:
                await self.environment.offload(prepare_data, self.settings)
            await self._root.__aenter__()
        except BaseException as error:
            self._state = ServiceState.STOPPED
            self._bus.close()
            self._raise_as_failed(error)
            raise
        self._state = ServiceState.READY
        self._bus.emit(ServiceReady(version=__version__, took_s=trio.current_time() - began_at))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._state = ServiceState.STOPPING
        self._assembly.web.tell_once(StopServing())
        if self._root.failure is None:
            self._bus.emit(ServiceStopping(why=_why(error)))
        try:
            return await self._root.__aexit__(kind, error, trace)
        except BaseException as ending:
            self._raise_as_failed(ending)
            raise
        finally:
            self._state = ServiceState.STOPPED
            self._bus.close()

    def _failing(self, failure: BaseException) -> None:
        self._assembly.web.tell_once(StopServing())
        self._bus.emit(ServiceStopping(why=f"failed: {failure}"))

    def _raise_as_failed(self, ending: BaseException) -> None:
        """Raise `ServiceFailed` for an error that is the tree's; leave others, above all cancellation, as they are."""
        failure = self._root.failure
        if failure is None or not isinstance(failure, Exception) or not isinstance(ending, Exception):
            return
        raise ServiceFailed(f"the service has failed: {failure}") from ending


def _why(error: BaseException | None) -> str:
    if error is None:
        return "asked"
    return "cancelled" if isinstance(error, trio.Cancelled) else f"{type(error).__name__}: {error}"


def open_service(
    settings: Settings,
    *,
    environment: Environment | None = None,
    handlers: Mapping[str, Run | Handler] | None = None,
) -> Service:
    """The service, to be entered: it is ready when every child has acknowledged its start, and stops in reverse order.

    `environment` replaces the clock, the database, the clients and so on; its settings are replaced by `settings`.
    Cancellation around it is delayed by the orderly stop, at most `settings.service.stop_total_s`.
    """
    given = Environment(settings) if environment is None else evolve(environment, settings=settings)
    return Service(given, handlers)


def _check_store(environment: Environment) -> None:
    is_async = environment.settings.watchlist.db_io_mode == "async"
    if is_async != (environment.clients.watchlist is not None):
        found = "is async, and no watchlist was given" if is_async else "is thread, and a watchlist was given"
        raise SettingsError([f"watchlist.db_io_mode {found}; async goes with Clients(watchlist=…)"])
