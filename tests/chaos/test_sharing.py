"""Several processes share one database: each job is done once, and all of them work."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from tests.chaos.conftest import Hire, Tell
from tests.chaos.crew import Crew
from tests.chaos.journal import BEGAN, ENDED
from tests.chaos.ledger import Ledger, assert_one_completion_each
from tests.chaos.sizes import JOBS, PATIENCE_S
from tests.chaos.worker import NEVER_S

PAGE = 200
SLOTS = 20


async def share(ledger: Ledger, crew: Crew, number: int, gate: Path) -> list[int]:
    """Let so many processes work on all jobs. Returns how many each has done."""
    # Nobody dies here: a busy machine must not make a process look dead, or its jobs would rightly be run again.
    await crew.start_many(number, concurrency=SLOTS, lock_timeout_s=NEVER_S)
    # More than all processes but one have slots for, so that all of them take part.
    waiting = ledger.enqueue([{"until": str(gate)}] * (SLOTS * (number - 1) + 1))
    await crew.journal.heard(BEGAN, times=len(waiting))
    await trio.Path(gate).touch()
    ids = [id_ for _ in range(JOBS // PAGE) for id_ in ledger.enqueue([{"s": 0.01}] * PAGE)]
    ids += waiting
    await ledger.until_finished(within_s=PATIENCE_S)
    await crew.dismiss()

    assert ledger.states() == {"succeeded": len(ids)}
    assert_one_completion_each(ledger.changes(), ids)
    assert crew.journal.times_run() == dict.fromkeys(ids, 1)
    assert {job.attempts for job in ledger.jobs()} == {0}
    assert ledger.workers() == [], "who left in good order is forgotten"
    crew.assert_nobody_crashed()
    pids = [entry.pid for entry in crew.journal.of(ENDED)]
    return [pids.count(pid) for pid in set(pids)]


@pytest.mark.slow("thousands of jobs in several processes")
@pytest.mark.parametrize("number", [2, 4])
async def test_processes_on_one_postgres_do_each_job_exactly_once(
    postgres_ledger: Ledger, hire: Hire, tell: Tell, tmp_path: Path, number: int
) -> None:
    done = await share(postgres_ledger, hire(postgres_ledger), number, tmp_path / "gate")

    assert len(done) == number, "all took part"
    tell(f"{JOBS} jobs, done by each process: {done}")


@pytest.mark.slow("thousands of jobs in several processes")
async def test_two_processes_on_one_sqlite_file_do_each_job_exactly_once(
    sqlite_ledger: Ledger, hire: Hire, tell: Tell, tmp_path: Path
) -> None:
    done = await share(sqlite_ledger, hire(sqlite_ledger), 2, tmp_path / "gate")

    assert len(done) == 2, "all took part"
    tell(f"{JOBS} jobs, done by each process: {done}")
