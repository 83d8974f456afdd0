"""How does a program get the whole service? `open_service` starts the tree around a body and ends it with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Concatenate, ParamSpec, Self, TypeVar

import trio
from attrs import frozen
from sqlalchemy import Connection

from cormorant import __version__
from cormorant.rules.errors import ServiceFailed, ServiceStopped
from cormorant.rules.events import ServiceReady, ServiceStopping
from cormorant.rules.ports import Chance, Clock, Emit, Offload
from cormorant.rules.settings import Settings
from storage.database import Database, Mode, StorageOptions
from supervisors.child import ChildView
from supervisors.environment import SystemClock, SystemRandom, in_thread
from supervisors.event_bus import EventBus, EventStream, Listener
from supervisors.report import ShutdownReport
from supervisors.tree import Parts, tree

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


class Service:
    """The tree as one object. Enter it with `async with`; it may be used once."""

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Clock | None = None,
        chance: Chance | None = None,
        offload: Offload = in_thread,
        gateway: Database | None = None,
        listeners: Iterable[Listener] = (),
    ) -> None:
        self.settings = settings
        self.clock = clock or SystemClock()
        self.chance = chance or SystemRandom()
        self.offload = offload
        self._bus = EventBus(self.clock, listeners)
        self._database = self._own(gateway)
        parts = Parts(
            database=self._database, emit=self._bus.emit, chance=self.chance, stop_total_s=settings.service.stop_total_s
        )
        self._root = tree(parts)
        self._state = ServiceState.CLOSED

    def _own(self, gateway: Database | None) -> Database:
        emit, chance, clock = self._bus.emit, self.chance, self.clock
        if gateway is None:
            options = _storage_options(self.settings)
            return Database(options, mode=Mode.THREADS, emit=emit, chance=chance, clock=clock)
        gateway.adopt(emit=emit, chance=chance, clock=clock)
        return gateway

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
        """What is running, and how often it had to be restarted."""
        await trio.lowlevel.checkpoint()
        return ServiceStatus(version=__version__, state=self._state_now(), tree=self._root.children())

    async def transaction(
        self, function: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a plain function of a connection in one transaction. It may be run again, so it must do nothing else."""
        self._check_serving()
        return await self._database.run(function, *args, **kwargs)

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
            await self._root.__aenter__()
        except BaseException as error:
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
        self._bus.emit(ServiceStopping(why=_why(self._root.failure, error)))
        try:
            return await self._root.__aexit__(kind, error, trace)
        except BaseException as ending:
            self._raise_as_failed(ending)
            raise
        finally:
            self._state = ServiceState.STOPPED
            self._bus.close()

    def _raise_as_failed(self, ending: BaseException) -> None:
        """Raise `ServiceFailed` for an error that is the tree's; leave others, above all cancellation, as they are."""
        failure = self._root.failure
        if failure is None or not isinstance(failure, Exception) or not isinstance(ending, Exception):
            return
        raise ServiceFailed(f"the service has failed: {failure}") from ending


def _why(failure: BaseException | None, error: BaseException | None) -> str:
    if failure is not None:
        return f"failed: {failure}"
    if error is None:
        return "asked"
    return "cancelled" if isinstance(error, trio.Cancelled) else f"{type(error).__name__}: {error}"


def open_service(
    settings: Settings,
    *,
    clock: Clock | None = None,
    chance: Chance | None = None,
    offload: Offload = in_thread,
    gateway: Database | None = None,
    listeners: Iterable[Listener] = (),
) -> Service:
    """The service, to be entered: it is ready when every child has acknowledged its start, and stops in reverse order.

    Cancellation around it is delayed by the orderly stop, at most `settings.service.stop_total_s`.
    """
    return Service(settings, clock=clock, chance=chance, offload=offload, gateway=gateway, listeners=listeners)


def _storage_options(settings: Settings) -> StorageOptions:
    chosen = settings.storage
    return StorageOptions(
        url=settings.database_url.reveal(),
        connections=chosen.connections,
        group_max=chosen.group_max,
        queue_max=chosen.queue_max,
        statement_timeout_s=chosen.statement_timeout_s,
        lock_timeout_s=chosen.lock_timeout_s,
        hold_s=chosen.hold_s,
        backup_folder=Path(settings.data) / "backups",
    )
