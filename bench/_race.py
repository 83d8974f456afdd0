"""How do contestants meet? Each in a process of its own, on a fresh database, in turn, round by round.

A contestant's script has two steps: `prepare` makes tables and backlog, `work` starts working and says how many seconds
passed until the last job was durably done. In between the database is brought to rest.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

from attrs import define, field, frozen
from sqlalchemy import create_engine, make_url, text

from bench._report import Row
from bench.peers.install import HOME, Program
from tests.postgres import PostgresServer

ROOT: Final = Path(__file__).parent.parent
LIMIT_S = 300
SYNCS = 50
HEATS = 2
# Where the environment forbids compiled files, starting a contestant takes longer than its work.
CACHE: Final = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(HOME / "compiled")}

Settings = dict[str, Any]


class ContestantFailed(Exception):
    """A contestant did not do its work; what it said is above, on standard error."""


class Ground(Protocol):
    """Where contestants meet: one disk, or one server."""

    @property
    def name(self) -> str:
        """The kind of database."""
        ...

    def fresh(self) -> AbstractContextManager[Settings]:
        """An empty database for one contestant and one round, as settings that name it."""
        ...

    def rest(self, place: Settings) -> None:
        """Let what a database does after much was written be over, so that it is not counted."""
        ...


@frozen
class Disk:
    """SQLite files, each in a folder of its own. They are where PostgreSQL is, too."""

    name: str = "SQLite FULL"

    @contextmanager
    def fresh(self) -> Iterator[Settings]:
        with tempfile.TemporaryDirectory(prefix="cormorant-bench-") as folder:
            yield {"folder": folder, "file": f"{folder}/peer.db"}

    def rest(self, place: Settings) -> None:
        os.sync()


@frozen
class Server:
    """One PostgreSQL with fsync, a database for each."""

    server: PostgresServer
    name: str = "PostgreSQL"

    @contextmanager
    def fresh(self) -> Iterator[Settings]:
        url = self.server.create_database()
        with tempfile.TemporaryDirectory(prefix="cormorant-bench-") as folder:
            yield {"folder": folder, "url": url.replace("+psycopg", "")}
        self.server.drop_database(url)

    def rest(self, place: Settings) -> None:
        engine = create_engine(
            make_url(place["url"]).set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT"
        )
        with engine.connect() as connection:
            connection.execute(text("VACUUM ANALYZE"))
            connection.execute(text("CHECKPOINT"))
        engine.dispose()


def sync_ms() -> float:
    """How long one page takes to be kept for good, the middle of some: a part of every COMMIT, and not our doing.

    Where it is far longer than on an idle machine, others use disk or processor, and the numbers beside it are worth little.
    """
    page = bytes(4096)
    took_ms = []
    with tempfile.TemporaryFile(prefix="cormorant-bench-", buffering=0) as file:
        for _ in range(SYNCS):
            began = time.perf_counter()
            os.pwrite(file.fileno(), page, 0)
            os.fdatasync(file.fileno())
            took_ms.append((time.perf_counter() - began) * 1000)
    return statistics.median(took_ms)


@define
class Contestant:
    """A program, and the settings it may be given: the ones that suit it best are raced."""

    name: str
    program: Program
    choices: Sequence[Settings]
    version: str = field(init=False, default="")
    failure: str = field(init=False, default="")
    """Why it is out of the race, if it is."""

    @property
    def label(self) -> str:
        """Its name and settings, for the table."""
        return f"{self.name}: {told(self.choices[0])}"


def told(settings: Settings) -> str:
    """Settings as a reader wants them.

    >>> told({"worker_type": "thread", "workers": 2})
    'worker type thread, workers 2'
    """
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in settings.items())


def run(program: Program, step: str, settings: Settings) -> Any:
    """Run one step to its end and return what it printed, read as JSON."""
    done = subprocess.run(
        [*program.words, step, json.dumps(settings | {"limit_s": LIMIT_S})],
        check=False,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=os.environ | CACHE | dict(program.environment),
    )
    if done.returncode != 0:
        raise ContestantFailed(f"{Path(program.words[-1]).name} {step} ended with exit code {done.returncode}")
    return json.loads(done.stdout) if done.stdout else None


@frozen
class Result:
    """What a contestant reached in one round. Its own processor time says more on a machine that others use, too."""

    jobs_per_s: float
    cpu_us_per_job: float


def work_off(contestant: Contestant, choice: Settings, *, ground: Ground, jobs: int) -> Result:
    """One contestant's round."""
    with ground.fresh() as place:
        settings = choice | place | {"jobs": jobs}
        run(contestant.program, "prepare", settings)
        ground.rest(place)
        found = run(contestant.program, "work", settings)
    contestant.version = found["version"]
    return Result(jobs / found["seconds"], found["cpu_s"] / jobs * 1e6)


def choose(contestant: Contestant, *, ground: Ground, jobs: int) -> None:
    """Try all of a contestant's choices, and leave it the one that was fastest at its best."""
    best = [0.0] * len(contestant.choices)
    for _ in range(HEATS):
        for index, choice in enumerate(contestant.choices):
            best[index] = max(best[index], work_off(contestant, choice, ground=ground, jobs=jobs).jobs_per_s)
    for speed, choice in zip(best, contestant.choices, strict=True):
        print(f"heat: {contestant.name}, {told(choice)}: {speed:,.0f} jobs/s", flush=True)
    contestant.choices = [contestant.choices[best.index(max(best))]]


def race(contestants: Sequence[Contestant], *, ground: Ground, jobs: int, rounds: int) -> list[list[Result]]:
    """Rounds in which all take turns, so that a slow minute of the machine hits all of them; a list for each.

    One that fails is out; the others go on.
    """
    results: list[list[Result]] = [[] for _ in contestants]
    for _ in range(rounds):
        for contestant, own in zip(contestants, results, strict=True):
            if not contestant.failure:
                try:
                    own.append(work_off(contestant, contestant.choices[0], ground=ground, jobs=jobs))
                except ContestantFailed as why:
                    contestant.failure = str(why)
    for contestant in contestants:
        print(f"{contestant.name}: {contestant.failure or contestant.version}", flush=True)
    return results


def rows_of(contestant: Contestant, results: Sequence[Result]) -> list[Row]:
    """A contestant's lines in the table."""
    return [
        Row(contestant.label, "jobs/s", [result.jobs_per_s for result in results]),
        Row("  processor time of its own", "us/job", [result.cpu_us_per_job for result in results]),
    ]
