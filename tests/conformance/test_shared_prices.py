"""Two processes collect the prices of one database: each job is done once, no point is there twice, the dead are stepped in for."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trio
from attrs import frozen
from sqlalchemy import Connection, text
from sqlalchemy.exc import OperationalError

from cormorant.rules.watch.prices import COLLECT, PriceWatch, collect_key
from storage.watch.prices import PRICE
from tests.bounds import WAIT_S
from tests.clients.raw_server import Asked, page, raw_server
from tests.storage.job_store import JobStore, at, open_store, put
from tests.watch_kinds import added

ROOT = Path(__file__).parents[2]
JOBS = 20
OTHERS = [f"shop{number}" for number in range(6)]
STATED = [{"title": "Coin", "price": cents, "id": cents, "type": "sold"} for cents in (1, 2, 3)] * 2
FAR_OFF = datetime.now(UTC) + timedelta(hours=20)
"""Not due while the test runs, and not so late that a clock which ran ahead is suspected."""


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
            wanted = PriceWatch(name=f"coin{n}", title=f"Coin {n}", next_attempt_at=FAR_OFF, added_at=at(0))
            intake = added(connection, PRICE, wanted)
            add_job(connection, intake, "shop")


def add_job(connection: Connection, intake: PriceWatch, source: str) -> None:
    payload = json.dumps({"intake": intake.id, "source": source})
    put(connection, COLLECT, payload=payload, dedupe_key=collect_key(intake.id, source), max_attempts=5)


def add_contested(store: JobStore) -> None:
    """One thing that both processes value at the same time, each after what another source states."""
    with store.begin() as connection:
        wanted = PriceWatch(name="contested", title="Coin", below_cents=1_000, next_attempt_at=FAR_OFF, added_at=at(0))
        intake = added(connection, PRICE, wanted)
        for source in OTHERS:
            add_job(connection, intake, source)


@frozen
class Crew:
    """Starts processes that work, and kills them with SIGKILL."""

    foreman: subprocess.Popen[str]

    @contextmanager
    def working(self, number: int, orders: dict[str, Any]) -> Iterator[None]:
        """So many processes work, and are killed at the end."""
        assert self.foreman.stdin is not None
        assert self.foreman.stdout is not None
        self.foreman.stdin.write(f"{json.dumps(orders | {'number': number})}\n")
        self.foreman.stdin.flush()
        is_ready, _, _ = select.select([self.foreman.stdout], [], [], WAIT_S)
        assert is_ready, "the program does not come up"
        workers = [int(worker) for worker in self.foreman.stdout.readline().split()]
        assert len(workers) == number
        try:
            yield
        finally:
            for worker in workers:
                os.kill(worker, signal.SIGKILL)


@pytest.fixture(scope="module")
def crew() -> Iterator[Crew]:
    """One program for all tests here: it is loaded once, and each worker is a fork of it."""
    command = [sys.executable, "-m", "tests.chaos.price_worker"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as foreman:
        yield Crew(foreman)
        foreman.communicate(timeout=WAIT_S)


def orders_for(url: str, data: Path, shop: str, *, lock_timeout_s: float) -> dict[str, Any]:
    """What workers are told. A worker that only gets no processor time must not be taken for dead before `lock_timeout_s`."""
    return {"url": url, "data": str(data), "shop": f"{shop}/api", "lock_timeout_s": lock_timeout_s}


async def until_done(store: JobStore, number: int) -> None:
    with trio.fail_after(WAIT_S):
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
        "values": "SELECT count(*) FROM valuations",
        "alerts": "SELECT count(*) FROM price_alerts",
        "most": "SELECT max(points) FROM valuations",
        "attempts": "SELECT sum(attempts) FROM jobs",
        "reclaims": "SELECT sum(reclaims) FROM jobs",
    }
    with store.begin() as connection:
        return {name: int(connection.execute(text(statement)).scalar_one() or 0) for name, statement in asked.items()}


@pytest.mark.slow("two real processes")
async def test_two_workers_do_each_job_once_and_leave_no_point_twice(crew: Crew, url: str, tmp_path: Path) -> None:
    with open_store(url) as store:
        async with raw_server({"*": page(json.dumps(STATED))}) as shop:
            add_jobs(store, JOBS)
            add_contested(store)
            orders = orders_for(url, tmp_path, shop.url, lock_timeout_s=3_600.0) | {"others": OTHERS}
            with crew.working(2, orders):
                await until_done(store, JOBS + len(OTHERS))
        found = counted(store)

    asked = Counter(each.params["q"] for each in shop.asked)
    assert asked == Counter([*(f"Coin {n}" for n in range(JOBS)), *["Coin"] * len(OTHERS)])
    assert (found["points"], found["twice"]) == (3 * (JOBS + len(OTHERS)), 0)
    assert (found["values"], found["most"], found["alerts"]) == (1, 3 * len(OTHERS), 1)
    assert (found["attempts"], found["reclaims"]) == (0, 0)


@pytest.mark.slow("two real processes, one of them killed")
async def test_the_job_of_a_dead_worker_is_done_by_another(crew: Crew, url: str, tmp_path: Path) -> None:
    has_asked = trio.Event()

    async def answer(stream: trio.SocketStream, _asked: Asked) -> None:
        if not has_asked.is_set():
            has_asked.set()
            await trio.sleep_forever()
        await stream.send_all(page(json.dumps(STATED)))

    with open_store(url) as store:
        async with raw_server({"*": answer}) as shop:
            add_jobs(store, 1)
            orders = orders_for(url, tmp_path, shop.url, lock_timeout_s=5.0)
            with crew.working(1, orders), trio.fail_after(WAIT_S):
                await has_asked.wait()
            with crew.working(1, orders):
                await until_done(store, 1)
        found = counted(store)

    assert len(shop.asked) == 2
    assert [found[name] for name in ("points", "twice", "attempts", "reclaims")] == [3, 0, 1, 1]
