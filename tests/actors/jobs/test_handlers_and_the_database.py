"""What handlers do with the database: in every state of the service, and only as long as the job is theirs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import trio
from attrs import evolve
from sqlalchemy import Connection, text
from trio.testing import MockClock

from actors.jobs.handler import Handler, JobContext, Run
from cormorant.rules.errors import LeaseLost
from cormorant.rules.jobs.events import JobRetried
from storage import pauses
from storage.jobs import jobs
from tests.actors.working import Handled, Workplace, states, workplace


@pytest.fixture
def place() -> Iterator[Workplace]:
    with workplace(is_shared=True) as made:
        yield made


def leave_a_mark(connection: Connection, place: Workplace) -> None:
    pauses.pause(connection, "mark", now=place.clock.now())


def has_mark(connection: Connection) -> bool:
    return connection.execute(text("SELECT kind FROM paused_kinds")).scalars().all() == ["mark"]


@pytest.mark.slow("two lives of a service")
async def test_a_handler_may_still_write_while_the_service_stops(clock: MockClock, place: Workplace) -> None:
    follow_up = Handled()

    async def work(context: JobContext) -> None:
        await trio.sleep(12)
        await context.transaction(leave_a_mark, place)
        await context.enqueue("follow up", {}, dedupe_key="once")

    handlers: dict[str, Run | Handler] = {"work": work, "follow up": follow_up}
    async with place.service(handlers, grace_s=5.0) as service:
        await service.enqueue("work", {}, correlation_id="abc")
        await trio.sleep(10)
    async with place.service(handlers) as service:
        await trio.sleep(1)
        marked, all_states = await service.transaction(has_mark), await service.transaction(states)

    assert marked
    assert set(all_states.values()) == {"succeeded"}
    assert [context.correlation_id for context in follow_up.contexts] == ["abc"]
    assert place.events.of(JobRetried) == []


async def test_a_handler_whose_job_is_no_longer_its_own_writes_nothing(clock: MockClock, place: Workplace) -> None:
    refused: list[LeaseLost] = []

    async def work(context: JobContext) -> None:
        with trio.CancelScope(shield=True):  # it does not hear that it was cancelled
            await trio.sleep(60)
            try:
                await context.transaction(leave_a_mark, place)
            except LeaseLost as lost:
                refused.append(lost)

    async with place.service({"work": work}) as service:
        job_id = await service.enqueue("work", {})
        await trio.sleep(5)
        await service.transaction(jobs.cancel, job_id, now=place.clock.now())
        await trio.sleep(100)
        marked = await service.transaction(has_mark)

    assert [lost.job_id for lost in refused] == [job_id]
    assert not marked


async def test_passing_work_writes_without_a_lease(clock: MockClock, place: Workplace) -> None:
    async def work(context: JobContext) -> None:
        await context.transaction(leave_a_mark, place)

    async with place.service({"work": work}) as service:
        await service.jobs.run_ephemeral("work", {})
        await trio.sleep(1)

        assert await service.transaction(has_mark)


async def test_a_job_of_a_priority_that_is_configured_no_more_is_run(clock: MockClock, place: Workplace) -> None:
    work = Handled()

    async with place.service({}) as service:
        await service.jobs.take_in(evolve(service.jobs.make("work", {}), priority=7))
    async with place.service({"work": work}):
        await trio.sleep(1)

    assert work.runs == [0.0]
