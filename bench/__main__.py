"""Runs every benchmark and writes RESULTS.md: all goals in one table, then what each benchmark said."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from attrs import frozen

HERE = Path(__file__).parent
GOAL = re.compile(
    r"^goal (?P<name>\S+) (?P<got>\S+) (?P<relation>[<>]=?) (?P<wanted>\S+) (?P<verdict>met|missed)$", re.MULTILINE
)

HEADER = """# Results

Written by `make bench`. Only ratios within one run are stable: compare the columns of a table, not two runs.
"""


@frozen
class Run:
    """One benchmark: its name, what it printed, its exit code."""

    name: str
    output: str
    code: int

    @property
    def goals(self) -> list[re.Match[str]]:
        """The lines that compare what was measured with what is wanted."""
        return list(GOAL.finditer(self.output))

    @property
    def broke(self) -> bool:
        """Whether it ended without judging its goals. Code 1 is a missed goal, but also an uncaught error."""
        return self.code != 0 and not (self.code == 1 and any(goal["verdict"] == "missed" for goal in self.goals))


def run(path: Path, words: Sequence[str]) -> Run:
    """Run one benchmark and show its output while it comes."""
    print(f"== {path.stem}", flush=True)
    lines: list[str] = []
    with subprocess.Popen([sys.executable, "-u", path, *words], stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout or ():
            print(line, end="", flush=True)
            lines.append(line)
    return Run(path.stem, "".join(lines), process.returncode)


def report(runs: Sequence[Run]) -> str:
    """The text of RESULTS.md."""
    rows = [
        f"| {goal['name']} | {goal['got']} | {goal['relation']} {goal['wanted']} | {goal['verdict']} |"
        for run in runs
        for goal in run.goals
    ]
    broken = [f"`{run.name}` broke with exit code {run.code}: its part is not complete.\n" for run in runs if run.broke]
    table = "\n".join(["| goal | got | wanted | verdict |", "|---|---|---|---|", *rows])
    details = [f"## {run.name}\n\n```\n{run.output.strip()}\n```\n" for run in runs]
    return "\n".join([HEADER, f"{table}\n", *broken, *details])


def main(words: Sequence[str]) -> int:
    """Run them all, also after a failure; the exit code is the worst one.

    Words such as `--quick` are handed on; the results of such a run are shown and not kept.
    """
    paths = sorted(path for path in HERE.glob("*.py") if not path.name.startswith("_"))
    if not paths:
        print("there is no benchmark in bench/ yet")
        return 0
    runs = [run(path, words) for path in paths]
    if not words:
        (HERE / "RESULTS.md").write_text(report(runs))
    return max(abs(run.code) for run in runs)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
