"""The service as one object: it starts, stops, fails and says so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from attrs import evolve
from sqlalchemy import Connection, text
from trio.testing import MockClock

from cormorant.rules.errors import (
    RestartsExhausted,
    ServiceFailed,
    ServiceStopped,
    StartFailed,
    StorageMisconfigured,
    StorageUnavailable,
)
from cormorant.rules.events import (
    ChildStarted,
    ServiceReady,
    ServiceStopping,
    StorageBack,
    StorageLost,
    SupervisorStopped,
)
from cormorant.rules.settings.settings import Settings
from cormorant.rules.settings.watch import FeedSettings
from cormorant.rules.watch.feeds import DueFeed, FetchedFeed
from cormorant.testing import Recorder, SimulatedClock, in_line, memory_gateway, settings
from storage.database import Database
from storage.jobs import workers
from storage.watch import feed_claims, feeds
from supervisors import ChildState
from supervisors.service import Service, ServiceState, open_service
from tests.environments import environment_of
from tests.gateways import shared_gateway
from tests.leases import WORKER, register
from tests.supervisors.probes import Boom, Half


@pytest.fixture
def gateway() -> Iterator[Database]:
    with memory_gateway() as database:
        yield database


@pytest.fixture
def shared() -> Iterator[Database]:
    with shared_gateway() as database:
        yield database


def opened(gateway: Database, recorder: Recorder | None = None) -> Service:
    listeners = [] if recorder is None else [recorder]
    return open_service(
        settings(),
        environment=environment_of(
            clock=SimulatedClock(), chance=Half(), offload=in_line, database=gateway, listeners=listeners
        ),
    )


def remember(connection: Connection, name: str) -> int:
    connection.execute(text("CREATE TABLE IF NOT EXISTS names (name TEXT)"))
    connection.execute(text("INSERT INTO names VALUES (:name)"), {"name": name})
    count: int = connection.execute(text("SELECT count(*) FROM names")).scalar_one()
    return count


@pytest.mark.slow("a real database in threads")
async def test_the_data_folder_is_created_for_the_owner_alone(tmp_path: Path) -> None:
    chosen = settings(data=str(tmp_path / "new" / "data"))

    async with open_service(chosen) as service:
        await service.transaction(remember, "geogaddi")

    made = [tmp_path / "new" / "data", tmp_path / "new" / "data" / "cormorant.db"]
    assert [f"{path.stat().st_mode & 0o777:o}" for path in made] == ["700", "600"]


@pytest.mark.slow("a real database in threads")
async def test_a_data_folder_that_cannot_be_created_is_told_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(StorageMisconfigured, match="cannot be created: .*; set data to another path"):
        async with open_service(settings(data=str(tmp_path / "file" / "data"))):
            pass


async def test_the_service_is_ready_when_every_child_is_up_and_stops_clean(clock: MockClock, gateway: Database) -> None:
    recorder = Recorder()

    async with opened(gateway, recorder) as service:
        status = await service.status()

    assert status.state is ServiceState.READY
    assert [view.name for view in status.tree] == ["storage", "search", "handover", "jobs", "tickers", "sweepers"]
    assert {view.state for view in status.tree} == {ChildState.RUNNING}
    assert service.report is not None
    assert service.report.clean
    names = [type(stamped.event) for stamped in recorder.heard]
    assert names.index(ChildStarted) < names.index(ServiceReady) < names.index(ServiceStopping)
    assert names[-1] is SupervisorStopped


async def test_a_second_service_on_the_same_database_finds_what_the_first_wrote(
    clock: MockClock, gateway: Database
) -> None:
    async with opened(gateway) as first:
        assert await first.transaction(remember, "geogaddi") == 1
    async with opened(gateway) as second:
        assert await second.transaction(remember, "twoism") == 2


async def test_an_outage_is_no_crash_and_calls_wait_it_out(clock: MockClock, gateway: Database) -> None:
    recorder = Recorder()

    async with opened(gateway, recorder) as service, trio.open_nursery() as nursery:
        gateway.go_away()
        nursery.start_soon(service.transaction, remember, "held")
        await trio.sleep(10)
        gateway.come_back()
        await trio.sleep(10)
        assert await service.transaction(remember, "after") == 2
        restarts = [view.restarts for view in (await service.status()).tree]

    assert set(restarts) == {0}
    assert len(recorder.of(StorageLost)) == len(recorder.of(StorageBack)) == 1


async def test_a_call_held_too_long_is_told_that_it_surely_did_not_happen(clock: MockClock, gateway: Database) -> None:
    async with opened(gateway) as service:
        gateway.go_away()
        with pytest.raises(StorageUnavailable):
            await service.transaction(remember, "lost")
        gateway.come_back()
        await trio.sleep(10)
        assert await service.transaction(remember, "found") == 1


async def test_after_the_end_calls_raise_service_stopped_and_it_cannot_be_opened_again(
    clock: MockClock, gateway: Database
) -> None:
    service = opened(gateway)
    with pytest.raises(ServiceStopped, match="closed"):
        await service.transaction(remember, "early")

    async with service:
        pass

    with pytest.raises(ServiceStopped, match="stopped"):
        await service.transaction(remember, "late")
    with pytest.raises(ServiceStopped, match="opened once"):
        async with service:
            pass


async def test_the_bodys_error_leaves_unwrapped(clock: MockClock, gateway: Database) -> None:
    with pytest.raises(Boom, match="mine"):
        async with opened(gateway):
            raise Boom("mine")


class Broken(Database):
    """A gateway that crashes a second after each start."""

    async def __call__(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        await trio.sleep(1)
        raise Boom("the gateway")


def broken(gateway: Database) -> Database:
    gateway.__class__ = Broken
    return gateway


async def test_a_failure_of_the_tree_cancels_the_body_and_leaves_as_service_failed(
    clock: MockClock, gateway: Database
) -> None:
    service = opened(broken(gateway))

    with pytest.raises(ServiceFailed) as caught:
        async with service:
            await trio.sleep_forever()

    assert isinstance(caught.value.__cause__, RestartsExhausted)
    assert isinstance(caught.value.__cause__.__cause__, Boom)
    with pytest.raises(ServiceStopped, match="failed"):
        await service.transaction(remember, "late")


async def test_when_body_and_tree_fail_both_are_in_the_cause(clock: MockClock, gateway: Database) -> None:
    async def body() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise Boom("mine")

    with pytest.raises(ServiceFailed) as caught:
        async with opened(broken(gateway)):
            await body()

    assert isinstance(caught.value.__cause__, ExceptionGroup)
    assert [type(error) for error in caught.value.__cause__.exceptions] == [Boom, RestartsExhausted]


async def test_cancellation_around_the_service_is_not_mistaken_for_a_failure(
    clock: MockClock, gateway: Database
) -> None:
    with trio.move_on_after(5) as scope:
        async with opened(gateway) as service:
            await trio.sleep_forever()

    assert scope.cancelled_caught
    assert service.report is not None
    assert service.report.clean


async def test_events_are_a_stream_that_ends_with_the_service(clock: MockClock, gateway: Database) -> None:
    async with opened(gateway) as service:
        events = service.events()

    first, *_ = [stamped.event async for stamped in events]
    assert isinstance(first, ServiceStopping)


@pytest.mark.slow("real threads and a real file, on the real clock")
async def test_two_services_with_two_databases_run_in_one_process(tmp_path: Path) -> None:
    def here(name: str) -> Settings:
        (tmp_path / name).mkdir()
        return settings(data=str(tmp_path / name))

    async with open_service(here("a")) as first, open_service(here("b")) as second:
        assert await first.transaction(remember, "x") == 1
        assert await second.transaction(remember, "x") == 1
        assert await first.transaction(remember, "y") == 2


async def test_a_database_that_cannot_be_used_fails_the_start_with_the_reason(tmp_path: Path) -> None:
    wrong: Any = evolve(Settings().storage, url=type(Settings().storage.url)("mysql://here/there"))

    with pytest.raises(ServiceFailed) as caught:
        async with open_service(settings(data=str(tmp_path), storage=wrong)):
            pytest.fail("the body must not run")

    assert isinstance(caught.value.__cause__, StartFailed)
    assert "mysql" in str(caught.value)


async def test_a_feed_that_the_sweeper_frees_is_checked_at_once(clock: MockClock, shared: Database) -> None:
    asked: list[tuple[str, float]] = []

    async def feed(subscription: DueFeed) -> FetchedFeed:
        await trio.lowlevel.checkpoint()
        asked.append((subscription.name, trio.current_time()))
        return FetchedFeed()

    environment = environment_of(clock=SimulatedClock(), chance=Half(), offload=in_line, database=shared, feed=feed)
    async with open_service(settings(), environment=environment) as service:
        await trio.sleep(30)
        for name in ("freed", "other"):
            await service.feeds.add(name, FeedSettings(url=f"http://{name}.test/", every_s=3_600.0))
            await trio.sleep(1)
        await shared.run(claim_and_vanish)
        await trio.sleep(40)

    assert asked == [("freed", 30.0), ("other", 31.0), ("freed", 60.0)]


def claim_and_vanish(connection: Connection) -> None:
    """What a process did that has no row any more: the first feed is due, and claimed by it."""
    register(connection)
    claimed = feed_claims.claim_one(connection, 1, worker=WORKER)
    assert claimed is not None
    feeds.reschedule(connection, 1, SimulatedClock().now())
    workers.retire(connection, WORKER)
