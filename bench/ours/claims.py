"""Does a claim cost more in a large table? `-m bench.ours.claims future|paused SETTINGS`.

Nine tenths of the jobs have the top priority and cannot be claimed: they are due later, or of a paused kind. Nothing is
due at that priority, or what is would hide them. What is timed is `storage.jobs.jobs.claim` of 10 jobs inside its transaction;
COMMIT costs the same in both tables and would hide a difference.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import trio
from attrs import evolve, frozen
from sqlalchemy import Connection, create_engine, make_url, text

from bench.ours.seeding import KIND, Batch, seed
from cormorant.rules.ports import ignore
from storage.database import Database, Mode, StorageOptions
from storage.jobs import workers
from storage.jobs.jobs import claim
from storage.pauses import pause

BLOCKED = "blocked"
OWNER = "bench"
TOP, NORMAL, LOW = 0, 5, 10
LIMIT = 10
WARM_UP = 10
"""The driver prepares a statement when it comes the fifth time."""


@frozen
class Table:
    """A database with so many jobs in it."""

    database: Database
    url: str
    rows: int


def open_tables(chosen: dict[str, Any]) -> list[Table]:
    options = StorageOptions(url="sqlite://", connections=1, statement_timeout_s=120)
    return [
        Table(Database(evolve(options, url=url), mode=Mode.THREADS, emit=ignore, chance=random.Random(1)), url, rows)
        for url, rows in zip(chosen["urls"], chosen["rows"], strict=True)
    ]


async def fill(table: Table, shape: str) -> None:
    """Nine tenths out of reach at the top priority, one tenth due below it."""
    now = datetime.now(UTC)
    count = table.rows * 9 // 10
    await table.database.run(workers.register, OWNER, kinds=(KIND, BLOCKED), version="bench", now=now)
    if shape == "paused":
        await table.database.run(pause, BLOCKED, now=now)
        await seed(table.database.run, Batch(count=count, kind=BLOCKED, priority=TOP, is_held=True), now=now)
    else:
        await seed(
            table.database.run, Batch(count=count, kind=BLOCKED, priority=TOP, due_in=timedelta(days=1)), now=now
        )
    await seed(table.database.run, Batch(count=table.rows - count), now=now - timedelta(seconds=1))
    await trio.to_thread.run_sync(tidy, table.url)


def tidy(url: str) -> None:
    """What autovacuum does a minute later."""
    if url.startswith("sqlite"):
        return
    engine = create_engine(make_url(url).set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text("VACUUM ANALYZE jobs"))
        connection.execute(text("CHECKPOINT"))


def timed_claim(connection: Connection) -> float:
    """Microseconds."""
    now = datetime.now(UTC)
    began = time.perf_counter()
    claimed = claim(connection, owner=OWNER, kinds=(KIND, BLOCKED), priorities=(TOP, NORMAL, LOW), limit=LIMIT, now=now)
    took_us = (time.perf_counter() - began) * 1e6
    assert len(claimed) == LIMIT
    assert all(job.kind == KIND for job in claimed)
    return took_us


async def compare(tables: Sequence[Table], *, rounds: int, claims: int) -> list[list[float]]:
    """The median of each table in each round; the tables take turns claim by claim."""
    medians = []
    for _ in range(rounds):
        samples = [[await table.database.run(timed_claim) for table in tables] for _ in range(claims)]
        medians.append([statistics.median(column) for column in zip(*samples, strict=True)])
    return medians


async def measure(shape: str, chosen: dict[str, Any]) -> list[list[float]]:
    tables = open_tables(chosen)
    async with trio.open_nursery() as nursery:
        for table in tables:
            await nursery.start(table.database)
            await fill(table, shape)
        await compare(tables, rounds=1, claims=WARM_UP)
        medians = await compare(tables, rounds=chosen["rounds"], claims=chosen["claims"])
        for table in tables:
            table.database.stop()
    return medians


if __name__ == "__main__":
    print(json.dumps(trio.run(measure, sys.argv[1], json.loads(sys.argv[2]))))
