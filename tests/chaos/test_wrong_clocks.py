"""Processes whose wall clocks are twenty minutes apart: nobody who lives is buried, and jobs run."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from tests.chaos.conftest import Hire, Tell
from tests.chaos.journal import ENDED
from tests.chaos.ledger import Ledger, assert_one_completion_each
from tests.chaos.worker import DEAD_AFTER_S

SLOTS = 4
OFF_S = 600.0
LONG_AGO_S = -2 * OFF_S
"""Due for everybody, however slow their clock."""


@pytest.mark.slow("works for several lock time-outs")
async def test_processes_with_clocks_twenty_minutes_apart_share_the_work_and_bury_nobody(
    ledger: Ledger, hire: Hire, tell: Tell, tmp_path: Path
) -> None:
    crew = hire(ledger, concurrency=SLOTS)
    ahead = await crew.start(clock_off_s=OFF_S).ready()
    behind = await crew.start(clock_off_s=-OFF_S).ready()

    # More than one process has slots for, so that both take part.
    waiting = [{"until": str(tmp_path / "gate")}] * (SLOTS + 1)
    ids = ledger.enqueue(waiting, due_s=LONG_AGO_S - 1, priority=0)
    ids += ledger.enqueue([{"s": 0.1}] * 400, due_s=LONG_AGO_S) + ledger.enqueue([{}] * 20)
    for job in ids[: len(waiting)]:
        await crew.journal.began(job)
    await trio.sleep(3 * DEAD_AFTER_S)
    (tmp_path / "gate").touch()
    await ledger.until_finished()

    assert crew.journal.of("worker.buried") == crew.journal.of("worker.lease_lost") == []
    assert_one_completion_each(ledger.changes(), ids)
    assert crew.journal.second_executions() == 0
    done = [len(crew.journal.of(ENDED, pid=worker.pid)) for worker in (ahead, behind)]
    assert min(done) > 0, "both took part"
    crew.assert_nobody_crashed()
    tell(f"done by the one ahead and the one behind: {done}")


@pytest.mark.slow("a process dies and is buried")
@pytest.mark.parametrize("off_s", [OFF_S, -OFF_S], ids=["ahead", "behind"])
async def test_a_dead_process_with_a_wrong_clock_is_buried_all_the_same(
    ledger: Ledger, hire: Hire, tmp_path: Path, off_s: float
) -> None:
    crew = hire(ledger, concurrency=1)
    dead = await crew.start(clock_off_s=off_s).ready()
    (job,) = ledger.enqueue([{"until": str(tmp_path / "gate")}], due_s=LONG_AGO_S)
    await crew.journal.began(job)

    await dead.kill()
    (tmp_path / "gate").touch()
    await crew.start().ready()
    await ledger.until_finished()

    assert (ledger.show(job).state, ledger.show(job).attempts) == ("succeeded", 1)


@pytest.mark.slow("stops a process in the middle of a job")
async def test_what_a_process_with_a_fast_clock_gives_back_is_due_for_the_others(
    ledger: Ledger, hire: Hire, tmp_path: Path
) -> None:
    crew = hire(ledger, concurrency=1, grace_s=0.1)
    ahead = await crew.start(clock_off_s=OFF_S).ready()
    (job,) = ledger.enqueue([{"until": str(tmp_path / "gate")}], due_s=LONG_AGO_S)
    await crew.journal.began(job)

    await ahead.leave()
    (tmp_path / "gate").touch()
    await crew.start(clock_off_s=-OFF_S).ready()
    await ledger.until_finished()

    assert crew.journal.times_run()[job] == 2
    assert ledger.show(job).attempts == 0
