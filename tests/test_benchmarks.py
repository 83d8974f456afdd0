"""Benchmarks can be run as files, although one of them has the name of a package."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

BENCH = Path(__file__).parent.parent / "bench"
FILES = sorted(path for path in BENCH.glob("*.py") if not path.name.startswith("_"))
OWN_IMPORT = re.compile(r"^from (?:actors|bench|cormorant|storage|supervisors|tests)\b", re.MULTILINE)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_benchmark_imports_nothing_of_the_project_before_it_can_find_it(path: Path) -> None:
    before, found, _ = path.read_text().partition("sys.path[0] = ")

    assert found
    assert OWN_IMPORT.search(before) is None
