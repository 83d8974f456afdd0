"""An idle process hears at once of a job that another process enqueues, long before it would look by itself."""

from __future__ import annotations

import statistics
import time

import pytest
from sqlalchemy import Connection, text

from tests.chaos.conftest import Hire, Tell
from tests.chaos.crew import Crew
from tests.chaos.ledger import Ledger
from tests.chaos.worker import NEVER_S

IDLE = {"poll_s": 300.0, "heartbeat_s": 60.0, "lock_timeout_s": NEVER_S, "sweep_s": 3_600.0}
"""It looks for jobs when it is woken up, and otherwise only at its heartbeats."""
CUTS = 5

LISTENERS = "FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'"


async def pickup_s(ledger: Ledger, crew: Crew) -> float:
    """Enqueue a job on a plain connection. How long after COMMIT its handler begins in the other process."""
    (job,) = ledger.enqueue([{}])
    enqueued_at = time.monotonic()
    execution = await crew.journal.began(job)
    await ledger.until_finished()
    return execution.began_at - enqueued_at


def beats(ledger: Ledger) -> int:
    """How many heartbeats the one process has had."""
    (worker,) = ledger.workers()
    return worker.beat


def listeners(connection: Connection) -> list[int]:
    return list(connection.execute(text(f"SELECT pid {LISTENERS}")).scalars())


def hang_up(connection: Connection) -> None:
    connection.execute(text(f"SELECT pg_terminate_backend(pid) {LISTENERS}"))


@pytest.mark.slow("a process starts and is woken up several times")
async def test_a_job_enqueued_by_another_process_is_picked_up_at_once(ledger: Ledger, hire: Hire, tell: Tell) -> None:
    crew = hire(ledger, **IDLE)
    await crew.start().ready()

    waits = [await pickup_s(ledger, crew) for _ in range(20)]

    assert 2 * beats(ledger) < len(waits), "it was not the heartbeats that found the jobs"
    tell(
        f"picked up after {statistics.median(waits) * 1000:.1f} ms (median of 20), {max(waits) * 1000:.1f} ms (longest)"
    )


async def until_heard(ledger: Ledger, crew: Crew, before: set[int]) -> None:
    """Wait until the process listens over a new line."""
    await crew.journal.until(lambda: bool(set(ledger.run(listeners)) - before), why="somebody to listen")


@pytest.mark.slow("a process starts, and listens anew several times")
async def test_a_job_enqueued_while_nobody_listened_is_picked_up_as_soon_as_somebody_does(
    postgres_ledger: Ledger, hire: Hire, tell: Tell
) -> None:
    ledger = postgres_ledger
    crew = hire(ledger, **IDLE)
    await crew.start().ready()
    before: set[int] = set()
    while_deaf_s, afterwards_s = [], []
    for _ in range(CUTS):
        await until_heard(ledger, crew, before)
        before = set(ledger.run(listeners))
        ledger.run(hang_up)
        while_deaf_s.append(await pickup_s(ledger, crew))
        await until_heard(ledger, crew, before)
        afterwards_s.append(await pickup_s(ledger, crew))

    assert 2 * beats(ledger) < CUTS, "it was not the heartbeats that found the jobs"
    crew.assert_nobody_crashed()
    tell(
        f"picked up at most {max(while_deaf_s) * 1000:.0f} ms after its line was cut,"
        f" and {max(afterwards_s) * 1000:.1f} ms later on"
    )
