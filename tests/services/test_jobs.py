"""Changes of jobs by hand through the service: many at once, refusals, and what this process hears of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import trio
from trio.testing import MockClock

from actors.jobs.handler import JobContext
from cormorant.rules.errors import IllegalChange, NotFound
from cormorant.rules.jobs.events import JobCancelled
from tests.actors.working import Workplace, workplace


@pytest.fixture
def place() -> Iterator[Workplace]:
    with workplace() as made:
        yield made


async def test_many_jobs_are_cancelled_in_pages_and_each_page_is_told(clock: MockClock, place: Workplace) -> None:
    told: list[int] = []

    async with place.service({}) as service:
        ids = [await service.enqueue("work", number) for number in range(101)]
        done = await service.jobs.change_each("cancel", [*ids, ids[0], 4711], tell=told.append)

    assert told == [100, 2]
    assert [each.id for each in done if each.is_done] == ids
    assert [each.said for each in done if not each.is_done] == [
        "there is no such job; finished jobs are pruned after a while"
    ]
    assert len(place.events.of(JobCancelled)) == 101


async def test_a_handler_here_is_stopped_at_once_when_its_job_is_one_of_many(
    clock: MockClock, place: Workplace
) -> None:
    stopped: list[float] = []

    async def work(_: JobContext) -> None:
        try:
            await trio.sleep(100)
        finally:
            stopped.append(trio.current_time())

    async with place.service({"work": work}) as service:
        ids = [await service.enqueue("work", number) for number in range(2)]
        await trio.sleep(5)
        await service.jobs.change_each("cancel", ids)
        await trio.sleep(1)

    assert stopped == [5.0, 5.0]


async def test_a_change_of_one_job_that_cannot_be_made_is_raised(clock: MockClock, place: Workplace) -> None:
    async with place.service({}) as service:
        job_id = await service.enqueue("work", {})
        with pytest.raises(IllegalChange, match="a job that is pending cannot be changed by revive"):
            await service.jobs.revive(job_id)
        with pytest.raises(NotFound, match="there is no job 4711; finished jobs are pruned after a while"):
            await service.jobs.discard(4711)


async def test_a_second_pause_changes_nothing_and_keeps_the_time_of_the_first(
    clock: MockClock, place: Workplace
) -> None:
    async with place.service({}) as service:
        first = await service.jobs.pause()
        since = (await service.jobs.surroundings()).pauses.everything_since
        await trio.sleep(60)
        second = await service.jobs.pause()
        still = (await service.jobs.surroundings()).pauses.everything_since

    assert (first, second) == (True, False)
    assert since == still
