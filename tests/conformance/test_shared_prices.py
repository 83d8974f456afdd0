"""Two processes collect the prices of one database: each job is done once, no point is there twice, the dead are stepped in for."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trio
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from cormorant.rules.prices import COLLECT, Intake, collect_key
from storage import intakes
from tests.clients.raw_server import Asked, page, raw_server
from tests.storage.job_store import JobStore, at, open_store, put

ROOT = Path(__file__).parents[2]
JOBS = 20
STATED = [{"title": "Coin", "price": cents, "id": cents, "type": "sold"} for cents in (1, 2, 3)] * 2
FAR_OFF = at(10 * 365 * 86_400)


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of the one kind, then of the other."""
    found: str = (
        f"sqlite:///{tmp_path}/shared.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    )
    return found


def add_jobs(store: JobStore, number: int) -> None:
    with store.begin() as connection:
        for n in range(number):
            wanted = Intake(name=f"coin{n}", title=f"Coin {n}", next_attempt_at=FAR_OFF, added_at=at(0))
            intake = intakes.add(connection, wanted)
            key = collect_key(intake.id, "shop")
            payload = json.dumps({"intake": intake.id, "source": "shop"})
            put(connection, COLLECT, payload=payload, dedupe_key=key, max_attempts=5)


@contextmanager
def working(number: int, orders: dict[str, Any]) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that work, killed at the end."""
    command = [sys.executable, "-m", "tests.chaos.price_worker", json.dumps(orders)]
    processes = [subprocess.Popen(command, cwd=ROOT) for _ in range(number)]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait(10)


async def until_done(store: JobStore, number: int) -> None:
    with trio.fail_after(40):
        while True:
            with suppress(OperationalError), store.begin() as connection:  # a plain connection waits for nobody
                left = connection.execute(text("SELECT count(*) FROM jobs WHERE state <> 'succeeded'")).scalar_one()
                done = connection.execute(text("SELECT count(*) FROM jobs WHERE state = 'succeeded'")).scalar_one()
                if (left, done) == (0, number):
                    return
            await trio.sleep(0.1)


def counted(store: JobStore) -> dict[str, int]:
    asked = {
        "points": "SELECT count(*) FROM price_points",
        "twice": "SELECT count(*) FROM (SELECT 1 AS one FROM price_points GROUP BY intake_id, source, dedupe_key"
        " HAVING count(*) > 1) AS found",
        "attempts": "SELECT sum(attempts) FROM jobs",
        "reclaims": "SELECT sum(reclaims) FROM jobs",
    }
    with store.begin() as connection:
        return {name: int(connection.execute(text(statement)).scalar_one()) for name, statement in asked.items()}


@pytest.mark.slow("two real processes")
async def test_two_workers_do_each_job_once_and_leave_no_point_twice(url: str, tmp_path: Path) -> None:
    with open_store(url) as store:
        async with raw_server({"*": page(json.dumps(STATED))}) as shop:
            add_jobs(store, JOBS)
            with working(2, {"url": url, "data": str(tmp_path), "shop": f"{shop.url}/api"}):
                await until_done(store, JOBS)
        found = counted(store)

    assert Counter(asked.params["q"] for asked in shop.asked) == Counter(f"Coin {n}" for n in range(JOBS))
    assert found == {"points": 3 * JOBS, "twice": 0, "attempts": 0, "reclaims": 0}


@pytest.mark.slow("two real processes, one of them killed")
async def test_the_job_of_a_dead_worker_is_done_by_another(url: str, tmp_path: Path) -> None:
    has_asked = trio.Event()

    async def answer(stream: trio.SocketStream, _asked: Asked) -> None:
        if not has_asked.is_set():
            has_asked.set()
            await trio.sleep_forever()
        await stream.send_all(page(json.dumps(STATED)))

    with open_store(url) as store:
        async with raw_server({"*": answer}) as shop:
            add_jobs(store, 1)
            orders = {"url": url, "data": str(tmp_path), "shop": f"{shop.url}/api"}
            with working(1, orders), trio.fail_after(30):
                await has_asked.wait()
            with working(1, orders):
                await until_done(store, 1)
        found = counted(store)

    assert len(shop.asked) == 2
    assert found == {"points": 3, "twice": 0, "attempts": 1, "reclaims": 1}
