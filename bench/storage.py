"""What does group commit bring, and how long does a second process wait beside a busy one? On SQLite, synchronous=FULL.

A contestant's round: 64 tasks write one small row each, again and again. *Group commit* is the real gateway. *Thread hop*
is what most programs do: `trio.to_thread.run_sync` for each write, one connection, one transaction each, same settings.
"""

from __future__ import annotations

import random
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import trio
from sqlalchemy import BigInteger, Column, Connection, MetaData, NullPool, Table, bindparam, create_engine

# Run as a file, Python would look here first and take this very file for the package `storage`.
sys.path[0] = str(Path(__file__).parent.parent)

from bench._report import Goal, Options, Row, finish, read_options  # noqa: E402 - see above
from cormorant.rules.ports import ignore  # noqa: E402 - see above
from storage.database import Database, Mode, StorageOptions  # noqa: E402 - see above

WRITERS = 64
NEIGHBOUR = "--neighbour"

COUNTERS = Table(
    "counters", MetaData(), Column("id", BigInteger, primary_key=True), Column("value", BigInteger, nullable=False)
)
INCREASE = COUNTERS.update().where(COUNTERS.c.id == bindparam("number")).values(value=COUNTERS.c.value + 1)

Write = Callable[[int], Awaitable[None]]


def create_counters(connection: Connection) -> None:
    COUNTERS.create(connection)
    connection.execute(COUNTERS.insert(), [{"id": number, "value": 0} for number in range(WRITERS)])


def increase(connection: Connection, number: int) -> None:
    connection.execute(INCREASE, {"number": number})


def gateway(file: Path) -> Database:
    return Database(StorageOptions(url=f"sqlite:///{file}"), mode=Mode.THREADS, emit=ignore, chance=random.Random(1))


async def writes_per_second(write: Write, *, seconds: float) -> float:
    """How many writes are acknowledged while all writers write as fast as they can."""
    done = 0

    async def keep_writing(number: int) -> None:
        nonlocal done
        while time.perf_counter() < end:
            await write(number)
            done += 1

    started = time.perf_counter()
    end = started + seconds
    async with trio.open_nursery() as nursery:
        for number in range(WRITERS):
            nursery.start_soon(keep_writing, number)
    return done / (time.perf_counter() - started)


def grouped_writer(database: Database) -> Write:
    """Each write is a call of the real gateway."""

    async def write(number: int) -> None:
        await database.run(increase, number)

    return write


def thread_hop_writer(file: Path) -> tuple[Connection, Write]:
    """One connection, one transaction and one thread hop for each write."""
    engine = create_engine(
        "sqlite://", creator=partial(sqlite3.connect, file, check_same_thread=False), poolclass=NullPool
    )
    connection = engine.connect()
    connection.exec_driver_sql("PRAGMA synchronous = FULL")
    connection.exec_driver_sql("PRAGMA foreign_keys = ON")
    connection.commit()
    one_at_a_time = trio.CapacityLimiter(1)

    def write_and_commit(number: int) -> None:
        increase(connection, number)
        connection.commit()

    async def write(number: int) -> None:
        await trio.to_thread.run_sync(write_and_commit, number, limiter=one_at_a_time)

    return connection, write


async def compare(file: Path, *, rounds: int, seconds: float) -> tuple[Row, Row]:
    """Let both write in turn, so that a slow minute of the machine hits both."""
    grouped: list[float] = []
    hopped: list[float] = []
    async with trio.open_nursery() as nursery:
        database = gateway(file)
        await nursery.start(database)
        await database.run(create_counters)
        connection, hop = thread_hop_writer(file)
        with connection:
            for _ in range(rounds):
                grouped.append(await writes_per_second(grouped_writer(database), seconds=seconds))
                hopped.append(await writes_per_second(hop, seconds=seconds))
        database.stop()
    return Row("group commit", "writes/s", grouped), Row("thread hop", "writes/s", hopped)


async def be_busy(file: Path) -> None:
    """The neighbour: writes as fast as it can until its input ends."""
    async with trio.open_nursery() as nursery:
        database = gateway(file)
        await nursery.start(database)
        nursery.start_soon(writes_for_ever, grouped_writer(database))
        print("busy", flush=True)
        await trio.to_thread.run_sync(sys.stdin.read)
        nursery.cancel_scope.cancel()


async def writes_for_ever(write: Write) -> None:
    await writes_per_second(write, seconds=3600)


async def waits_beside_a_busy_process(file: Path, *, count: int) -> list[float]:
    """Milliseconds until a lone write is acknowledged, while another process writes without a pause."""
    waits: list[float] = []
    async with trio.open_nursery() as nursery:
        database = gateway(file)
        await nursery.start(database)
        for number in range(count):
            started = time.perf_counter()
            await database.run(increase, number % WRITERS)
            waits.append((time.perf_counter() - started) * 1000)
            await trio.sleep(0.001)
        database.stop()
    return waits


def second_process(file: Path, *, rounds: int, count: int) -> tuple[Row, Row, Row]:
    """The waits of a second process, round by round: the middle, the 99th of a hundred, the worst."""
    p50, p99, worst = [], [], []
    with subprocess.Popen(
        [sys.executable, __file__, NEIGHBOUR, file], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as neighbour:
        assert neighbour.stdin is not None
        assert neighbour.stdout is not None
        neighbour.stdout.readline()
        for _ in range(rounds):
            waits = trio.run(partial(waits_beside_a_busy_process, file, count=count))
            hundredths = statistics.quantiles(waits, n=100)
            p50.append(hundredths[49])
            p99.append(hundredths[98])
            worst.append(max(waits))
        neighbour.stdin.close()
    return Row("second process, p50", "ms", p50), Row("second process, p99", "ms", p99), Row("worst", "ms", worst)


def main(options: Options) -> int:
    """Run all of it."""
    rounds, seconds = (5, 1.0) if options.quick else (15, 2.0)
    with tempfile.TemporaryDirectory(prefix="cormorant-bench-") as folder:
        file = Path(folder) / "bench.db"
        grouped, hopped = trio.run(partial(compare, file, rounds=rounds, seconds=seconds))
        p50, p99, worst = second_process(file, rounds=rounds, count=1000)
    # Round by round: what slows the machine down slows both.
    ratios = [group / hop for group, hop in zip(grouped.samples, hopped.samples, strict=True)]
    goals = [
        Goal("storage.group_commit_vs_thread_hop", statistics.median(ratios), ">=", 8.0),
        Goal("storage.second_process_p99_ms", p99.median, "<=", 50.0),
    ]
    return finish(options, [grouped, hopped, p50, p99, worst], goals)


if __name__ == "__main__":
    if NEIGHBOUR in sys.argv:
        trio.run(be_busy, Path(sys.argv[-1]))
    else:
        sys.exit(main(read_options(__doc__)))
