"""What a claim costs does not depend on how much waits for later, is held, or is done. Counted in work, not in time."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Connection, event, text

from cormorant.rules.jobs.states import JobState
from storage.engine.columns import to_micros
from storage.jobs import jobs
from storage.jobs.jobs import JobEnd
from tests.storage.job_store import NOW, PRIORITIES, JobStore, at, hire, put, take

DUE = 100
FEW, MANY = 2_000, 200_000
FACTOR_MAX = 2.0
BATCH = 10
WARM = 12
"""After so many times the driver has prepared a statement and PostgreSQL has settled on one plan for all parameters."""

LATER, EARLIER = to_micros(at(86_400)), to_micros(at(-86_400))
BACKLOGS: dict[str, dict[str, Any]] = {
    "future": {"state": "pending", "held": False, "run_at": LATER, "finished_at": None},
    "held": {"state": "pending", "held": True, "run_at": EARLIER, "finished_at": None},
    "done": {"state": "succeeded", "held": False, "run_at": EARLIER, "finished_at": to_micros(NOW)},
}

Work = Callable[[Connection], object]


def fill(connection: Connection, backlog: str, count: int) -> None:
    """Put many jobs at the top priority, none of them to be had, and a few below that are due."""
    connection.execute(
        text("""
            WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :count)
            INSERT INTO jobs (uid, kind, state, priority, run_at, held, max_attempts, enqueued_at, finished_at, payload)
            SELECT 'backlog ' || n, 'work', :state, 0, :run_at + n, :held, 3, :now, :finished_at, '{}' FROM numbers
        """),
        BACKLOGS[backlog] | {"now": to_micros(NOW), "count": count},
    )
    for _ in range(DUE):
        put(connection)
    hire(connection)


def claim_some(connection: Connection) -> object:
    claimed = take(connection, limit=BATCH)
    assert len(claimed) == BATCH
    return claimed


def do_an_errand(connection: Connection) -> object:
    """What the clerk does: let go, claim, and see when to look again."""
    done = take(connection, limit=BATCH)
    endings = [JobEnd(id=job.id, token=job.token, to=JobState.PENDING, run_at=at(-1)) for job in done]
    assert len(jobs.settle(connection, owner="me", endings=endings, now=NOW)) == BATCH
    return jobs.next_due(connection, priorities=PRIORITIES, now=NOW)


def steps_of(store: JobStore, work: Work) -> int:
    """Steps of SQLite's machine."""
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    with store.engine.connect() as connection, connection.begin() as transaction:
        driver = connection.connection.driver_connection
        assert isinstance(driver, sqlite3.Connection)
        driver.set_progress_handler(count, 1)
        work(connection)
        driver.set_progress_handler(None, 1)
        transaction.rollback()
    return steps


def blocks_of(store: JobStore, work: Work) -> int:
    """Blocks of the table and its indexes that PostgreSQL touches, by its own count."""
    with store.engine.connect() as connection:
        for _ in range(WARM):
            work(connection)
            connection.rollback()
        before = touched(connection)
        work(connection)
        connection.rollback()
        return touched(connection) - before


def touched(connection: Connection) -> int:
    connection.execute(text("SELECT pg_stat_force_next_flush()"))
    connection.commit()
    blocks: int = connection.execute(
        text("""
            SELECT heap_blks_read + heap_blks_hit + idx_blks_read + idx_blks_hit
            FROM pg_statio_user_tables WHERE relname = 'jobs'
        """)
    ).scalar_one()
    connection.commit()
    return blocks


@pytest.mark.slow("fills tables of two hundred thousand jobs")
@pytest.mark.parametrize("work", [claim_some, do_an_errand])
@pytest.mark.parametrize("backlog", BACKLOGS)
def test_a_claim_in_sqlite_costs_the_same_however_much_waits(sqlite_jobs: JobStore, backlog: str, work: Work) -> None:
    costs = []

    for count in (FEW, MANY):
        with sqlite_jobs.begin() as connection:
            empty(connection)
            fill(connection, backlog, count)
        costs.append(steps_of(sqlite_jobs, work))

    assert costs[1] <= FACTOR_MAX * costs[0]


@pytest.mark.slow("fills tables of two hundred thousand jobs")
@pytest.mark.parametrize("is_analysed", [False, True], ids=["as loaded", "analysed"])
@pytest.mark.parametrize("backlog", BACKLOGS)
def test_a_claim_in_postgres_costs_the_same_however_much_waits(
    postgres_jobs: JobStore, backlog: str, *, is_analysed: bool
) -> None:
    costs = []

    for count in (FEW, MANY):
        with postgres_jobs.begin() as connection:
            empty(connection)
            fill(connection, backlog, count)
            if is_analysed:
                connection.execute(text("ANALYZE jobs"))
        costs.append([blocks_of(postgres_jobs, work) for work in (claim_some, do_an_errand)])

    for few, many in zip(*costs, strict=True):
        assert many <= FACTOR_MAX * few


def empty(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        # Vacuum would be counted with us.
        connection.execute(text("ALTER TABLE jobs SET (autovacuum_enabled = false)"))
    for table in ("jobs", "workers"):
        connection.execute(text(f"{'TRUNCATE' if connection.dialect.name == 'postgresql' else 'DELETE FROM'} {table}"))


EXPLAIN = {"sqlite": "EXPLAIN QUERY PLAN", "postgresql": "EXPLAIN"}


@pytest.mark.slow("fills a table of two thousand jobs")
@pytest.mark.parametrize("backlog", BACKLOGS)
def test_claims_go_through_the_index_of_what_is_waiting_and_not_held(job_store: JobStore, backlog: str) -> None:
    with job_store.begin() as connection:
        fill(connection, backlog, FEW)
        connection.execute(text("ANALYZE"))

    with job_store.begin() as connection:
        plans = explain(connection, claim_some)

    assert any("jobs_claim" in plan for plan in plans)
    assert not any("SCAN jobs" in plan or "Seq Scan on jobs" in plan for plan in plans)


def explain(connection: Connection, work: Work) -> list[str]:
    """How the database goes about each statement of some work."""
    said: list[tuple[str, Any]] = []

    def note(*words: Any) -> None:
        said.append((words[2], words[3]))

    event.listen(connection, "before_cursor_execute", note)
    work(connection)
    event.remove(connection, "before_cursor_execute", note)
    word = EXPLAIN[connection.dialect.name]
    return [
        "\n".join(str(row) for row in connection.exec_driver_sql(f"{word} {statement}", parameters))
        for statement, parameters in said
    ]
