"""An idle process hears at once of a job that another process enqueues, long before it would look by itself."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import Connection, NullPool, create_engine, make_url, text

from tests.chaos.conftest import Hire, Tell
from tests.chaos.crew import Crew
from tests.chaos.ledger import Ledger
from tests.chaos.worker import NEVER_S
from tests.postgres import DatabaseServer

IDLE = {"poll_s": 300.0, "heartbeat_s": 60.0, "lock_timeout_s": NEVER_S, "sweep_s": 3_600.0}
"""It looks for jobs when it is woken up, and otherwise only at its heartbeats."""
CUTS = 3

LISTENERS = "FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'"


async def pickup_s(ledger: Ledger, crew: Crew) -> float:
    """Enqueue a job on a plain connection. How long after COMMIT its handler begins in the other process."""
    (job,) = ledger.enqueue([{}])
    enqueued_at = time.monotonic()
    execution = await crew.journal.began(job)
    await ledger.until_finished()
    return execution.began_at - enqueued_at


def beats(ledger: Ledger) -> int:
    """How many heartbeats the one process has had."""
    (worker,) = ledger.workers()
    return worker.beat


def listeners(connection: Connection) -> list[int]:
    return list(connection.execute(text(f"SELECT pid {LISTENERS}")).scalars())


def hang_up(connection: Connection) -> None:
    connection.execute(text(f"SELECT pg_terminate_backend(pid) {LISTENERS}"))


@pytest.mark.slow("a process starts and is woken up several times")
async def test_a_job_enqueued_by_another_process_is_picked_up_at_once(ledger: Ledger, hire: Hire, tell: Tell) -> None:
    crew = hire(ledger, **IDLE)
    await crew.start().ready()

    waits = [await pickup_s(ledger, crew) for _ in range(20)]

    assert 2 * beats(ledger) < len(waits), "it was not the heartbeats that found the jobs"
    tell(
        f"picked up after {statistics.median(waits) * 1000:.1f} ms (median of 20), {max(waits) * 1000:.1f} ms (longest)"
    )


@pytest.fixture
def kept(postgres_ledger: Ledger) -> Iterator[Ledger]:
    """A ledger whose connection stays open."""
    engine = create_engine(postgres_ledger.url)
    yield Ledger(postgres_ledger.url, engine)
    engine.dispose()


@contextmanager
def closed(server: DatabaseServer, ledger: Ledger) -> Iterator[None]:
    """Nobody may connect to the database. Connections that are open stay."""
    name = make_url(ledger.url).database
    with create_engine(server.url, poolclass=NullPool, isolation_level="AUTOCOMMIT").connect() as admin:
        admin.execute(text(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false'))
        try:
            yield
        finally:
            admin.execute(text(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true'))


@pytest.mark.slow("a process starts, and listens anew several times")
async def test_a_job_enqueued_while_nobody_listened_is_picked_up_as_soon_as_somebody_does(
    postgres_server: DatabaseServer, kept: Ledger, hire: Hire
) -> None:
    crew = hire(kept, **IDLE)
    await crew.start().ready()

    for _ in range(CUTS):
        await crew.journal.until(lambda: kept.run(listeners) != [], why="somebody to listen")
        with closed(postgres_server, kept):
            kept.run(hang_up)
            await crew.journal.until(lambda: kept.run(listeners) == [], why="nobody to listen")
            (unheard,) = kept.enqueue([{}])
        await crew.journal.began(unheard)
        await kept.until_finished()
        await pickup_s(kept, crew)

    assert 2 * beats(kept) < CUTS, "it was not the heartbeats that found the jobs"
    crew.assert_nobody_crashed()
