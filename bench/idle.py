"""A service with nothing to do: database calls of a simulated day, and wake-ups and processor time of a real process.

The real process has 50 sources of its own, a SQLite file and its server. It rests for a minute before five minutes count; with
`--quick` it rests for 10 s, and 30 s count.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import trio
from attrs import define, field, frozen

# Run as a file, Python would look here first and take `bench/storage.py` for the package `storage`.
ROOT = Path(__file__).parent.parent
sys.path[0] = str(ROOT)

from bench._report import Goal, Row, finish, read_options  # noqa: E402 - see above
from cormorant.rules.ports import ignore  # noqa: E402 - see above
from cormorant.rules.settings.sources import SourceSettings  # noqa: E402 - see above
from cormorant.testing import settings, simulated  # noqa: E402 - see above
from storage.database import Database, Mode, StorageOptions  # noqa: E402 - see above

DAY_S = 86_400.0
SOURCES = 50
PORT = 19_117

MEMORY_CALLS_MAX = 500
FILE_CALLS_MAX = 7_000
MEMORY_DAY_S_MAX = 1.0
SWITCHES_MAX = 3.0
CORE_PERCENT_MAX = 0.3


@define(eq=False)
class CountedDatabase(Database):
    """A database that counts the calls to it."""

    calls: int = field(init=False, default=0)

    async def run(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        return await super().run(function, *args, **kwargs)

    async def read(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        return await super().read(function, *args, **kwargs)


def idle_day(url: str) -> tuple[int, float]:
    """The database calls of a day with two sources and nothing to do, and the seconds that it takes."""
    simulation = simulated(1)
    database = CountedDatabase(StorageOptions(url=url), mode=Mode.INLINE, emit=ignore, chance=simulation.chance)

    async def day() -> None:
        chosen = settings(
            sources={name: SourceSettings(kind="torznab", url=f"http://{name}.test/api") for name in "ab"}
        )
        async with simulation.open_service(chosen, gateway=database):
            await trio.sleep(DAY_S)

    began_at = time.perf_counter()
    try:
        simulation.run(day)
    finally:
        database.dispose()
    return database.calls, time.perf_counter() - began_at


@frozen
class Usage:
    """What a process has used since it began."""

    voluntary: Mapping[str, int]
    """Voluntary context switches of each thread: how often it has gone to sleep."""
    cpu_s: float

    @classmethod
    def of(cls, process: int) -> Usage:
        """As the kernel counts it."""
        parts = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        tasks = Path(f"/proc/{process}/task").iterdir()
        return cls(dict(map(_switches_of, tasks)), (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK"))

    def switches_since(self, before: Usage) -> int:
        """Of the threads that live now. One that has ended meanwhile was no part of the rest."""
        return sum(count - before.voluntary.get(thread, 0) for thread, count in self.voluntary.items())


def _switches_of(task: Path) -> tuple[str, int]:
    with suppress(FileNotFoundError):  # the thread has just ended
        lines = (task / "status").read_text().splitlines()
        return task.name, sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))
    return task.name, 0


@contextmanager
def real_service(folder: Path) -> Iterator[int]:
    """`cormorant run` with sources of its own; its number."""
    sources = [
        f'[sources.s{number}]\nkind = "torznab"\nurl = "http://127.0.0.1:9/{number}"\n' for number in range(SOURCES)
    ]
    (folder / "config.toml").write_text(f'[web]\nlisten = "127.0.0.1:{PORT}"\n\n' + "\n".join(sources))
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-m", "cormorant", "run"],
        cwd=folder,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as program:
        assert program.stdout is not None
        if not any(" ready in " in line for line in program.stdout):
            raise RuntimeError("`cormorant run` did not start")
        try:
            yield program.pid
        finally:
            program.send_signal(signal.SIGTERM)
            program.stdout.read()


def idle_process(*, rest_s: float, counted_s: float) -> tuple[float, float]:
    """Voluntary context switches a second, and percent of a core."""
    with tempfile.TemporaryDirectory() as folder, real_service(Path(folder)) as process:
        time.sleep(rest_s)
        before, began_at = Usage.of(process), time.perf_counter()
        time.sleep(counted_s)
        after, took_s = Usage.of(process), time.perf_counter() - began_at
    return after.switches_since(before) / took_s, 100 * (after.cpu_s - before.cpu_s) / took_s


def main() -> int:
    """Measure, and judge."""
    options = read_options(__doc__)
    days = [idle_day("sqlite://") for _ in range(3)]
    with tempfile.TemporaryDirectory() as folder:
        file_calls, file_s = idle_day(f"sqlite:///{folder}/idle.db")
    rest_s, counted_s = (10.0, 30.0) if options.quick else (60.0, 300.0)
    switches, percent = idle_process(rest_s=rest_s, counted_s=counted_s)
    memory = Row("a day in memory", "s", [took_s for _, took_s in days])
    rows = [
        memory,
        Row("calls in memory", "calls", [calls for calls, _ in days]),
        Row("a day on a SQLite file", "s", [file_s]),
        Row("calls on a SQLite file", "calls", [file_calls]),
        Row("voluntary switches", "1/s", [switches]),
        Row("processor", "% of a core", [percent]),
    ]
    goals = [
        Goal("idle.memory_calls", max(calls for calls, _ in days), "<=", MEMORY_CALLS_MAX),
        Goal("idle.memory_day_s", memory.median, "<=", MEMORY_DAY_S_MAX),
        Goal("idle.file_calls", file_calls, "<=", FILE_CALLS_MAX),
        Goal("idle.switches_per_s", switches, "<=", SWITCHES_MAX),
        Goal("idle.core_percent", percent, "<=", CORE_PERCENT_MAX),
    ]
    return finish(options, rows, goals)


if __name__ == "__main__":
    sys.exit(main())
