"""A pooler that drops LISTEN: what other processes change is found by polling, in a real PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import SystemRandom

import pytest
import trio
from attrs import define

from actors import SystemClock
from cormorant.rules.ports import ignore
from cormorant.rules.settings.settings import JobSettings
from cormorant.testing import settings
from storage import pauses
from storage.database import Database, Mode, StorageOptions
from storage.engine.postgres import PostgresChanges
from storage.jobs import jobs
from supervisors import Service, open_service
from tests.bounds import WAIT_S
from tests.environments import environment_of
from tests.storage.job_store import new_job
from tests.waiting import until

pytestmark = pytest.mark.slow("a server, and threads")

POLLED = JobSettings(poll_s=0.2, heartbeat_s=0.2)


@pytest.fixture(autouse=True)
def notices_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    def hear_nothing(changes: PostgresChanges) -> set[str]:
        vars(changes)["_connection"].pgconn.consume_input()
        return set()

    monkeypatch.setattr(PostgresChanges, "look", hear_nothing)


@define
class Work:
    """What the service has done."""

    ran: int = 0

    async def run(self, _: object) -> None:
        await trio.lowlevel.checkpoint()
        self.ran += 1


@asynccontextmanager
async def service_and_other(url: str, work: Work) -> AsyncIterator[tuple[Service, Database]]:
    """A service that hears nothing, and the database as another process has it."""
    ours, other = (
        Database(StorageOptions(url=url), mode=Mode.THREADS, emit=ignore, chance=SystemRandom()) for _ in range(2)
    )
    environment = environment_of(database=ours)
    async with (
        open_service(settings(jobs=POLLED), environment=environment, handlers={"work": work.run}) as service,
        trio.open_nursery() as nursery,
    ):
        await nursery.start(other)
        with trio.fail_after(WAIT_S):
            yield service, other
        nursery.cancel_scope.cancel()


async def test_a_pause_and_its_end_by_another_process_are_obeyed(postgres_url: str) -> None:
    work, clock = Work(), SystemClock()
    async with service_and_other(postgres_url, work) as (service, other):
        await service.pause()
        await other.run(jobs.enqueue, new_job(kind="work"), now=clock.now())
        await other.run(pauses.set_all, is_paused=False, now=clock.now())

        await until(lambda: work.ran == 1)
