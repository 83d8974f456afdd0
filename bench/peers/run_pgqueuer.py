"""How fast does pgqueuer work off a backlog of no-op jobs? `run_pgqueuer.py prepare|work SETTINGS`.

As in its own benchmark: several `PgQueuer` in one process, each with a connection, on uvloop. In drain mode `run` returns
when the queue is empty; a job leaves the queue in the transaction that writes its end into pgqueuer's log.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from importlib.metadata import version
from typing import Any

import asyncpg  # type: ignore[import-not-found] # installed by the bench, in an environment of its own
import psycopg
import uvloop  # type: ignore[import-not-found] # as above
from pgqueuer import PgQueuer  # type: ignore[import-not-found] # as above
from pgqueuer.db import AsyncpgDriver, PsycopgDriver  # type: ignore[import-not-found] # as above
from pgqueuer.queries import Queries  # type: ignore[import-not-found] # as above

PAGE = 10_000
POLL_S = 0.002


class Countdown:
    """The no-op handler. Knows when the last job has run."""

    def __init__(self, jobs: int) -> None:
        self.left = jobs
        self.all_ran = asyncio.Event()

    async def noop(self, job: Any) -> None:
        self.left -= 1
        if not self.left:
            self.all_ran.set()


async def driver_for(settings: dict[str, Any]) -> Any:
    if settings["driver"] == "psycopg":
        return PsycopgDriver(await psycopg.AsyncConnection.connect(settings["url"], autocommit=True))
    return AsyncpgDriver(await asyncpg.connect(settings["url"]))


async def prepare(settings: dict[str, Any]) -> None:
    queries = Queries(AsyncpgDriver(await asyncpg.connect(settings["url"])))
    await queries.install()
    for first in range(0, settings["jobs"], PAGE):
        numbers = range(first, min(first + PAGE, settings["jobs"]))
        payloads = [json.dumps({"n": number}).encode() for number in numbers]
        await queries.enqueue(["noop"] * len(payloads), payloads, [0] * len(payloads))


async def work(settings: dict[str, Any]) -> dict[str, Any]:
    observer = await asyncpg.connect(settings["url"])
    countdown = Countdown(settings["jobs"])
    began, began_cpu = time.perf_counter(), time.process_time()
    queuers = [PgQueuer(await driver_for(settings)) for _ in range(settings["instances"])]
    for queuer in queuers:
        queuer.entrypoint("noop")(countdown.noop)
    runs = [asyncio.create_task(queuer.run(batch_size=settings["batch_size"])) for queuer in queuers]
    async with asyncio.timeout(settings["limit_s"]):
        await countdown.all_ran.wait()
        # Its buffer of ends is written at the latest every 0.1 s: done is when the database says so.
        while await observer.fetchval("SELECT EXISTS (SELECT FROM pgqueuer)"):
            await asyncio.sleep(POLL_S)
    seconds, cpu_s = time.perf_counter() - began, time.process_time() - began_cpu
    succeeded = await observer.fetchval("SELECT count(*) FROM pgqueuer_log WHERE status = 'successful'")
    for queuer in queuers:
        queuer.shutdown.set()
    await asyncio.wait(runs, timeout=10)
    if succeeded != settings["jobs"]:
        sys.exit(f"{succeeded} of {settings['jobs']} jobs succeeded")
    return {"seconds": seconds, "cpu_s": cpu_s, "version": f"pgqueuer {version('pgqueuer')}, {settings['driver']}"}


if __name__ == "__main__":
    given = json.loads(sys.argv[2])
    if sys.argv[1] == "prepare":
        uvloop.run(prepare(given))
    else:
        print(json.dumps(uvloop.run(work(given))))
