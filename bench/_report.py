"""How does a benchmark speak? A table of medians and ranges, then one line per goal; exit code 1 when one is missed."""

from __future__ import annotations

import argparse
import json
import operator
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

from attrs import asdict, frozen

Sign = Literal[">=", "<="]
_HOLDS: Final[Mapping[Sign, Callable[[float, float], bool]]] = {">=": operator.ge, "<=": operator.le}


@frozen
class Row:
    """What one contestant measured, round by round."""

    name: str
    unit: str
    samples: Sequence[float]

    @property
    def median(self) -> float:
        """The middle of the rounds: a machine that is shared makes means worthless."""
        return statistics.median(self.samples)


@frozen
class Goal:
    """What was reached, and what we aim at."""

    name: str
    value: float
    sign: Sign
    limit: float

    @property
    def is_met(self) -> bool:
        """Whether what was reached is enough."""
        return _HOLDS[self.sign](self.value, self.limit)

    @property
    def line(self) -> str:
        """The goal as `bench/RESULTS.md` and people read it.

        >>> Goal("jobs.sqlite_full_vs_huey", 5.1, ">=", 4).line
        'goal jobs.sqlite_full_vs_huey 5.10 >= 4.00 met'
        """
        return f"goal {self.name} {self.value:.2f} {self.sign} {self.limit:.2f} {'met' if self.is_met else 'missed'}"


@frozen
class Options:
    """How the benchmark was asked to run."""

    quick: bool
    json: Path | None


def read_options(description: str | None, arguments: Sequence[str] | None = None) -> Options:
    """Parse the command line that all benchmarks share."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds: done in under 60 s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write rows and goals here")
    given = parser.parse_args(arguments)
    return Options(quick=given.quick, json=given.json)


def table(rows: Iterable[Row]) -> str:
    """Medians and ranges, one contestant a line."""
    cells = [("", "median", "range", "")]
    cells += [
        (row.name, _number(row.median), f"{_number(min(row.samples))} - {_number(max(row.samples))}", row.unit)
        for row in rows
    ]
    widths = [max(len(line[column]) for line in cells) for column in range(3)]
    return "\n".join(
        f"{name:<{widths[0]}}  {median:>{widths[1]}}  {spread:>{widths[2]}}  {unit}".rstrip()
        for name, median, spread, unit in cells
    )


def finish(options: Options, rows: Sequence[Row], goals: Sequence[Goal]) -> int:
    """Print all, write the JSON file if asked for, and return the exit code."""
    print(table(rows))
    print()
    for goal in goals:
        print(goal.line)
    if options.json is not None:
        found = {
            "rows": [asdict(row) | {"median": row.median} for row in rows],
            "goals": [asdict(goal) | {"is_met": goal.is_met} for goal in goals],
        }
        options.json.write_text(json.dumps(found, indent=2) + "\n")
    return 0 if all(goal.is_met for goal in goals) else 1


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
