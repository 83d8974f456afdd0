"""Does the platform say what the affiliate reported? A service with a handler of its own, embedded in a program.

    python examples/reconciliation.py           hours pass in a second: time is simulated
    python examples/reconciliation.py --real    the real clock and a file; a look every 2 s instead of every 30 min

An affiliate reports conversions; a durable job asks the platform. Both say the same: matched. They differ: mismatched.
The platform knows nothing yet: it is asked again 30 min later, by itself; after the fifth look in vain it ends as missing.

- A report and its job are written in one transaction: neither is ever without the other.
- "Not there yet" is no error, so the job is snoozed and no attempt counts. Errors of the platform are left to the service,
  which tries again with back-off: a bad hour of the platform uses up none of the five looks.
- A handler may run twice (its process died between the look and the end of the job), so each look is recorded by a
  statement that checks the number of the look, and a look that was already made is not made again before its time.
"""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Callable
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

import trio
from attrs import frozen
from sqlalchemy import Connection, Row, text

from actors import Environment, JobContext, SystemClock
from cormorant.rules import Clock, Fail, Snooze
from cormorant.settings import Settings, WebSettings
from cormorant.testing import memory_gateway, simulated
from storage import NewJob, from_micros, jobs, to_micros
from supervisors import Service, open_service

LOOKS = 5
AGAIN_S = 30 * 60.0


class Status(StrEnum):
    """What is known about a report."""

    OPEN = "open"
    MATCHED = "matched"
    MISMATCHED = "mismatched"
    MISSING = "missing"


class Platform(Protocol):
    """Where the truth comes from."""

    async def conversions(self, report_id: int) -> int | None:
        """How many conversions there were; None when it knows nothing of them yet."""
        ...


@frozen(kw_only=True)
class Report:
    """What an affiliate reported, and what came of it."""

    id: int
    reported: int
    found: int | None = None
    status: Status = Status.OPEN
    looks: int = 0
    looked_at: datetime | None = None


def judge(report: Report, found: int | None) -> Status:
    """What the next look at a report says about it."""
    if found is not None:
        return Status.MATCHED if found == report.reported else Status.MISMATCHED
    return Status.MISSING if report.looks + 1 >= LOOKS else Status.OPEN


def make_table(connection: Connection) -> None:
    """A table of our own, beside those of the service."""
    connection.execute(
        text("""
            CREATE TABLE IF NOT EXISTS reconciliations (
                id BIGINT PRIMARY KEY, reported BIGINT NOT NULL, found BIGINT, status TEXT NOT NULL DEFAULT 'open',
                looks INTEGER NOT NULL DEFAULT 0, looked_at BIGINT)
        """)
    )


def submit(connection: Connection, report: Report, job: NewJob, *, now: datetime) -> None:
    """Take in a report together with its job: both, or neither."""
    words = {"id": report.id, "reported": report.reported}
    connection.execute(text("INSERT INTO reconciliations (id, reported) VALUES (:id, :reported)"), words)
    jobs.enqueue(connection, job, now=now)


def find(connection: Connection, report_id: int) -> Report | None:
    """One report."""
    row = connection.execute(text("SELECT * FROM reconciliations WHERE id = :id"), {"id": report_id}).one_or_none()
    return None if row is None else _report(row)


def all_reports(connection: Connection) -> list[Report]:
    """All reports."""
    return [_report(row) for row in connection.execute(text("SELECT * FROM reconciliations ORDER BY id"))]


def _report(row: Row[Any]) -> Report:
    return Report(
        id=row.id,
        reported=row.reported,
        found=row.found,
        status=Status(row.status),
        looks=row.looks,
        looked_at=None if row.looked_at is None else from_micros(row.looked_at),
    )


def record(connection: Connection, report: Report, found: int | None, *, now: datetime) -> bool:
    """Write down what a look found. False: this look is already written down."""
    words = {
        "id": report.id,
        "looks": report.looks,
        "found": found,
        "status": judge(report, found).value,
        "now": to_micros(now),
    }
    written = connection.execute(
        text("""
            UPDATE reconciliations SET found = :found, status = :status, looks = looks + 1, looked_at = :now
            WHERE id = :id AND status = 'open' AND looks = :looks
        """),
        words,
    )
    return written.rowcount == 1


