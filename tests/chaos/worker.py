"""A process that works on jobs: the real service with a handler that writes down what it does. Started by `crew.py`.

Each line on standard input is an order. For `start` a child is forked, because loading everything anew takes longer than
most tests; for `end` it is told whether a child has ended. With the end of the input every child is killed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import alembic.operations  # noqa: F401 - this and the next two: loaded before the first fork, not after each
import attrs
import trio
from attrs import define, field, frozen

import storage.engine.postgres
import storage.engine.sqlite  # noqa: F401 - see above
from actors import SystemClock
from actors.jobs.handler import JobContext
from cormorant.rules.events import Stamped, fields_of
from cormorant.rules.secrets import Secret
from cormorant.rules.settings.service import WebSettings
from cormorant.rules.settings.settings import JobSettings, ServiceSettings, Settings, StorageSettings
from supervisors.service import open_service
from tests.chaos.journal import BEGAN, CRASHED, ENDED, STOPPED, Pen
from tests.environments import environment_of

KIND = "work"
UNTOLD = {"job.started"}
"""The handler itself says when it began."""
GATE_LOOK_S = 0.05
DEAD_AFTER_S = 6.0
"""Thirty heartbeats: a process that only gets no processor time must not be taken for a dead one."""
NEVER_S = 3_600.0
"""The lock time-out of a test in which nobody dies."""


@frozen(kw_only=True)
class Orders:
    """What a worker is to do, and how fast."""

    url: str
    journal: str
    concurrency: int = 4
    heartbeat_s: float = 0.2
    lock_timeout_s: float = DEAD_AFTER_S
    sweep_s: float = 2.0
    grace_s: float = 5.0
    poll_s: float = 5.0
    statement_timeout_s: float = 15.0
    clock_off_s: float = 0.0

    def settings(self) -> Settings:
        """The settings of the service, checked as those of a file are."""
        names = ("concurrency", "heartbeat_s", "lock_timeout_s", "sweep_s", "grace_s", "poll_s")
        return Settings(
            data=str(Path(self.journal).parent),
            storage=StorageSettings(url=Secret(self.url), statement_timeout_s=self.statement_timeout_s),
            service=ServiceSettings(worker_id=f"worker {os.getpid()}", stop_total_s=40.0),
            web=WebSettings(enabled=False),
            jobs=JobSettings(**{name: getattr(self, name) for name in names}),
        )


@frozen
class WrongClock(SystemClock):
    """The machine's wall clock, and so many seconds."""

    off_s: float

    def now(self) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=self.off_s)


@define
class Hand:
    """The handler: does what the payload says and writes it down.

    `s`: take so many seconds. `until`: wait for this file. `kill`: take the process down. `block`: at the first attempt,
    let the whole process stand still until there is this file.
    """

    pen: Pen
    _runs: Iterator[int] = field(init=False, factory=count)

    async def __call__(self, context: JobContext) -> None:
        facts = {"job": context.job_id, "attempt": context.attempt, "run": f"{os.getpid()}.{next(self._runs)}"}
        self.pen.write(BEGAN, facts)
        try:
            await _do(context.payload, context.attempt)
        except trio.Cancelled:
            self.pen.write(STOPPED, facts)
            raise
        self.pen.write(ENDED, facts)


async def _do(payload: dict[str, Any], attempt: int) -> None:
    if payload.get("kill"):
        os.kill(os.getpid(), signal.SIGKILL)
    if "block" in payload and attempt == 1:
        _stand_still(Path(payload["block"]))
    while "until" in payload and not await trio.Path(payload["until"]).exists():
        await trio.sleep(GATE_LOOK_S)
    await trio.sleep(payload.get("s", 0.0))


def _stand_still(gate: Path) -> None:
    while not gate.exists():
        time.sleep(GATE_LOOK_S)


def tell(pen: Pen, stamped: Stamped) -> None:
    """Write an event down."""
    if stamped.event.name not in UNTOLD:
        pen.write(stamped.event.name, fields_of(stamped.event))


async def work(orders: Orders, pen: Pen) -> None:
    """Work until told to stop."""
    service = open_service(
        orders.settings(),
        environment=environment_of(
            clock=WrongClock(orders.clock_off_s), listeners=[lambda stamped: tell(pen, stamped)]
        ),
        handlers={KIND: Hand(pen)},
    )
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        async with service:
            await anext(aiter(signals))
    assert service.report is not None
    pen.write("left", {"forced": service.report.forced})


def run(orders: Orders) -> int:
    """A whole life; the exit code."""
    pen = Pen(Path(orders.journal))
    try:
        trio.run(work, orders, pen)
    except BaseException:  # noqa: BLE001 - the end of the process: whatever it is, the test shall see it
        pen.write(CRASHED, {"trace": traceback.format_exc()})
        return 1
    return 0


class Forge:
    """Makes workers, and knows which of them have ended. Those not yet asked about keep their number."""

    def __init__(self, live: Callable[[dict[str, Any]], int]) -> None:
        self._live = live
        self._alive: set[int] = set()

    def start(self, orders: dict[str, Any]) -> int:
        pid = os.fork()
        if pid == 0:
            os.close(0)
            os._exit(self._live(orders))
        self._alive.add(pid)
        return pid

    def end(self, pid: int) -> int | None:
        """The exit code, or None while it lives."""
        ended, status = os.waitpid(pid, os.WNOHANG)
        if not ended:
            return None
        self._alive.discard(pid)
        return os.waitstatus_to_exitcode(status)

    def close(self) -> None:
        for pid in self._alive:
            os.kill(pid, signal.SIGKILL)


def serve(live: Callable[[dict[str, Any]], int]) -> None:
    """Do what the lines say; `live` is a whole life with such orders, and returns the exit code."""
    forge = Forge(live)
    for line in sys.stdin:
        order = json.loads(line)
        answer = forge.end(order["end"]) if "end" in order else forge.start(order["start"])
        os.write(1, f"{json.dumps(answer)}\n".encode())
    forge.close()


def as_order(orders: attrs.AttrsInstance) -> dict[str, Any]:
    """The line that starts a worker."""
    return {"start": attrs.asdict(orders)}


if __name__ == "__main__":
    serve(lambda orders: run(Orders(**orders)))
