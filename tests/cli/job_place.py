"""A folder with settings and a database with jobs in it, for commands that are run there."""

from __future__ import annotations

import json
import os
import random
import secrets
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import trio
from attrs import frozen
from click.testing import CliRunner
from sqlalchemy import Connection

from cormorant.cli import main
from cormorant.rules.jobs.error_log import remember_error
from cormorant.rules.jobs.states import JobState
from cormorant.rules.ports import ignore
from storage.database import Database, Mode, StorageOptions
from storage.engine.schema import Migration
from storage.jobs import jobs, workers
from storage.jobs.jobs import ClaimedJob, JobEnd, NewJob
from storage.migrations import MIGRATIONS
from tests.cli.program import Ended, cormorant, environment

P = ParamSpec("P")
T = TypeVar("T")

MINUTE = timedelta(minutes=1)
OWNER = "attic.1.aaaaaaaaaaaa"


@frozen
class Place:
    """Where commands are run."""

    folder: Path
    url: str

    def program(self, *words: str) -> Ended:
        """Run `cormorant jobs …` as a program of its own."""
        return cormorant("jobs", *words, cwd=self.folder, CORMORANT_STORAGE__URL=self.url)

    def jobs(self, *words: str) -> Ended:
        """The same within this process, which is much faster."""
        ours = environment(CORMORANT_STORAGE__URL=self.url, CORMORANT_CONFIG=str(self.folder / "config.toml"))
        others = dict.fromkeys(set(os.environ) - set(ours))
        ended = CliRunner(env=others | ours).invoke(main, ["jobs", *words])
        if ended.exception is not None and not isinstance(ended.exception, SystemExit):
            raise ended.exception
        return Ended(ended.exit_code, ended.stdout, ended.stderr)

    def facts(self, *words: str) -> Any:
        """Run `cormorant jobs … --json`, which must go well, and read what it says."""
        ended = self.jobs(*words, "--json")
        assert ended.code == 0, ended.err
        return json.loads(ended.out)

    def write(self, function: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function in a transaction. The first one makes the tables."""
        return in_database(self.url, lambda connection: function(connection, *args, **kwargs))


def in_database(url: str, work: Callable[[Connection], T], *, migrations: Sequence[Migration] = MIGRATIONS) -> T:
    """Do one thing in a database that is brought to a schema."""

    async def work_once() -> T:
        options = StorageOptions(url=url)
        database = Database(options, mode=Mode.INLINE, emit=ignore, chance=random.Random(0), migrations=migrations)
        async with trio.open_nursery() as nursery:
            await nursery.start(database)
            done = await database.run(work)
            database.stop()
        return done

    return trio.run(work_once)


def now() -> datetime:
    """The real time: the program goes by it."""
    return datetime.now(UTC)


def enqueue(connection: Connection, kind: str, *, due_in: timedelta = timedelta(), key: str | None = None) -> int:
    """Take in a job that was enqueued two and a half hours ago, or will be due later."""
    job = NewJob(
        uid=secrets.token_hex(8),
        kind=kind,
        payload='{"n": 1}',
        priority=5,
        run_at=now() + due_in,
        max_attempts=10,
        dedupe_key=key,
        correlation_id="req-17",
    )
    return jobs.enqueue(connection, job, now=now() - 150 * MINUTE).id


def register(connection: Connection, owner: str = OWNER, *, silent_for: timedelta = timedelta(seconds=7)) -> None:
    """Make a process known that handles tidy and mail, and whose last beat was a while ago."""
    workers.register(connection, owner, kinds=["tidy", "mail"], version="0.1.0", now=now() - silent_for)


def claim(connection: Connection, kind: str, owner: str = OWNER) -> ClaimedJob:
    """Let a process have the next job of a kind."""
    [job] = jobs.claim(connection, owner=owner, kinds=[kind], priorities=[5], limit=1, now=now())
    return job


def settle(connection: Connection, job: ClaimedJob, to: JobState, *, error: str | None = None) -> None:
    """Let the process be done with it."""
    errors = error and remember_error(None, ValueError(error), job_id=job.id, attempt=1, at=now())
    uses_attempt = to is JobState.RETRYABLE
    ending = JobEnd(
        id=job.id, token=job.token, to=to, uses_attempt=uses_attempt, run_at=now() + 5 * MINUTE, last_errors=errors
    )
    assert jobs.settle(connection, owner=OWNER, endings=[ending], now=now())


def failed(connection: Connection, kind: str, *, error: str = "no luck", key: str | None = None) -> int:
    """A dead letter."""
    enqueue(connection, kind, key=key)
    job = claim(connection, kind)
    settle(connection, job, JobState.FAILED, error=error)
    return job.id
