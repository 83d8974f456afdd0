"""The same seed gives the same run, event for event, in every process and on every Python."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import trio

from cormorant.testing import START, Simulation, simulated
from tests.simulated_run import trace

ROOT = Path(__file__).parent.parent


def other_pythons() -> list[str]:
    """This Python in another process, and every environment of this project that was made with another one."""
    return [sys.executable, *(str(python) for python in sorted(ROOT.glob(".venv*/bin/python")) if _works(python))]


def _works(python: Path) -> bool:
    return subprocess.run([python, "-c", "import supervisors, storage"], cwd=ROOT, check=False).returncode == 0


@pytest.mark.slow("a thousand events of a real tree, once here and once for each Python that is installed")
def test_one_seed_gives_one_trace_in_every_process_and_on_every_python() -> None:
    here = trace(11)

    for python in other_pythons():
        there = subprocess.run(
            [python, "-m", "tests.simulated_run", "11"], cwd=ROOT, capture_output=True, text=True, check=True
        )
        assert there.stdout.strip() == here, python


@pytest.mark.slow("a thousand events of a real tree, twice")
def test_another_seed_gives_another_trace() -> None:
    assert trace(11) != trace(12)


def test_hours_pass_at_once_and_the_wall_clock_follows() -> None:
    simulation = simulated(1)

    async def main(simulation: Simulation) -> float:
        await trio.sleep(3600)
        return (simulation.clock.now() - START).total_seconds()

    assert simulation.run(main, simulation) == 3600.0


def test_a_jump_of_the_wall_clock_does_not_touch_waiting() -> None:
    simulation = simulated(1)

    async def main(simulation: Simulation) -> tuple[float, float]:
        simulation.clock.jump(-600)
        await trio.sleep(10)
        return trio.current_time(), (simulation.clock.now() - START).total_seconds()

    assert simulation.run(main, simulation) == (10.0, -590.0)
