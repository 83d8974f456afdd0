"""What does a due subscription cost? `-m bench.ours.due_rows measure SETTINGS`: files, how many rows in each, rounds.

Timed are `claim` of all that are due and `end_check` of each: by the processor inside their transactions, the least of some
samples, because others on the machine only add to it; of that what passes in statements, which is the database's; then on the
clock with COMMIT, a hundred ends at once and one by one. What is due lies anywhere in the table.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Self

import trio
from attrs import frozen
from sqlalchemy import Connection, text

from cormorant.rules.ports import ignore
from cormorant.rules.watch.feeds import CheckStatus, DueFeed, FeedCheck, after_check
from storage.database import Database, Mode, StorageOptions
from storage.engine.columns import to_micros
from storage.engine.statements import FastStatement
from storage.watch import feed_claims, feeds
from tests.leases import WORKER, register

PAGE = 50_000
DUE = 100
WARM_UP = 3
READINGS = 1_000

Told = tuple[float, float, float, float]
"""Microseconds a row: in statements, in the functions, with COMMIT together, with COMMIT one by one."""


@frozen
class Table:
    """A database with so many subscriptions in it."""

    database: Database
    rows: int


def open_tables(chosen: dict[str, Any]) -> list[Table]:
    return [
        Table(
            Database(
                StorageOptions(url=f"sqlite:///{file}", statement_timeout_s=120),
                mode=Mode.THREADS,
                emit=ignore,
                chance=random.Random(1),
            ),
            rows,
        )
        for file, rows in zip(chosen["files"], chosen["rows"], strict=True)
    ]


def insert(connection: Connection, first: int, count: int, later: int) -> None:
    connection.execute(
        text("""
            WITH RECURSIVE numbers(n) AS (SELECT :first UNION ALL SELECT n + 1 FROM numbers WHERE n < :first + :count - 1)
            INSERT INTO subscriptions (name, url, every_s, zone, origin, next_attempt_at, added_at, last_checked, last_success,
                                       etag, token, claimed_by)
            SELECT 'feed ' || n, 'http://feeds.example.org/' || n, 3600, 'UTC', 'bulk', :later + n * 7919 % 86400000000,
                   :later, :later, :later, 'e', 1, 'somebody'
            FROM numbers
        """),
        {"first": first, "count": count, "later": later},
    )
    # Each was in hand once: in pages without any room every first claim would divide one.
    connection.execute(text("UPDATE subscriptions SET claimed_by = NULL WHERE id >= :first"), {"first": first})


async def fill(table: Table) -> None:
    await table.database.run(register)
    later = to_micros(datetime.now(UTC) + timedelta(hours=1))
    for first in range(1, table.rows + 1, PAGE):
        await table.database.run(insert, first, min(PAGE, table.rows - first + 1), later)


def let_be_due(connection: Connection, numbers: Sequence[int], now: datetime) -> None:
    for number in numbers:
        feeds.reschedule(connection, number, now)


def claim(connection: Connection) -> tuple[float, list[DueFeed]]:
    """Seconds, and what was due."""
    now = datetime.now(UTC)
    began = time.thread_time()
    due = feed_claims.claim(connection, worker=WORKER, now=now, limit=DUE)
    return time.thread_time() - began, due


def end(connection: Connection, due: Sequence[DueFeed]) -> float:
    """Seconds."""
    now = datetime.now(UTC)
    ends = [
        (
            each,
            after_check(each, error=None, now=now),
            FeedCheck(subscription_id=each.id, started_at=now, status=CheckStatus.SUCCESS, items_found=20),
        )
        for each in due
    ]
    began = time.thread_time()
    for each, following, check in ends:
        assert feed_claims.end_check(connection, each, following, check=check, etag="e", last_modified=None)
    return time.thread_time() - began


class Watch:
    """Adds up what passes in statements, less what it takes to read the clock."""

    def __init__(self) -> None:
        self.seconds, self._reading_s = 0.0, 0.0
        nothing = self._timed(lambda: None)
        for _ in range(READINGS):
            nothing()
        self._reading_s, self.seconds = self.seconds / READINGS, 0.0

    def __enter__(self) -> Self:
        self._methods = {name: getattr(FastStatement, name) for name in ("change", "change_many", "rows")}
        for name, method in self._methods.items():
            setattr(FastStatement, name, self._timed(method))
        return self

    def __exit__(self, *_: object) -> None:
        for name, method in self._methods.items():
            setattr(FastStatement, name, method)

    def _timed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def run(*words: Any) -> Any:
            began = time.thread_time()
            found = method(*words)
            self.seconds += time.thread_time() - began - self._reading_s
            return found

        return run


async def make_due(table: Table, chance: random.Random) -> None:
    past = datetime.now(UTC) - timedelta(minutes=1)
    await table.database.run(let_be_due, chance.sample(range(1, table.rows + 1), DUE), past)


async def in_statements(table: Table, chance: random.Random) -> float:
    """Microseconds a row that are the database's."""
    await make_due(table, chance)
    with Watch() as watch:
        _, due = await table.database.run(claim)
        await table.database.run(end, due)
    return watch.seconds / DUE * 1e6


async def one_by_one(table: Table, chance: random.Random) -> float:
    """Microseconds a row when each end has its own COMMIT."""
    await make_due(table, chance)
    began = time.perf_counter()
    _, due = await table.database.run(claim)
    for each in due:
        await table.database.run(end, [each])
    return (time.perf_counter() - began) / DUE * 1e6


async def once(table: Table, chance: random.Random) -> tuple[float, float]:
    """Microseconds a row, without and with COMMIT."""
    await make_due(table, chance)
    began = time.perf_counter()
    claim_s, due = await table.database.run(claim)
    end_s = await table.database.run(end, due)
    whole_s = time.perf_counter() - began
    assert len(due) == DUE
    return (claim_s + end_s) / DUE * 1e6, whole_s / DUE * 1e6


async def compare(tables: Sequence[Table], rounds: int, samples: int) -> list[list[Told]]:
    """What each table took in each round; the tables take turns."""
    chance, medians = random.Random(5), []
    for _ in range(rounds):
        told = [
            [(await in_statements(table, chance), *await once(table, chance)) for table in tables]
            for _ in range(samples)
        ]
        apart = [await one_by_one(table, chance) for table in tables]
        medians.append(
            [
                (min(own), min(inner), statistics.median(whole), alone)
                for (own, inner, whole), alone in zip(
                    (zip(*each, strict=True) for each in zip(*told, strict=True)), apart, strict=True
                )
            ]
        )
    return medians


async def measure(chosen: dict[str, Any]) -> list[list[Told]]:
    tables = open_tables(chosen)
    async with trio.open_nursery() as nursery:
        for table in tables:
            await nursery.start(table.database)
            await fill(table)
        await compare(tables, 1, WARM_UP)
        medians = await compare(tables, chosen["rounds"], chosen["samples"])
        for table in tables:
            table.database.stop()
    return medians


if __name__ == "__main__":
    print(json.dumps(trio.run(measure, json.loads(sys.argv[2]))))
