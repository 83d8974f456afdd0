"""Clock, Chance, Offload, Ports, Emit and Listener: the types of what is injected."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Protocol, TypeVar, runtime_checkable

from cormorant.rules.events import Event, Stamped

T = TypeVar("T")

Emit = Callable[[Event], None]
"""Tells of a fact. Synchronous, never waits, never raises."""
Listener = Callable[[Stamped], None]
"""Is called with every event, in order and in line."""


class Clock(Protocol):
    """Wall time. Waiting is trio's: delays are monotonic, due times are wall time."""

    def now(self) -> datetime:
        """The time in UTC. It may jump either way."""
        ...

    def stopwatch(self) -> float:
        """Seconds of real time, to measure how long work keeps the processor. Stands still in a simulation."""
        ...


@runtime_checkable
class SteppedClock(Clock, Protocol):
    """A clock that knows when it is set, as a simulated one does. Others are compared with trio's."""

    async def wait_for_step(self) -> float:
        """Wait until it is set. Returns by how many seconds."""
        ...


class Chance(Protocol):
    """The one source of randomness. `random.Random` is one."""

    def random(self) -> float:
        """A number in [0, 1)."""
        ...

    def getrandbits(self, k: int, /) -> int:
        """A number of `k` random bits."""
        ...


class Offload(Protocol):
    """Runs blocking work away from the loop, to its end; in line in simulation."""

    async def __call__(self, function: Callable[..., T], /, *args: Any) -> T:
        """Call `function(*args)` and return what it returns."""
        ...


class Ports(Protocol):
    """What a client takes from the environment."""

    @property
    def clock(self) -> Clock:
        """Wall time."""
        ...

    @property
    def chance(self) -> Chance:
        """Randomness."""
        ...

    @property
    def offload(self) -> Offload:
        """Threads."""
        ...


def ignore(event: Event) -> None:
    """An `Emit` for those who do not listen."""
