"""Children that do what a test says, and a journal of what they did and when."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import trio
from attrs import define, field, frozen

from cormorant.rules.events import Event


class Boom(Exception):
    """What a probe crashes with."""


@frozen
class Script:
    """One incarnation: how long it takes to come up, how long it runs, how it ends, how long it takes to stop."""

    start_s: float = 0.0
    run_s: float = math.inf
    crashes: bool = False
    stop_s: float = 0.0


STEADY = Script()


@define
class Journal:
    """What happened, in order."""

    entries: list[tuple[float, str, str]] = field(factory=list)
    events: list[Event] = field(factory=list)
    named: int = 0

    def new_name(self) -> str:
        self.named += 1
        return f"child {self.named}"

    def note(self, name: str, what: str) -> None:
        self.entries.append((trio.current_time(), name, what))

    def emit(self, event: Event) -> None:
        self.events.append(event)

    def times(self, name: str, what: str) -> list[float]:
        return [at for at, who, did in self.entries if (who, did) == (name, what)]

    def order(self, *what: str) -> list[str]:
        return [f"{name} {did}" for _, name, did in self.entries if did in what]

    def running(self) -> list[str]:
        """The probes that are up, in the order they came up."""
        up: list[str] = []
        for _, name, did in self.entries:
            if did == "begun":
                assert name not in up, f"two incarnations of {name} at once"
                up.append(name)
            elif did == "over":
                up.remove(name)
        return up


class Probe:
    """A child without `stop()`: it follows one script after the other, the last one for ever."""

    def __init__(self, journal: Journal, name: str, *scripts: Script) -> None:
        self.journal = journal
        self.name = name
        self._scripts = list(scripts) or [STEADY]
        self.asked = trio.Event()

    async def __call__(self, *, task_status: trio.TaskStatus[Any]) -> None:
        script = self._scripts.pop(0) if len(self._scripts) > 1 else self._scripts[0]
        self.asked = trio.Event()
        self.journal.note(self.name, "begun")
        try:
            await trio.sleep(script.start_s)
            if script.run_s == 0 and script.crashes:
                self._crash()
            task_status.started()
            self.journal.note(self.name, "up")
            await self._run(script)
        finally:
            self.journal.note(self.name, "over")

    async def _run(self, script: Script) -> None:
        with trio.move_on_after(script.run_s):
            await self.asked.wait()
            self.journal.note(self.name, "asked")
            await trio.sleep(script.stop_s)
            return
        if script.crashes:
            self._crash()

    def _crash(self) -> None:
        self.journal.note(self.name, "crashed")
        raise Boom(self.name)


class StoppableProbe(Probe):
    """A child that can be asked."""

    def stop(self) -> None:
        self.asked.set()


class Half:
    """The jitter that makes every back-off three quarters of its whole; chance for tests that compare times."""

    def random(self) -> float:
        return 0.5

    def getrandbits(self, k: int, /) -> int:
        return 1 << (k - 1)


async def until(condition: Callable[[], bool], *, within_s: float = 60.0) -> None:
    """Let mock time pass until something holds."""
    with trio.fail_after(within_s):
        while not condition():
            await trio.sleep(0.01)
