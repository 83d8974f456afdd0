"""How fast does our service work off a backlog of no-op jobs? `-m bench.ours.backlog prepare|work|profile SETTINGS`.

A job counts when its `JobCompleted` is emitted, which is after the COMMIT that ended it.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import time
from datetime import UTC, datetime
from functools import partial
from typing import Any

import attrs
import psycopg
import trio
from sqlalchemy import Connection, text

from actors.jobs.handler import JobContext
from bench.ours.profiling import profiled
from bench.ours.seeding import KIND, Batch, seed
from cormorant import __version__
from cormorant.rules.events import Stamped
from cormorant.rules.jobs.events import JobCompleted
from cormorant.rules.secrets import Secret
from cormorant.rules.settings.service import WebSettings
from cormorant.rules.settings.settings import JobSettings, Settings, StorageSettings
from storage.engine.dialect import dialect_for
from supervisors import Service, open_service
from supervisors.assembly import storage_options
from tests.environments import environment_of

SQLITE_FULL = 2


class Countdown:
    """A listener that knows when the last job is durably done."""

    def __init__(self, jobs: int) -> None:
        self.left = jobs
        self.done = trio.Event()
        self.first_at = self.ended_at = 0.0

    def __call__(self, stamped: Stamped) -> None:
        if type(stamped.event) is JobCompleted:
            self.left -= 1
            self.first_at = self.first_at or time.perf_counter()
            if not self.left:
                self.ended_at = time.perf_counter()
                self.done.set()


async def noop(context: JobContext) -> None:
    """The handler of all contestants."""


def settings_for(chosen: dict[str, Any]) -> Settings:
    """Defaults but for the place, how many handlers run at once, and how many connections PostgreSQL gets."""
    return attrs.evolve(
        Settings(),
        data=chosen["folder"],
        storage=StorageSettings(
            url=Secret(chosen.get("url", "")), connections=chosen.get("connections", StorageSettings().connections)
        ),
        jobs=attrs.evolve(JobSettings(), concurrency=chosen["concurrency"]),
        web=WebSettings(enabled=False),
    )


async def prepare(chosen: dict[str, Any]) -> None:
    async with open_service(settings_for(chosen)) as service:
        await seed(service.transaction, Batch(count=chosen["jobs"]), now=datetime.now(UTC))


async def work(chosen: dict[str, Any]) -> dict[str, float]:
    """Seconds from the start of the service until all jobs are done, and what the processor did for us in them."""
    countdown = Countdown(chosen["jobs"])
    dialect_for(storage_options(settings_for(chosen)))  # opens nothing, but loads the driver
    loop_s, process_s = time.thread_time(), time.process_time()
    began = time.perf_counter()
    async with open_service(
        settings_for(chosen), environment=environment_of(listeners=[countdown]), handlers={KIND: noop}
    ) as service:
        with trio.move_on_after(chosen["limit_s"]):
            await countdown.done.wait()
        loop_s, process_s = time.thread_time() - loop_s, time.process_time() - process_s
        await check(service, chosen["jobs"])
    return {
        "seconds": countdown.ended_at - began,
        "first_s": countdown.first_at - began,
        "cpu_s": process_s,
        "loop_cpu_s": loop_s,
    }


async def check(service: Service, jobs: int) -> None:
    """Trust the table, not the events, and the database, not the settings."""
    succeeded = await service.transaction(count_succeeded)
    if succeeded != jobs:
        sys.exit(f"{succeeded} of {jobs} jobs succeeded")
    if not await service.transaction(is_durable):
        sys.exit("the database does not wait for the disk")


def count_succeeded(connection: Connection) -> int:
    found: int = connection.execute(text("SELECT count(*) FROM jobs WHERE state = 'succeeded'")).scalar_one()
    return found


def is_durable(connection: Connection) -> bool:
    """Whether COMMIT waits for the disk in this very session."""
    if connection.dialect.name == "sqlite":
        return bool(connection.execute(text("PRAGMA synchronous")).scalar_one() == SQLITE_FULL)
    return {connection.execute(text(f"SHOW {name}")).scalar_one() for name in ("fsync", "synchronous_commit")} == {"on"}


def version(chosen: dict[str, Any]) -> str:
    driver = f"psycopg {psycopg.__version__}" if chosen.get("url") else f"SQLite {sqlite3.sqlite_version}"
    return f"cormorant {__version__}, Python {sys.version.split()[0]}, {driver}"


def main(step: str, chosen: dict[str, Any]) -> None:
    if step == "prepare":
        trio.run(prepare, chosen)
    elif step == "work":
        print(json.dumps(trio.run(work, chosen) | {"version": version(chosen)}))
    elif step == "profile":
        print(json.dumps({"said": profiled(partial(trio.run, work, chosen))}))
    else:
        sys.exit(f"the steps are prepare, work and profile, not {step}")


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
