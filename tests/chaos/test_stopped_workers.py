"""Processes are asked to stop: they finish or give back what they have, and nothing runs a second time without need."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
import trio

from tests.chaos.conftest import Hire, Tell
from tests.chaos.crew import Crew
from tests.chaos.journal import ENDED, STOPPED
from tests.chaos.ledger import Ledger, assert_one_completion_each
from tests.chaos.sizes import JOBS, KILLS, PATIENCE_S
from tests.chaos.worker import NEVER_S

SLOTS = 4
PAGE = 200


async def stop_every_second(crew: Crew) -> None:
    """Stop one of two processes, again and again; each time another takes its place."""
    victim = await crew.start().ready()
    for _ in range(KILLS):
        await trio.sleep(1.0)
        await victim.leave()
        victim = await crew.start().ready()


@pytest.mark.slow("stops a process every second")
async def test_a_process_stopped_every_second_executes_nothing_twice(ledger: Ledger, hire: Hire, tell: Tell) -> None:
    crew = hire(ledger, concurrency=SLOTS, lock_timeout_s=NEVER_S)
    takes_s = 1.5 * KILLS * 2 * SLOTS / JOBS
    ids = [i for _ in range(JOBS // PAGE) for i in ledger.enqueue([{"s": takes_s}] * PAGE)]

    await crew.start().ready()
    await stop_every_second(crew)
    await ledger.until_finished(within_s=PATIENCE_S)
    await crew.dismiss()

    crew.assert_nobody_crashed()
    assert ledger.states() == {"succeeded": JOBS}
    assert_one_completion_each(ledger.changes(), ids)
    assert {job.attempts for job in ledger.jobs()} == {0}
    assert crew.journal.second_executions() == 0
    tell(f"{KILLS} stops: 0 of {JOBS} jobs executed again")


@pytest.mark.slow("stops a process in the middle of a job")
async def test_a_handler_longer_than_the_grace_is_given_back_at_once_and_no_attempt_is_counted(
    ledger: Ledger, hire: Hire, tell: Tell, tmp_path: Path
) -> None:
    # No time-out gives the job to the second process, only that the first gives it back.
    crew = hire(ledger, concurrency=1, lock_timeout_s=NEVER_S, poll_s=300.0)
    first = await crew.start(grace_s=0.3).ready()
    (job,) = ledger.enqueue([{"until": str(tmp_path / "gate")}])
    await crew.journal.began(job)
    second = await crew.start(heartbeat_s=60.0, sweep_s=3_600.0).ready()

    first.send(signal.SIGTERM)
    asked_at = trio.current_time()
    again = await crew.journal.began(job, times=2)
    taken_over_s = trio.current_time() - asked_at
    (tmp_path / "gate").touch()
    await ledger.until_finished()

    before, after = crew.journal.executions_of(job)
    assert (before.how, after.how) == (STOPPED, ENDED)
    assert (again.pid, again.attempt) == (second.pid, 1)
    assert before.over_at <= after.began_at
    assert ledger.show(job).attempts == 0
    assert crew.journal.of("worker.buried") == crew.journal.of("worker.unconfirmed") == []
    crew.assert_nobody_crashed()
    tell(f"taken over {taken_over_s:.2f} s after the signal, with a grace of 0.3 s")
