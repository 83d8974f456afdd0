"""Who did what, and when? Many processes write lines to one file; a test reads them and counts from outside."""

from __future__ import annotations

import json
import math
import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import trio
from attrs import define, field, frozen

from tests.bounds import WAIT_S

LOOK_S = 0.01

BEGAN, ENDED, STOPPED = "began", "ended", "stopped"
"""What a handler writes: at its start, at its end, and when it was cancelled."""
KILLED = "killed"
"""What a test writes when it ends a process."""
CRASHED = "crashed"
"""What a process writes that ends by an error of its own."""


@frozen(kw_only=True)
class Entry:
    """One line. `at` is the machine's monotonic clock, the same for all processes."""

    at: float
    pid: int
    what: str
    facts: dict[str, Any]


@frozen(kw_only=True)
class Execution:
    """One run of a handler. `how` is None for one that its process did not survive, or that still runs."""

    job: int | str
    pid: int
    attempt: int
    began_at: float
    over_at: float
    how: str | None


class Pen:
    """Writes lines, each at once and whole, also when others write to the same file."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC)

    def write(self, what: str, facts: Mapping[str, Any], *, about: int | None = None) -> None:
        """Write a line about a process, this one unless told otherwise."""
        line = {"at": time.monotonic(), "pid": about or os.getpid(), "what": what, **facts}
        os.write(self._file, f"{json.dumps(line, default=str)}\n".encode())

    def close(self) -> None:
        os.close(self._file)


@define(eq=False)
class Journal:
    """What was written so far. Looking again reads only what is new."""

    path: Path
    entries: list[Entry] = field(init=False, factory=list)
    _place: int = field(init=False, default=0)

    def look(self) -> list[Entry]:
        """Everything that was written, oldest first."""
        if self.path.exists():
            with self.path.open("rb") as file:
                file.seek(self._place)
                whole, newline, _ = file.read().rpartition(b"\n")
            self._place += len(whole) + len(newline)
            self.entries += [_entry(line) for line in whole.splitlines()]
        return self.entries

    def of(self, what: str, *, pid: int | None = None) -> list[Entry]:
        """The lines of one kind, of one process or of all."""
        return [entry for entry in self.look() if entry.what == what and pid in {None, entry.pid}]

    async def until(self, is_so: Callable[[], bool], *, why: str, within_s: float = WAIT_S) -> None:
        """Wait until something is so; fail with the last lines if that takes too long."""
        with trio.move_on_after(within_s):
            while not is_so():
                assert not self.of(CRASHED), self.last_lines()
                await trio.sleep(LOOK_S)
            return
        raise AssertionError(f"not within {within_s:g} s: {why}\n{self.last_lines()}")

    async def heard(self, what: str, *, pid: int | None = None, times: int = 1) -> Entry:
        """Wait for the so-manieth line of one kind."""
        await self.until(lambda: len(self.of(what, pid=pid)) >= times, why=f"{what} of {pid}, {times} times")
        return self.of(what, pid=pid)[times - 1]

    async def began(self, job: int | str, *, times: int = 1) -> Execution:
        """Wait for the so-manieth execution of a job to begin."""
        await self.until(lambda: len(self.executions_of(job)) >= times, why=f"job {job} to begin, {times} times")
        return self.executions_of(job)[times - 1]

    def executions(self) -> list[Execution]:
        """Every run of a handler, in the order they began."""
        ends: dict[str, Entry] = {}
        deaths: dict[int, float] = {}
        for entry in self.look():
            if entry.what in {ENDED, STOPPED}:
                ends[entry.facts["run"]] = entry
            elif entry.what == KILLED:
                deaths[entry.pid] = entry.at
        return [_execution(entry, ends.get(entry.facts["run"]), deaths) for entry in self.of(BEGAN)]

    def executions_of(self, job: int | str) -> list[Execution]:
        """The runs of one job."""
        return [execution for execution in self.executions() if execution.job == job]

    def times_run(self) -> Counter[int | str]:
        """How often each job was begun."""
        return Counter(entry.facts["job"] for entry in self.of(BEGAN))

    def second_executions(self) -> int:
        """How many executions were not the first of their job."""
        return sum(times - 1 for times in self.times_run().values())

    def last_lines(self, most: int = 40) -> str:
        """The end of the journal without what handlers and completed jobs write, for a person."""
        dull = {BEGAN, ENDED, "job.completed"}
        told = [entry for entry in self.look() if entry.what not in dull][-most:]
        return "\n".join(f"{entry.at:.3f} {entry.pid} {entry.what} {entry.facts}" for entry in told)


def overlaps(executions: Iterable[Execution]) -> list[tuple[Execution, Execution]]:
    """Pairs of executions of one job that were under way at the same time."""
    of_job: defaultdict[int | str, list[Execution]] = defaultdict(list)
    for execution in executions:
        of_job[execution.job].append(execution)
    return [pair for runs in of_job.values() for pair in _overlaps(runs)]


def _overlaps(runs: list[Execution]) -> Iterator[tuple[Execution, Execution]]:
    for first, second in pairwise(sorted(runs, key=lambda run: run.began_at)):
        if second.began_at < first.over_at:
            yield first, second


def _entry(line: bytes) -> Entry:
    facts = json.loads(line)
    return Entry(at=facts.pop("at"), pid=facts.pop("pid"), what=facts.pop("what"), facts=facts)


def _execution(began: Entry, end: Entry | None, deaths: dict[int, float]) -> Execution:
    return Execution(
        job=began.facts["job"],
        pid=began.pid,
        attempt=began.facts["attempt"],
        began_at=began.at,
        over_at=deaths.get(began.pid, math.inf) if end is None else end.at,
        how=None if end is None else end.what,
    )
