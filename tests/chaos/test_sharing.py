"""Several processes share one database: each job is done once, and all of them work."""

from __future__ import annotations

import pytest

from tests.chaos.conftest import Hire, Tell
from tests.chaos.crew import Crew
from tests.chaos.journal import ENDED
from tests.chaos.ledger import Ledger, assert_one_completion_each
from tests.chaos.sizes import JOBS, PATIENCE_S

PAGE = 200


async def share(ledger: Ledger, crew: Crew, number: int) -> list[int]:
    """Let so many processes work on all jobs. Returns how many each has done."""
    # Nobody dies here: a busy machine must not make a process look dead, or its jobs would rightly be run again.
    await crew.start_many(number, concurrency=20, lock_timeout_s=60.0)
    ids = [id_ for _ in range(JOBS // PAGE) for id_ in ledger.enqueue([{"s": 0.01}] * PAGE)]
    await ledger.until_finished(within_s=PATIENCE_S)
    await crew.dismiss()

    assert ledger.states() == {"succeeded": JOBS}
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
    postgres_ledger: Ledger, hire: Hire, tell: Tell, number: int
) -> None:
    done = await share(postgres_ledger, hire(postgres_ledger), number)

    assert len(done) == number, "all took part"
    tell(f"{JOBS} jobs, done by each process: {done}")


@pytest.mark.slow("thousands of jobs in several processes")
async def test_two_processes_on_one_sqlite_file_do_each_job_exactly_once(
    sqlite_ledger: Ledger, hire: Hire, tell: Tell
) -> None:
    done = await share(sqlite_ledger, hire(sqlite_ledger), 2)

    assert len(done) == 2, "all took part"
    tell(f"{JOBS} jobs, done by each process: {done}")
