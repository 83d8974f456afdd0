"""What the tests of jobs share: a migrated database of either kind, plain connections to it, and words for jobs."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from attrs import evolve, frozen
from sqlalchemy import Connection, Engine, NullPool, create_engine, event, make_url

from cormorant.rules.jobs.states import JobState
from storage.engine.dialect import dialect_for
from storage.engine.options import StorageOptions
from storage.jobs import jobs, reports, workers
from storage.jobs.jobs import ClaimedJob, JobEnd, NewJob, Settled
from storage.jobs.reports import JobView
from storage.migrations import MIGRATIONS

DAWN = datetime(2026, 7, 1, 6, tzinfo=UTC)
PRIORITIES = (0, 5, 10)
STATES = tuple(JobState)

_uids = itertools.count()


def at(seconds: float) -> datetime:
    """So many seconds after the dawn of the test."""
    return DAWN + timedelta(seconds=seconds)


NOW = at(0)


@frozen
class JobStore:
    """A database with our schema."""

    engine: Engine

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """A transaction on a connection of its own."""
        with self.engine.begin() as connection:
            yield connection


@contextmanager
def open_store(url: str) -> Iterator[JobStore]:
    """Migrate a database as a start of the service does, and connect to it plainly."""
    dialect = dialect_for(StorageOptions(url=url))
    dialect.prepare(MIGRATIONS, lambda: DAWN)
    dialect.dispose()
    engine = _sqlite(Path(str(make_url(url).database))) if url.startswith("sqlite") else create_engine(url)
    try:
        yield JobStore(engine)
    finally:
        engine.dispose()


def _sqlite(path: Path) -> Engine:
    return begin_at_once(
        create_engine(
            "sqlite://", creator=lambda: sqlite3.connect(path, isolation_level=None, timeout=0), poolclass=NullPool
        )
    )


def begin_at_once(engine: Engine) -> Engine:
    """Let SQLite begin as the gateway does: the driver's own way begins too late, and with a savepoint not at all."""

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def new_job(kind: str = "work", **words: Any) -> NewJob:
    """A job to be enqueued, due at once, unless told otherwise."""
    usual = NewJob(uid=f"uid {next(_uids)}", kind=kind, payload="{}", priority=5, run_at=NOW, max_attempts=3)
    return evolve(usual, **words)


def put(connection: Connection, kind: str = "work", *, now: datetime = NOW, **words: Any) -> int:
    """Enqueue a job and return its id."""
    return jobs.enqueue(connection, new_job(kind, **words), now=now).id


def hire(connection: Connection, owner: str = "me", *, kinds: Sequence[str] = ("work",)) -> None:
    """Register a worker that lives."""
    workers.register(connection, owner, kinds=kinds, version="1", now=NOW)


def take(
    connection: Connection,
    owner: str = "me",
    *,
    limit: int = 100,
    now: datetime = NOW,
    kinds: Sequence[str] = ("work",),
    priorities: Sequence[int] = PRIORITIES,
) -> list[ClaimedJob]:
    """Claim what is due."""
    return jobs.claim(connection, owner=owner, kinds=kinds, priorities=priorities, limit=limit, now=now)


def take_one(connection: Connection, owner: str = "me", *, now: datetime = NOW) -> ClaimedJob:
    """Claim the one job that comes first."""
    (job,) = take(connection, owner, limit=1, now=now)
    return job


def show(connection: Connection, job_id: int) -> JobView:
    """The job, which must be there."""
    view = reports.show(connection, job_id)
    assert view is not None
    return view


def settle(
    connection: Connection, job: ClaimedJob, to: JobState, *, owner: str = "me", now: datetime = NOW, **words: Any
) -> list[Settled]:
    """Let go of one job."""
    return jobs.settle(connection, owner=owner, endings=[JobEnd(id=job.id, token=job.token, to=to, **words)], now=now)


def put_in_state(connection: Connection, state: JobState, **words: Any) -> int:
    """A job that has come to a state by legal changes."""
    job_id = put(connection, **words)
    if state is JobState.PENDING:
        return job_id
    job = take_one(connection)
    assert job.id == job_id
    if state is not JobState.RUNNING:
        settle(connection, job, state, uses_attempt=state is JobState.RETRYABLE)
    return job_id
