"""A stop in the middle of searches, jobs and checks gives the same trace for the same seed, in every process and Python."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.supervisors.stopping import SEED, trace

HERE = Path(__file__).parent
STORED = HERE / "stop_trace.txt"


def test_the_trace_of_a_stop_is_the_stored_one_on_every_python() -> None:
    # `make check` runs this on the oldest and on the newest Python.
    stored = STORED.read_text(encoding="utf-8").splitlines()

    assert trace() == stored, (
        "if the change is meant: python -m tests.supervisors.stopping > tests/supervisors/stop_trace.txt"
    )


@pytest.mark.slow("three runs of a whole service")
def test_a_second_run_in_the_same_process_gives_the_same_trace_and_another_seed_another() -> None:
    assert trace(SEED) == trace(SEED) != trace(SEED + 1)


@pytest.mark.slow("three processes")
@pytest.mark.parametrize("hash_seed", ["0", "1", "4242"])
def test_the_trace_does_not_depend_on_the_hash_seed(hash_seed: str) -> None:
    there = subprocess.run(
        [sys.executable, "-m", "tests.supervisors.stopping"],
        cwd=HERE.parent.parent,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )

    assert there.stdout.splitlines() == trace()
