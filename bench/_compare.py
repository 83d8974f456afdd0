"""Compares the benchmarks of an older commit with this one. Both alternate in one run, with short rounds.

    python -m bench._compare COMMIT [--rounds 10] [--only dispatch --only web]

The older commit runs twice per round, from two worktrees. The difference between these two is the noise of the machine. A figure
counts as equal if the medians differ by at most 3 %, or by no more than the older commit differs from itself.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from attrs import frozen

ROOT: Final = Path(__file__).parent.parent
TOLERANCE: Final = 0.03
OLD, NEW, OLD_AGAIN = "old", "new", "old again"

Figures = Mapping[str, float]


@frozen
class Comparison:
    """One figure of both versions over all rounds."""

    name: str
    samples: Mapping[str, Sequence[float]]

    def difference(self, version: str) -> float:
        """How far the median of a version is from that of the older commit, as a share of it.

        >>> round(Comparison("a", {"old": [100.0], "new": [102.0], "old again": [99.0]}).difference("new"), 3)
        0.02
        """
        old = statistics.median(self.samples[OLD])
        return abs(statistics.median(self.samples[version]) - old) / old if old else 0.0

    @property
    def is_equal(self) -> bool:
        """Whether both versions are equally fast, by the rule above."""
        return self.difference(NEW) <= max(TOLERANCE, self.difference(OLD_AGAIN))

    @property
    def line(self) -> str:
        """The figure as people read it."""
        medians = "  ".join(f"{version} {statistics.median(each):.4g}" for version, each in self.samples.items())
        shares = f"new {self.difference(NEW):.1%}, old against old {self.difference(OLD_AGAIN):.1%}"
        return f"{'equal  ' if self.is_equal else 'DIFFERS'} {self.name}: {medians}; {shares}"


def measure(place: Path, benchmark: str) -> Figures:
    """Run one benchmark of one version; the medians of its rows by name."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "figures.json"
        words = [sys.executable, f"bench/{benchmark}.py", "--quick", "--json", str(file)]
        environment = {**os.environ, "PYTHONPATH": str(place)}
        done = subprocess.run(words, cwd=place, env=environment, stdout=subprocess.DEVNULL, check=False)
        if not file.exists():
            raise RuntimeError(f"bench/{benchmark}.py of {place} ended with {done.returncode} and wrote nothing")
        return named(benchmark, json.loads(file.read_text())["rows"])


def named(benchmark: str, rows: Sequence[Mapping[str, object]]) -> Figures:
    """Medians by name. An indented row belongs to the one above it."""
    figures: dict[str, float] = {}
    above = ""
    for row in rows:
        name = str(row["name"])
        above = above if name.startswith(" ") else name
        label = f"{above}, {name.strip()}" if name.startswith(" ") else name
        figures[f"{benchmark}: {label} ({row['unit']})"] = float(str(row["median"]))
    return figures


@contextmanager
def worktrees(commit: str) -> Iterator[dict[str, Path]]:
    """Two worktrees of the older commit, and this one."""
    with tempfile.TemporaryDirectory(prefix="cormorant-compare-") as folder:
        places = {OLD: Path(folder) / "old", OLD_AGAIN: Path(folder) / "old-again"}
        for place in places.values():
            subprocess.run(["git", "worktree", "add", "-q", "--detach", str(place), commit], cwd=ROOT, check=True)
        try:
            yield {OLD: places[OLD], NEW: ROOT, OLD_AGAIN: places[OLD_AGAIN]}
        finally:
            for place in places.values():
                subprocess.run(["git", "worktree", "remove", "--force", str(place)], cwd=ROOT, check=True)


def compare(places: Mapping[str, Path], benchmarks: Sequence[str], rounds: int) -> Iterator[Comparison]:
    """Run every benchmark of every version, round by round; the versions change places from round to round."""
    for benchmark in benchmarks:
        samples: dict[str, dict[str, list[float]]] = {}
        for number in range(rounds):
            versions = list(places)[:: -1 if number % 2 else 1]
            for version in versions:
                for name, value in measure(places[version], benchmark).items():
                    samples.setdefault(name, {each: [] for each in places})[version].append(value)
        print(f"{benchmark}: {rounds} rounds", flush=True)
        for name, each in samples.items():
            if all(each.values()):
                yield Comparison(name, each)
            else:
                print(f"only in {[version for version, values in each.items() if values]}: {name}")


def main() -> int:
    """Print one line per figure. The exit code is 1 if any differs."""
    every = sorted(path.stem for path in (ROOT / "bench").glob("[a-z]*.py"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--only", action="append", choices=every, help="a benchmark; may be repeated")
    given = parser.parse_args()
    total = differing = 0
    with worktrees(given.commit) as places:
        for comparison in compare(places, given.only or every, given.rounds):
            print(comparison.line, flush=True)
            total += 1
            differing += not comparison.is_equal
    print(f"{total} figures, {differing} differ")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
