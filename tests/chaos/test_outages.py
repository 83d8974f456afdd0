"""PostgreSQL goes away under load: the service waits, goes on, loses nothing, and runs nothing twice that lives."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from tests.chaos.conftest import Hire, Tell
from tests.chaos.journal import ENDED, STOPPED, overlaps
from tests.chaos.ledger import Ledger, assert_one_completion_each, open_ledger
from tests.chaos.worker import DEAD_AFTER_S, NEVER_S
from tests.postgres import PostgresServer, StopMode

JOBS = 300
SLOTS = 4
LOCK_S = 3 * DEAD_AFTER_S
"""Longer than the gateways' back-off: who notices first that the server is back must not bury who has not yet."""


@pytest.fixture
def private_ledger(private_postgres: PostgresServer) -> Iterator[Ledger]:
    """A database on a server that the test may stop."""
    with open_ledger(private_postgres.create_database()) as ledger:
        yield ledger


@pytest.mark.slow("stops a server of its own")
@pytest.mark.parametrize("mode", ["fast", "immediate"])
async def test_an_outage_shorter_than_the_lock_time_out_executes_nothing_twice(
    private_postgres: PostgresServer, private_ledger: Ledger, hire: Hire, tell: Tell, mode: StopMode, tmp_path: Path
) -> None:
    ledger = private_ledger
    crew = hire(ledger, concurrency=SLOTS, lock_timeout_s=NEVER_S)
    gate = tmp_path / "gate"
    short, long = ledger.enqueue([{"s": 0.05}] * JOBS), ledger.enqueue([{"until": str(gate)}] * 4, priority=0)
    ids = short + long

    await crew.start_many(2)
    for job in long:
        await crew.journal.began(job)
    await crew.journal.until(lambda: len(crew.journal.of(ENDED)) > 30, why="some jobs to be done")
    await trio.to_thread.run_sync(private_postgres.stop, mode)
    await trio.sleep(1.0)
    await trio.to_thread.run_sync(private_postgres.start)
    gate.touch()
    await ledger.until_finished()
    await crew.dismiss()

    crew.assert_nobody_crashed()
    assert ledger.states() == {"succeeded": len(ids)}
    assert_one_completion_each(ledger.changes(), ids)
    assert crew.journal.of("worker.unconfirmed") == crew.journal.of("worker.buried") == []
    assert crew.journal.second_executions() == 0
    assert {job.attempts for job in ledger.jobs()} == {0}
    away_s = [round(entry.facts["away_s"], 1) for entry in crew.journal.of("storage.back")]
    tell(f"away for {away_s} s as the processes saw it, 0 of {len(ids)} jobs executed again")


@pytest.mark.slow("stops a server of its own for longer than the lock time-out")
@pytest.mark.parametrize("mode", ["fast", "immediate"])
async def test_an_outage_longer_than_the_lock_time_out_stops_handlers_and_runs_nothing_twice_at_once(
    private_postgres: PostgresServer, private_ledger: Ledger, hire: Hire, tell: Tell, mode: StopMode, tmp_path: Path
) -> None:
    ledger = private_ledger
    crew = hire(ledger, concurrency=SLOTS, lock_timeout_s=LOCK_S)
    gate = tmp_path / "gate"
    short, long = ledger.enqueue([{"s": 0.05}] * JOBS), ledger.enqueue([{"until": str(gate)}] * 4, priority=0)

    await crew.start_many(2)
    for job in long:
        await crew.journal.began(job)
    await crew.journal.until(lambda: len(crew.journal.of(ENDED)) > 30, why="some jobs to be done")
    await trio.to_thread.run_sync(private_postgres.stop, mode)
    await crew.journal.heard(STOPPED, times=len(long))
    gate.touch()
    await trio.sleep(LOCK_S / 2)
    await trio.to_thread.run_sync(private_postgres.start)
    await ledger.until_finished()
    await crew.dismiss()

    crew.assert_nobody_crashed()
    assert ledger.states() == {"succeeded": len(short + long)}
    assert_one_completion_each(ledger.changes(), short + long)
    assert overlaps(crew.journal.executions()) == []
    assert {entry.facts["job"] for entry in crew.journal.of(STOPPED)} == set(long), "stopped, because unconfirmed"
    assert {job for job, times in crew.journal.times_run().items() if times > 1} == set(long), "and given back"
    assert {job.attempts for job in ledger.jobs()} == {0}
    assert crew.journal.of("worker.buried") == []
    tell(
        f"{len(crew.journal.of('worker.unconfirmed'))} processes stopped handlers, {crew.journal.second_executions()} again"
    )
