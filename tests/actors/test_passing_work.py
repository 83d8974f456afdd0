"""Work that need not survive a restart: what becomes of it at a stop, in an outage, and when the lease is lost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import trio
from attrs import evolve
from trio.testing import MockClock

from actors.jobs.handler import JobContext
from cormorant.rules.errors import UnknownLabel
from cormorant.rules.events import ChildCrashed
from cormorant.rules.jobs.events import (
    EphemeralWorkDropped,
    JobCancelled,
    JobCompleted,
    JobFailed,
    JobReleased,
    WorkerLeaseLost,
    WorkerUnconfirmed,
)
from cormorant.rules.settings.settings import QueueSettings
from cormorant.testing import in_line, settings
from storage.jobs import workers
from supervisors.service import Service, open_service
from tests.actors.test_leases import only_worker
from tests.actors.working import Handled, Workplace, states, workplace
from tests.environments import environment_of


@pytest.fixture
def place() -> Iterator[Workplace]:
    with workplace(is_shared=True) as made:
        yield made
    assert made.events.of(ChildCrashed) == []


def payloads(work: Handled) -> list[tuple[float, object]]:
    return [(at, context.payload) for at, context in zip(work.runs, work.contexts, strict=True)]


async def test_at_a_stop_nothing_is_begun_any_more_and_that_is_told(clock: MockClock, place: Workplace) -> None:
    work = Handled(takes_s=200.0)

    async with place.service({"work": work}, concurrency=1, grace_s=5.0) as service:
        for delay_s in (0.0, 0.0, 2.0, 3600.0):
            await service.jobs.run_ephemeral("work", delay_s, delay_s=delay_s)
        await trio.sleep(1)

    assert payloads(work) == [(0.0, 0.0)]
    assert trio.current_time() == 1.0 + 5.0
    assert [event.dropped for event in place.events.of(EphemeralWorkDropped)] == [3]
    assert [(event.job_id, event.why) for event in place.events.of(JobCancelled)] == [(None, "the service stops")]
    assert service.report is not None
    assert service.report.clean


async def test_what_ends_within_the_grace_of_a_stop_is_not_told_as_stopped(clock: MockClock, place: Workplace) -> None:
    work = Handled(takes_s=3.0)

    async with place.service({"work": work}, grace_s=5.0) as service:
        await service.jobs.run_ephemeral("work", {})
        await trio.sleep(1)

    assert trio.current_time() == 3.0
    assert place.events.of(JobCancelled) == []
    assert place.events.of(EphemeralWorkDropped) == []


async def test_a_stop_in_an_outage_gives_up_what_was_put_off(clock: MockClock, place: Workplace) -> None:
    work = Handled(takes_s=250.0)

    async with place.service({"work": work}, concurrency=1, timeout_s=1000.0) as service:
        await service.enqueue("work", {})
        await trio.sleep(1)
        await service.jobs.run_ephemeral("work", {}, delay_s=9999.0)
        place.gateway.go_away()
        await trio.sleep(235)  # the lease is doubted in the middle of the stop

    assert work.runs == [0.0]
    assert len(place.events.of(WorkerUnconfirmed)) == 1
    assert [event.dropped for event in place.events.of(EphemeralWorkDropped)] == [1]


@pytest.mark.slow("a simulated outage")
async def test_an_outage_neither_stops_what_needs_no_database_nor_hastens_it(
    clock: MockClock, place: Workplace
) -> None:
    work = Handled(takes_s=290.0)

    async with place.service({"work": work}) as service:
        await service.jobs.run_ephemeral("work", "now")
        await service.jobs.run_ephemeral("work", "later", delay_s=1000.0)
        await service.enqueue("work", "durable")
        await trio.sleep(1)
        place.gateway.go_away()
        await trio.sleep(280)
        place.gateway.come_back()
        await trio.sleep(1100)

    assert [event.handlers for event in place.events.of(WorkerUnconfirmed)] == [1]
    assert [event.why for event in place.events.of(JobReleased)] == ["Interrupted: the lease could not be confirmed"]
    assert [entry for entry in payloads(work) if entry[1] != "durable"] == [(0.0, "now"), (1000.0, "later")]
    assert place.events.of(JobCancelled) == []
    assert place.events.of(JobFailed) == []


async def test_a_lost_lease_is_no_matter_of_what_was_never_leased(clock: MockClock, place: Workplace) -> None:
    ended: list[float] = []

    async def work(context: JobContext) -> None:
        await trio.sleep(50)
        ended.append(trio.current_time())

    async with place.service({"work": work}, concurrency=1) as service:
        await service.jobs.run_ephemeral("work", "now")
        await service.jobs.run_ephemeral("work", "next", priority="low")
        me = await service.transaction(only_worker)
        await service.transaction(workers.mark_dead, me, beat=0, now=place.clock.now())
        await trio.sleep(200)

    assert [event.handlers for event in place.events.of(WorkerLeaseLost)] == [0]
    assert ended == [50.0, 100.0]


async def test_a_durable_job_follows_at_once_when_passing_work_makes_room(clock: MockClock, place: Workplace) -> None:
    work = Handled(takes_s=7.25)

    async with place.service({"work": work}, concurrency=1, poll_s=60.0) as service:
        await service.jobs.run_ephemeral("work", "passing")
        await trio.sleep(1)
        await service.enqueue("work", "durable")
        await trio.sleep(100)

    assert payloads(work) == [(0.0, "passing"), (7.25, "durable")]
    assert len(place.events.of(JobCompleted)) == 1


async def test_a_handler_may_put_off_work_and_pause_everything(clock: MockClock, place: Workplace) -> None:
    raised: list[Exception] = []
    ran = Handled()

    async def work(context: JobContext) -> None:
        await service.jobs.run_ephemeral("then", "passing", delay_s=5.0)
        await service.pause()
        await trio.sleep(10)
        await service.resume()
        try:
            await service.jobs.run_ephemeral("then", {}, priority="urgent")
        except UnknownLabel as refusal:
            raised.append(refusal)

    async with place.service({"work": work, "then": ran}) as service:
        await service.enqueue("work", {})
        await trio.sleep(1)
        await service.enqueue("then", "durable")
        await trio.sleep(30)
        ended = await service.transaction(states)

    assert payloads(ran) == [(5.0, "passing"), (10.0, "durable")]
    assert list(ended.values()) == ["succeeded", "succeeded"]
    assert len(raised) == 1


async def test_what_a_handler_puts_off_beyond_the_room_is_told(clock: MockClock, place: Workplace) -> None:
    async def work(context: JobContext) -> None:
        for number in range(3):
            await service.jobs.run_ephemeral("then", number, delay_s=5.0)

    ran = Handled()
    service = narrow_service(place, {"work": work, "then": ran}, room=2)
    async with service:
        await service.enqueue("work", {})
        await trio.sleep(10)

    assert payloads(ran) == [(5.0, 0), (5.0, 1)]
    assert ["QueueFull" in event.error for event in place.events.of(JobFailed)] == [True]


def narrow_service(place: Workplace, handlers: dict[str, Any], *, room: int) -> Service:
    """A service with little room for what need not last."""
    chosen = evolve(settings(), queue=QueueSettings(max_in_memory=room, warn_depth=1))
    return open_service(
        chosen,
        environment=environment_of(
            clock=place.clock, chance=place.chance, offload=in_line, database=place.gateway, listeners=[place.events]
        ),
        handlers=handlers,
    )
