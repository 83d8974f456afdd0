"""Simulated(seed), memory_gateway, Recorder, the in-process network."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import attrs
import trio
from attrs import define, field
from trio._core import _run as _trio_scheduler
from trio.testing import MockClock

from actors.environment import NOT_GIVEN, Clients, Environment, SearchSource
from actors.jobs.handler import Handler, Run
from cormorant.clients.apprise import Tell
from cormorant.rules.events import Event, Stamped, fields_of
from cormorant.rules.notices import Message
from cormorant.rules.ports import Listener, ignore
from cormorant.rules.settings.service import WebSettings
from cormorant.rules.settings.settings import Settings
from cormorant.scripted import BROKEN, BUSY, TIMEOUT, ScriptedSource, busy, named_sources, scripted
from storage.database import Database, Mode, StorageOptions
from supervisors.service import Service, open_service

__all__ = [
    "BROKEN",
    "BUSY",
    "START",
    "TIMEOUT",
    "Recorder",
    "ScriptedSource",
    "SimulatedClock",
    "Simulation",
    "busy",
    "in_line",
    "memory_gateway",
    "named_sources",
    "scripted",
    "settings",
    "simulated",
]

T = TypeVar("T")
E = TypeVar("E", bound=Event)

START = datetime(2026, 1, 1, tzinfo=UTC)
"""The wall time at which every simulation begins."""


@define
class SimulatedClock:
    """A wall clock that follows trio's, which in a simulation is the mock clock. `jump` sets it off like a bad NTP server."""

    start: datetime = START
    _offset_s: float = field(init=False, default=0.0)
    _stepped: trio.Event = field(init=False, factory=trio.Event)

    def now(self) -> datetime:
        """The simulated time in UTC."""
        return self.start + timedelta(seconds=trio.current_time() + self._offset_s)

    def stopwatch(self) -> float:
        """Computing takes no time here: a trace must not depend on the machine."""
        return 0.0

    def jump(self, seconds: float) -> None:
        """Set the wall clock forward, or back; waiting is not affected."""
        self._offset_s += seconds
        stepped, self._stepped = self._stepped, trio.Event()
        stepped.set()

    async def wait_for_step(self) -> float:
        """Wait until `jump` is called. Returns by how many seconds."""
        before_s = self._offset_s
        await self._stepped.wait()
        return self._offset_s - before_s


async def in_line(function: Callable[..., T], /, *args: Any) -> T:
    """An `Offload` without threads: nothing overtakes, and the same seed gives the same run."""
    await trio.lowlevel.checkpoint()
    return function(*args)


def settings(**overrides: Any) -> Settings:
    """Settings built in code: the defaults, with parts replaced. No server, unless `web` says so."""
    return attrs.evolve(Settings(), **{"web": WebSettings(enabled=False)} | overrides)


@contextmanager
def memory_gateway(*, hold_s: float = 30.0) -> Iterator[Database]:
    """A database in memory, without threads. It keeps its content when it is handed to a second service: a restart.

    `go_away()` and `come_back()` play an outage; calls wait it out for `hold_s`. Forgotten at the end of the `with`.
    """
    options = StorageOptions(url="sqlite://", hold_s=hold_s)
    chance = random.Random(0)  # noqa: S311 - the service that it is given to brings its own
    database = Database(options, mode=Mode.INLINE, emit=ignore, chance=chance)
    try:
        yield database
    finally:
        database.dispose()


class Recorder:
    """A listener that remembers."""

    def __init__(self) -> None:
        self.heard: list[Stamped] = []

    def __call__(self, stamped: Stamped) -> None:
        """Hear one event."""
        self.heard.append(stamped)

    def of(self, kind: type[E]) -> list[E]:
        """The events of one kind, in order."""
        return [stamped.event for stamped in self.heard if isinstance(stamped.event, kind)]

    def lines(self) -> list[str]:
        """One line for each event: when it was, what it was, its facts. The trace of a run."""
        return [f"{each.at.isoformat()} {each.event.name} {fields_of(each.event)}" for each in self.heard]


class Simulation:
    """One run on the mock clock, the same every time for the same seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chance = random.Random(seed)  # noqa: S311 - chance that can be repeated is the point
        self.clock = SimulatedClock()

    def open_service(
        self,
        settings: Settings,
        *,
        gateway: Database,
        handlers: Mapping[str, Run | Handler] | None = None,
        listeners: Iterable[Listener] = (),
        ask: SearchSource | None = None,
        tell: Tell | None = None,
    ) -> Service:
        """The whole service on this simulation's clock and chance, without threads. Nobody is told, unless `tell` does."""
        environment = Environment(
            settings,
            database=gateway,
            clock=self.clock,
            chance=self.chance,
            offload=in_line,
            listeners=tuple(listeners),
            clients=Clients(search=ask or NOT_GIVEN, notify=tell or _tell_nobody),
        )
        return open_service(_named(settings), environment=environment, handlers=handlers)

    def run(self, main: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Run `main(*args)` to its end. Hours of waiting pass at once."""
        with _seeded_scheduler(self.seed):
            return trio.run(main, *args, clock=MockClock(autojump_threshold=0))


async def _tell_nobody(address: str, message: Message) -> None:
    """A person who is told of what never happened would not like it."""


def _named(settings: Settings) -> Settings:
    """A process that has no name takes that of its machine and its number, and both would show in the trace. No sockets."""
    name = settings.service.worker_id or "simulated"
    without = attrs.evolve(settings.web, enabled=False)
    return attrs.evolve(settings, service=attrs.evolve(settings.service, worker_id=name), web=without)


@contextmanager
def _seeded_scheduler(seed: int) -> Iterator[None]:
    """Let trio take the tasks of a batch in an order that follows the seed. The names are private: trio is pinned."""
    before = _trio_scheduler._ALLOW_DETERMINISTIC_SCHEDULING
    vars(_trio_scheduler)["_ALLOW_DETERMINISTIC_SCHEDULING"] = True
    _trio_scheduler._r.seed(seed)
    try:
        yield
    finally:
        vars(_trio_scheduler)["_ALLOW_DETERMINISTIC_SCHEDULING"] = before


def simulated(seed: int) -> Simulation:
    """A trio run in which time and chance are yours."""
    return Simulation(seed)