@frozen(kw_only=True)
class Reconciler:
    """The handler, and what it needs."""

    platform: Platform
    clock: Clock
    again_s: float = AGAIN_S
    say: Callable[[str], object] = str

    async def reconcile(self, context: JobContext) -> None:
        """Look once. Returns when the report is settled; otherwise the job comes back by itself."""
        report = await context.transaction(find, context.payload["report"])
        if report is None:
            raise Fail(f"there is no report {context.payload['report']}")
        self._wait_if_looked(report)
        if report.status is Status.OPEN:
            await self._look(context, report)

    def _wait_if_looked(self, report: Report) -> None:
        """A run that ended before its job did has made this look already: the next one is due in its time."""
        if report.looked_at is not None and report.status is Status.OPEN:
            left_s = self.again_s - (self.clock.now() - report.looked_at) / timedelta(seconds=1)
            if left_s > 0:
                raise Snooze(left_s)

    async def _look(self, context: JobContext, report: Report) -> None:
        now = self.clock.now()
        found = await self.platform.conversions(report.id)
        await context.transaction(record, report, found, now=now)
        status = judge(report, found)
        self.say(f"{now:%H:%M:%S}  report {report.id}  look {report.looks + 1}  {status}")
        if status is Status.OPEN:
            raise Snooze(self.again_s)


@frozen
class InventedPlatform:
    """Knows of conversions from a time on, in seconds from the start."""

    clock: Clock
    begins_at: datetime
    known: dict[int, tuple[float, int]]

    async def conversions(self, report_id: int) -> int | None:
        await trio.lowlevel.checkpoint()
        from_s, conversions = self.known.get(report_id, (math.inf, 0))
        return conversions if (self.clock.now() - self.begins_at).total_seconds() >= from_s else None


async def take_in(service: Service, report: Report) -> None:
    """Take a report in. Its job is found by the service at once."""
    # The key keeps a report that is submitted twice from being looked at twice.
    job = service.jobs.make("reconcile", {"report": report.id}, dedupe_key=f"report-{report.id}")
    await service.transaction(submit, report, job, now=service.clock.now())


async def until_settled(service: Service, *, look_s: float) -> list[Report]:
    """Wait until nothing is open."""
    while True:
        found = await service.transaction(all_reports)
        if all(report.status is not Status.OPEN for report in found):
            return found
        await trio.sleep(look_s)


async def show(service: Service, *, again_s: float) -> None:
    """Four reports: one right, one wrong, one that the platform learns of late, one that it never learns of."""
    for number, reported in enumerate((12, 40, 7, 3), start=101):
        await take_in(service, Report(id=number, reported=reported))
    for report in await until_settled(service, look_s=again_s / 10):
        print(f"report {report.id}: reported {report.reported}, the platform says {report.found}: {report.status}")


def known_to(again_s: float) -> dict[int, tuple[float, int]]:
    """What the invented platform knows, and from when on."""
    return {101: (0, 12), 102: (0, 31), 103: (2 * again_s, 7)}


def main_simulated() -> None:
    """Two hours, in a second."""
    simulation = simulated(seed=1)

    async def main() -> None:
        with memory_gateway() as database:
            clock = simulation.clock
            platform = InventedPlatform(clock, clock.now(), known_to(AGAIN_S))
            reconciler = Reconciler(platform=platform, clock=clock, say=print)
            handlers = {"reconcile": reconciler.reconcile}
            async with simulation.open_service(Settings(), gateway=database, handlers=handlers) as service:
                await service.transaction(make_table)
                await show(service, again_s=AGAIN_S)

    simulation.run(main)


async def main_real(folder: Path, *, again_s: float) -> None:
    """The same on a file and on the real clock."""
    clock = SystemClock()
    chosen = Settings(data=str(folder), web=WebSettings(enabled=False))  # no other app searches here
    platform = InventedPlatform(clock, clock.now(), known_to(again_s))
    reconciler = Reconciler(platform=platform, clock=clock, again_s=again_s, say=print)
    async with open_service(
        chosen, environment=Environment(chosen, clock=clock), handlers={"reconcile": reconciler.reconcile}
    ) as service:
        await service.transaction(make_table)
        await show(service, again_s=again_s)


if __name__ == "__main__":
    if "--real" in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as chosen:
            print(f"everything is kept in {chosen}")
            trio.run(lambda: main_real(Path(chosen), again_s=2.0))
    else:
        main_simulated()
