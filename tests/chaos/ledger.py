"""The database seen from outside: a plain connection that enqueues, and a trigger that takes down every change of a job."""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import trio
from attrs import evolve, frozen
from sqlalchemy import Connection, Engine, NullPool, create_engine, make_url, text

from storage.engine.calls import ANNOUNCED
from storage.engine.channel_counters import ChannelCounters
from storage.engine.dialect import dialect_for
from storage.engine.options import StorageOptions
from storage.engine.postgres_session import CHANNEL
from storage.jobs import jobs, reports, workers
from storage.jobs.jobs import NewJob
from storage.jobs.reports import JobView
from storage.jobs.workers import WorkerRow
from storage.migrations import MIGRATIONS
from tests.bounds import WAIT_S
from tests.chaos.worker import KIND
from tests.storage.job_store import begin_at_once

T = TypeVar("T")

LOOK_S = 0.05
FINAL = ("succeeded", "failed", "cancelled")

CHANGES = "CREATE TABLE changes (number {number}, job BIGINT, was TEXT, became TEXT, owner TEXT, token INT)"
CHANGE = (
    "INSERT INTO changes (job, was, became, owner, token) VALUES (NEW.id, OLD.state, NEW.state, {owner}, NEW.token)"
)
SQLITE = [
    CHANGES.format(number="INTEGER PRIMARY KEY"),
    f"""CREATE TRIGGER note_change AFTER UPDATE ON jobs WHEN OLD.state IS NOT NEW.state
        BEGIN {CHANGE.format(owner="COALESCE(NEW.claimed_by, OLD.claimed_by)")}; END""",
]
POSTGRES = [
    CHANGES.format(number="BIGSERIAL PRIMARY KEY"),
    f"""CREATE FUNCTION note_change() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN {CHANGE.format(owner="COALESCE(NEW.claimed_by, OLD.claimed_by)")}; RETURN NULL; END $$""",
    """CREATE TRIGGER note_change AFTER UPDATE ON jobs FOR EACH ROW WHEN (OLD.state <> NEW.state)
       EXECUTE FUNCTION note_change()""",
]


@frozen(kw_only=True)
class Change:
    """One change of a job's state, and whose it was."""

    job: int
    was: str
    became: str
    owner: str | None
    token: int


@frozen
class Ledger:
    """A database with our schema and the trigger."""

    url: str
    engine: Engine

    def run(self, function: Callable[[Connection], T]) -> T:
        """Run a function in a transaction, and announce as the gateway does what it has announced."""
        counters = ChannelCounters(Path(make_url(self.url).database or ""))
        with self.engine.begin() as connection:
            result = function(connection)
            announced: dict[str, bool] = connection.info.pop(ANNOUNCED, {})
            if self.url.startswith("sqlite"):
                driver: Any = connection.connection.dbapi_connection
                counters.add(driver, announced, set())
            else:
                for channel in announced:
                    connection.exec_driver_sql(f"NOTIFY {CHANNEL}, 'ledger {channel}'")
        counters.touch_file()
        return result

    def enqueue(self, payloads: Sequence[dict[str, Any]], **words: Any) -> list[int]:
        """Take in a job for each payload, in one transaction, as another program would. Returns their ids."""
        now = datetime.now(UTC)
        new = [_new_job(payload, now, **words) for payload in payloads]
        return self.run(lambda connection: [jobs.enqueue(connection, job, now=now).id for job in new])

    def show(self, job_id: int) -> JobView:
        """One job."""
        view = self.run(lambda connection: reports.show(connection, job_id))
        assert view is not None
        return view

    def jobs(self) -> list[JobView]:
        """Every job, the newest first."""
        return self.run(lambda connection: reports.recent(connection, limit=1_000_000))

    def states(self) -> dict[str, int]:
        """How many jobs are in each state."""
        rows = self.run(lambda connection: connection.execute(text(_STATES)).all())
        return {row.state: row.number for row in rows}

    def workers(self) -> list[WorkerRow]:
        """Everyone who is registered."""
        return self.run(workers.all_workers)

    def changes(self) -> list[Change]:
        """Every change of a state, in order."""
        rows = self.run(lambda connection: connection.execute(text(_CHANGES)).all())
        return [Change(job=row.job, was=row.was, became=row.became, owner=row.owner, token=row.token) for row in rows]

    async def until_finished(self, *, within_s: float = WAIT_S) -> None:
        """Wait until no job waits or runs."""
        with trio.move_on_after(within_s):
            while set(self.states()) - set(FINAL):
                await trio.sleep(LOOK_S)
            return
        raise AssertionError(f"not finished within {within_s:g} s: {self.states()}")


def assert_one_completion_each(changes: Sequence[Change], ids: Sequence[int]) -> None:
    """Each job succeeded once, and every change by an owner was made by who had claimed the job last."""
    holder: dict[int, tuple[str | None, int]] = {}
    succeeded = []
    for change in changes:
        if change.became == "running":
            assert change.token == holder.get(change.job, (None, 0))[1] + 1, change
            holder[change.job] = (change.owner, change.token)
        elif change.was == "running":
            assert (change.owner, change.token) == holder[change.job], change
        if change.became == "succeeded":
            succeeded.append(change.job)
    assert sorted(succeeded) == sorted(ids)


def _new_job(payload: dict[str, Any], now: datetime, *, due_s: float = 0.0, **words: Any) -> NewJob:
    usual = NewJob(
        uid=secrets.token_hex(16),
        kind=KIND,
        payload=json.dumps(payload),
        priority=5,
        run_at=now + timedelta(seconds=due_s),
        max_attempts=10,
    )
    return evolve(usual, **words)


@contextmanager
def open_ledger(url: str) -> Iterator[Ledger]:
    """Migrate a database as a start of the service does, and watch it from outside."""
    dialect = dialect_for(StorageOptions(url=url))
    dialect.prepare(MIGRATIONS, lambda: datetime.now(UTC))
    dialect.dispose()
    is_file = url.startswith("sqlite")
    ledger = Ledger(url, _sqlite(str(make_url(url).database)) if is_file else create_engine(url, poolclass=NullPool))
    ledger.run(lambda connection: [connection.exec_driver_sql(each) for each in (SQLITE if is_file else POSTGRES)])
    try:
        yield ledger
    finally:
        ledger.engine.dispose()


def _sqlite(path: str) -> Engine:
    return begin_at_once(
        create_engine(
            "sqlite://",
            creator=lambda: sqlite3.connect(path, isolation_level=None, timeout=WAIT_S, check_same_thread=False),
            poolclass=NullPool,
        )
    )


_STATES = "SELECT state, count(*) AS number FROM jobs GROUP BY state"
_CHANGES = "SELECT job, was, became, owner, token FROM changes ORDER BY number"
