"""Processes are killed without a warning: nothing is lost, nothing counts twice, and nobody pays who did not run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import trio

from tests.chaos.conftest import Hire, Tell
from tests.chaos.crew import Crew
from tests.chaos.journal import BEGAN, KILLED
from tests.chaos.ledger import Ledger, assert_one_completion_each
from tests.chaos.sizes import JOBS, KILLS, PATIENCE_S
from tests.chaos.worker import NEVER_S
from tests.storage.proxy import Cut, proxied

SLOTS = 4
PAGE = 200


async def kill_every_second(crew: Crew) -> None:
    """Kill one of two processes, again and again; each time another takes its place."""
    victim = await crew.start().ready()
    for _ in range(KILLS):
        await trio.sleep(1.0)
        await victim.kill()
        victim = await crew.start().ready()


@pytest.mark.slow("kills a process every second")
async def test_a_process_killed_every_second_loses_nothing_and_completes_nothing_twice(
    ledger: Ledger, hire: Hire, tell: Tell
) -> None:
    crew = hire(ledger, concurrency=SLOTS)
    takes_s = 1.5 * KILLS * 2 * SLOTS / JOBS
    ids = [i for _ in range(JOBS // PAGE) for i in ledger.enqueue([{"s": takes_s}] * PAGE, max_attempts=100)]

    await crew.start().ready()
    await kill_every_second(crew)
    await ledger.until_finished(within_s=PATIENCE_S)

    assert ledger.states() == {"succeeded": JOBS}
    assert_one_completion_each(ledger.changes(), ids)
    assert all(times <= 1 for times in Counter(e.facts["job_id"] for e in crew.journal.of("job.completed")).values())
    again, kills = crew.journal.second_executions(), len(crew.journal.of(KILLED))
    attempts = sum(job.attempts for job in ledger.jobs())
    assert again <= kills * SLOTS
    tell(f"{kills} kills, {SLOTS} slots: {again} of {JOBS} jobs executed again, {attempts} attempts counted")


@pytest.mark.slow("kills a process twenty times")
async def test_twenty_kills_never_fail_a_job_that_had_not_started(ledger: Ledger, hire: Hire, tmp_path: Path) -> None:
    crew = hire(ledger, concurrency=1)
    gate = tmp_path / "gate"
    blockers = ledger.enqueue([{"until": str(gate)}] * 21, priority=0, max_attempts=50)
    waiting = ledger.enqueue([{}] * 100, max_attempts=2)

    for _ in range(20):
        worker = crew.start()
        await crew.journal.heard(BEGAN, pid=worker.pid)
        await worker.kill()
    assert {ledger.show(job).attempts for job in waiting} == {0}
    gate.touch()
    await crew.start().ready()
    await ledger.until_finished()

    assert ledger.states() == {"succeeded": 121}
    assert {ledger.show(job).attempts for job in waiting} == {0}
    assert all(crew.journal.times_run()[job] == 1 for job in waiting)
    assert sum(ledger.show(job).attempts for job in blockers) == 20
    crew.assert_nobody_crashed()


async def keep_alive(crew: Crew, number: int) -> None:
    """Start another process for each that dies."""
    while True:
        for worker in list(crew.alive):
            crew.ended(worker.pid)
        while len(crew.alive) < number:
            crew.start()
        await trio.sleep(0.02)


@pytest.mark.slow("a job kills its process three times")
async def test_a_poison_job_ends_as_failed_and_the_others_complete(ledger: Ledger, hire: Hire, tell: Tell) -> None:
    crew = hire(ledger, concurrency=SLOTS)
    (poison,) = ledger.enqueue([{"kill": True}], max_attempts=3)
    others = ledger.enqueue([{"s": 0.2}] * 50)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep_alive, crew, 2)
        await ledger.until_finished()
        nursery.cancel_scope.cancel()

    view = ledger.show(poison)
    assert (view.state, view.attempts) == ("failed", 3)
    assert crew.journal.times_run()[poison] == 3
    assert ledger.states() == {"failed": 1, "succeeded": 50}
    assert_one_completion_each(ledger.changes(), others)
    assert len(crew.journal.of(KILLED)) == 3
    tell(f"3 deaths cost the other 50 jobs {sum(ledger.show(job).attempts for job in others)} attempts")


@pytest.mark.xfail(reason="what was claimed counts as begun, although its handler may never have been called")
@pytest.mark.slow("a process dies and is buried")
async def test_a_job_that_was_claimed_and_never_begun_does_not_pay_for_the_death_of_its_owner(
    postgres_ledger: Ledger, hire: Hire
) -> None:
    ledger = postgres_ledger
    async with proxied(ledger.url) as proxy:
        crew = hire(ledger)
        owner = await crew.start(url=proxy.url, heartbeat_s=20.0, lock_timeout_s=NEVER_S, sweep_s=60.0).ready()
        proxy.cut_at("COMMIT", Cut.AFTER, after="marked", closes=True)
        (job,) = ledger.enqueue([{"mark": "marked"}], max_attempts=1)
        await crew.journal.until(lambda: proxy.cuts == 1, why="the job to be claimed")
        await owner.kill()

    await crew.start().ready()
    await ledger.until_finished()

    assert crew.journal.of(BEGAN, pid=owner.pid) == []
    assert (ledger.show(job).state, ledger.show(job).attempts) == ("succeeded", 0)
