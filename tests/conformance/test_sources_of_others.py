"""What another process changes at a source is seen at once, and not at the next look: on real databases with threads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import SystemRandom

import pytest
import trio
from attrs import evolve
from sqlalchemy import Connection

from actors import SystemClock
from actors.environment import SearchSource
from actors.search import rate_limiter
from cormorant.rules.ports import ignore
from cormorant.rules.search import reservations
from cormorant.rules.search.requests import SearchPage, SearchRequest
from cormorant.rules.secrets import Secret
from cormorant.testing import ScriptedSource, scripted, settings
from storage.database import Database, Mode, StorageOptions
from storage.search import source_states, sources
from storage.search.sources import SourceRecord
from supervisors import Service, open_service
from tests.bounds import WAIT_S
from tests.conformance.searching import statuses
from tests.environments import environment_of
from tests.storage.source_store import FREE, add_source
from tests.waiting import until

DAY_S = 86_400.0

pytestmark = pytest.mark.slow("a database in threads")


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'shared.db'}"
    else:
        yield request.getfixturevalue("postgres_url")


@pytest.fixture(autouse=True)
def never_looks_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limiter, "LOOK_S", DAY_S)


@asynccontextmanager
async def service_and_other(url: str, search: SearchSource | None = None) -> AsyncIterator[tuple[Service, Database]]:
    """A service without sources of its own, and the database as another process has it."""
    ours, other = (
        Database(StorageOptions(url=url), mode=Mode.THREADS, emit=ignore, chance=SystemRandom()) for _ in range(2)
    )
    environment = environment_of(database=ours, search=search or scripted({"a": ScriptedSource(["found"])}))
    async with open_service(settings(), environment=environment) as service, trio.open_nursery() as nursery:
        await nursery.start(other)
        await service.sources.search("until the sources are known", sources=[])
        with trio.fail_after(WAIT_S):
            yield service, other
        nursery.cancel_scope.cancel()


def added(connection: Connection, /) -> int:
    return add_source(connection)


def is_known(service: Service) -> bool:
    return [status.name for status in service.sources.status()] == ["a"]


async def test_a_source_that_another_process_adds_can_be_searched_at_once(url: str) -> None:
    async with service_and_other(url) as (service, other):
        await other.run(added)
        await until(lambda: is_known(service))

        assert await statuses(await service.search("one")) == {"a": "found"}


async def test_the_end_of_a_pause_in_another_process_lets_what_waits_go_at_once(url: str) -> None:
    async with service_and_other(url) as (service, other):
        number = await other.run(added)
        await other.run(source_states.change, number, reservations.pause, configured=FREE)
        await until(lambda: is_known(service))
        search = await service.search("one")
        await until(lambda: [reason.name for reason in service.explain("a").reasons] == ["paused"])

        await other.run(source_states.change, number, reservations.resume, configured=FREE)

        assert await statuses(search) == {"a": "found"}


async def test_a_key_that_another_process_changes_is_used_by_the_next_request(url: str) -> None:
    keys: list[str] = []

    async def ask(record: SourceRecord, _: SearchRequest) -> SearchPage:
        await trio.lowlevel.checkpoint()
        keys.append(record.key.reveal())
        return SearchPage(results=())

    async with service_and_other(url, search=ask) as (service, other):
        await other.run(added)
        await until(lambda: is_known(service))
        record = await other.read(sources.find, "a")
        await other.run(sources.change, evolve(record, key=Secret("new")), now=SystemClock().now())
        while keys[-1:] != ["new"]:
            await statuses(await service.search(f"one {len(keys)}"))

    assert keys[-1] == "new"


async def test_a_source_that_another_process_removes_is_dropped_at_once(url: str) -> None:
    async with service_and_other(url) as (service, other):
        await other.run(added)
        await until(lambda: is_known(service))

        await other.run(sources.remove, "a", now=SystemClock().now())

        await until(lambda: not service.sources.status())
