"""A process, or its way to the database, stands still for longer than the others wait, and then comes back.

On PostgreSQL only: on a SQLite file a process that is stopped inside its transaction holds up all others, which is an
outage and no take-over.
"""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from sqlalchemy import Connection, text

from tests.bounds import WAIT_S
from tests.chaos.conftest import Hire, Tell
from tests.chaos.journal import BEGAN, ENDED, LOOK_S, STOPPED, overlaps
from tests.chaos.ledger import Ledger, assert_one_completion_each, open_ledger
from tests.chaos.worker import DEAD_AFTER_S
from tests.postgres import PostgresServer

OURS = "SELECT pid FROM pg_stat_activity WHERE application_name = 'cormorant'"


@pytest.mark.slow("stops a process for longer than the lock time-out")
@pytest.mark.parametrize("is_over", [True, False], ids=["over", "under way"])
async def test_a_process_that_was_stopped_changes_nothing_registers_anew_and_works(
    postgres_ledger: Ledger,
    hire: Hire,
    tmp_path: Path,
    is_over: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    ledger, gate = postgres_ledger, tmp_path / "gate"
    crew = hire(ledger, concurrency=1)
    stale = await crew.start().ready()
    (job,) = ledger.enqueue([{"until": str(gate)}])
    await crew.journal.began(job)
    other = await crew.start().ready()

    stale.send(signal.SIGSTOP)
    await crew.journal.began(job, times=2)
    owner = ledger.show(job).owner
    if is_over:
        gate.touch()
    stale.send(signal.SIGCONT)
    await crew.journal.heard("worker.registered", pid=stale.pid, times=2)
    gate.touch()
    await ledger.until_finished()
    await other.leave()
    (next_job,) = ledger.enqueue([{}])
    await ledger.until_finished()

    first, second = crew.journal.executions_of(job)
    assert (first.pid, second.pid, second.how) == (stale.pid, other.pid, ENDED)
    assert first.how == STOPPED or crew.journal.of("job.result_dropped", pid=stale.pid)
    assert_one_completion_each(ledger.changes(), [job, next_job])
    assert next(change.owner for change in ledger.changes() if change.became == "succeeded") == owner
    assert (ledger.show(job).attempts, ledger.show(job).reclaims) == (1, 1)
    assert crew.journal.executions_of(next_job)[0].pid == stale.pid, "it works again"
    crew.assert_nobody_crashed()


@pytest.mark.slow("a handler blocks its process for longer than the lock time-out")
async def test_a_process_that_stood_still_begins_nothing_that_others_may_have_taken(
    postgres_ledger: Ledger, hire: Hire, tmp_path: Path
) -> None:
    crew = hire(postgres_ledger, concurrency=2)
    stale = await crew.start().ready()
    postgres_ledger.enqueue([{"block": str(tmp_path / "gate")}] * 2)
    await crew.journal.heard(BEGAN, pid=stale.pid)

    other = await crew.start().ready()
    await postgres_ledger.until_finished()
    (tmp_path / "gate").touch()
    await crew.journal.heard("worker.registered", pid=stale.pid, times=2)

    assert len(crew.journal.of(ENDED, pid=other.pid)) == 2, "both were claimed by the one that stood still"
    assert len(crew.journal.of(BEGAN, pid=stale.pid)) == 1


@asynccontextmanager
async def lines_that_hang(ledger: Ledger) -> AsyncIterator[None]:
    """Every connection that is open now stands still, at a moment in which none holds a lock."""
    pids = ledger.run(_lines)
    with trio.fail_after(WAIT_S):
        while not await _is_stopped_while_idle(ledger, pids):
            _signal(pids, signal.SIGCONT)
            await trio.sleep(LOOK_S)
    try:
        yield
    finally:
        _signal(pids, signal.SIGCONT)


async def _is_stopped_while_idle(ledger: Ledger, pids: list[int]) -> bool:
    _signal(pids, signal.SIGSTOP)
    while not all(_is_stopped(pid) for pid in pids):
        await trio.sleep(LOOK_S)
    return ledger.run(_busy) == []


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        os.kill(pid, number)


def _is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def _lines(connection: Connection) -> list[int]:
    return list(connection.execute(text(OURS)).scalars())


def _busy(connection: Connection) -> list[int]:
    return list(connection.execute(text(f"{OURS} AND state <> 'idle'")).scalars())


@pytest.mark.slow("lets connections hang for longer than the lock time-out")
async def test_a_process_whose_line_hangs_stops_its_handlers_before_another_runs_them(
    private_postgres: PostgresServer, hire: Hire, tmp_path: Path, tell: Tell
) -> None:
    with open_ledger(private_postgres.create_database()) as ledger:
        # The first stops its handlers after four fifths of the lock time-out: the rest is what it may be late by.
        crew = hire(ledger, concurrency=1, lock_timeout_s=3 * DEAD_AFTER_S)
        cut_off = await crew.start().ready()
        (job,) = ledger.enqueue([{"until": str(tmp_path / "gate")}])
        await crew.journal.began(job)

        async with lines_that_hang(ledger):
            other = await crew.start().ready()
            again = await crew.journal.began(job, times=2)
            (tmp_path / "gate").touch()
            await ledger.until_finished()
        await crew.journal.heard("worker.registered", pid=cut_off.pid, times=2)

    assert again.pid == other.pid
    assert overlaps(crew.journal.executions()) == []
    crew.assert_nobody_crashed()
