"""Workers in processes of their own: started, signalled, killed, waited for. Every wait is bounded."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import trio
from attrs import define, evolve, field, frozen

from tests.bounds import WAIT_S
from tests.chaos.claimer import ClaimOrders
from tests.chaos.journal import CRASHED, KILLED, LOOK_S, Journal, Pen
from tests.chaos.watcher import WatchOrders
from tests.chaos.worker import Orders, as_order

ROOT = Path(__file__).parents[2]

AnyOrders = Orders | WatchOrders | ClaimOrders


class Forge:
    """The process whose children the workers are."""

    def __init__(self, module: str = "tests.chaos.worker") -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            text=True,
        )

    def ask(self, order: dict[str, Any]) -> Any:
        """Give an order and hear the answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{json.dumps(order)}\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._process:
            assert self._process.stdin is not None
            self._process.stdin.close()


@frozen
class Worker:
    """One process."""

    pid: int
    crew: Crew

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        os.kill(self.pid, number)

    async def ready(self) -> Self:
        """Wait until the others know it."""
        await self.crew.journal.heard("worker.registered", pid=self.pid)
        return self

    async def kill(self) -> None:
        """End it without a warning."""
        self.send(signal.SIGKILL)
        await self.gone()

    async def leave(self) -> None:
        """Ask it to stop, and see that it does so in good order."""
        self.send(signal.SIGTERM)
        assert await self.gone() == 0, self.crew.journal.last_lines()
        (left,) = self.crew.journal.of("left", pid=self.pid)
        assert left.facts["forced"] == [], self.crew.journal.last_lines()

    async def gone(self) -> int:
        """Wait for its end. Returns the exit code."""
        with trio.fail_after(WAIT_S):
            while (code := self.crew.ended(self.pid)) is None:
                await trio.sleep(LOOK_S)
        return code


@define(eq=False)
class Crew:
    """All workers of one test."""

    forge: Forge
    orders: AnyOrders
    journal: Journal
    pen: Pen
    alive: list[Worker] = field(init=False, factory=list)
    _codes: dict[int, int] = field(init=False, factory=dict)

    def start(self, **changes: Any) -> Worker:
        """Start a worker, with orders of its own."""
        orders = evolve(self.orders, **changes)
        worker = Worker(self.forge.ask(as_order(orders)), self)
        self.alive.append(worker)
        return worker

    async def start_many(self, number: int, **changes: Any) -> list[Worker]:
        """Start workers and wait until all are known."""
        workers = [self.start(**changes) for _ in range(number)]
        return [await worker.ready() for worker in workers]

    def ended(self, pid: int) -> int | None:
        """The exit code of a worker, None while it lives. That it is gone is written down, once."""
        if pid not in self._codes:
            code = self.forge.ask({"end": pid})
            if code is None:
                return None
            self._codes[pid] = code
            self.pen.write(KILLED, {"code": code}, about=pid)
            self.alive = [worker for worker in self.alive if worker.pid != pid]
        return self._codes[pid]

    async def dismiss(self) -> None:
        """Let everybody leave in good order."""
        for worker in list(self.alive):
            await worker.leave()

    def assert_nobody_crashed(self) -> None:
        """No process, and no part of one, has ended by an error."""
        told = self.journal.of(CRASHED) + self.journal.of("child.crashed")
        assert told == [], self.journal.last_lines()


@contextmanager
def crew(forge: Forge, orders: AnyOrders) -> Iterator[Crew]:
    """Workers that do not outlive the test."""
    path = Path(orders.journal)
    made = Crew(forge, orders, Journal(path), Pen(path))
    try:
        yield made
    finally:
        for worker in made.alive:
            worker.send(signal.SIGKILL)
        for worker in made.alive:
            forge.ask({"end": worker.pid})
        made.pen.close()
