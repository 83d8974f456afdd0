"""What one handler does wrong is its own failure: no other job and no actor suffers from it."""

from __future__ import annotations

import gc
import sys
from collections.abc import AsyncGenerator, Iterator
from decimal import Decimal

import pytest
import trio
from trio.testing import MockClock

from actors.jobs.handler import JobContext
from cormorant.rules.events import ChildCrashed
from cormorant.rules.jobs.events import JobFailed, JobRetried, JobSnoozed
from cormorant.rules.jobs.states import JobState
from cormorant.rules.jobs.verdicts import Retry, Snooze
from tests.actors.working import Handled, Workplace, states, workplace


@pytest.fixture
def place() -> Iterator[Workplace]:
    with workplace() as made:
        yield made
    assert made.events.of(ChildCrashed) == []


class Busy(Retry):
    """A subclass that forgets its parent's `__init__`."""

    def __init__(self, host: str) -> None:
        self.host = host


class Later(Snooze):
    """Another one."""

    def __init__(self, host: str) -> None:
        self.host = host


class Odd(Retry):
    """One whose words make no sense."""

    def __init__(self) -> None:
        self.delay_s = "soon"  # type: ignore[assignment]  # being wrong is the point


class Cursed(type):
    """A class that cannot be asked."""

    @property
    def is_permanent(cls) -> bool:
        raise ZeroDivisionError("ask me not")


class Unaskable(Exception, metaclass=Cursed):
    """An error of such a class."""


async def test_subclasses_that_forget_their_parent_mean_what_it_usually_means(
    clock: MockClock, place: Workplace
) -> None:
    busy, later = Handled(raises=[Busy("example.org")]), Handled(raises=[Later("example.org")])

    async with place.service({"busy": busy, "later": later}) as service:
        await service.enqueue("busy", {})
        await service.enqueue("later", {})
        await trio.sleep(70)

    assert [event.retry_in_s for event in place.events.of(JobRetried)] == [300.0]
    assert later.runs == [0.0, 60.0]


async def test_a_delay_may_be_any_number(clock: MockClock, place: Workplace) -> None:
    work = Handled(raises=[Snooze(Decimal(5)), Retry("x", delay_s=Decimal(7))])  # type: ignore[arg-type]  # as people do

    async with place.service({"work": work}) as service:
        await service.enqueue("work", {})
        await trio.sleep(60)

    assert work.runs == [0.0, 5.0, 12.0]
    assert [event.for_s for event in place.events.of(JobSnoozed)] == [5.0]


@pytest.mark.parametrize("error", [Odd(), Unaskable("x")])
async def test_an_error_that_makes_no_sense_fails_its_own_job_alone(
    clock: MockClock, place: Workplace, error: Exception
) -> None:
    bad, innocent = Handled(raises=[error]), Handled(takes_s=100.0)

    async with place.service({"innocent": innocent, "bad": bad}) as service:
        await service.enqueue("innocent", {})
        await service.enqueue("bad", {})
        await trio.sleep(150)
        ended = await service.transaction(states)

    assert list(ended.values()) == ["succeeded", "failed"]
    assert innocent.runs == [0.0]
    assert "cannot be made sense of" in place.events.of(JobFailed)[0].error


async def test_a_handler_that_exits_ends_itself_and_not_the_service(clock: MockClock, place: Workplace) -> None:
    async def work(context: JobContext) -> None:
        if context.attempt == 1:
            sys.exit(3)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sys.exit, 4)

    async with place.service({"work": work}) as service:
        await service.enqueue("work", {}, max_attempts=2)
        await trio.sleep(400)
        await service.jobs.run_ephemeral("work", {})
        await trio.sleep(1)

    assert [event.error for event in place.events.of(JobRetried)] == ["SystemExit: 3"]
    assert [event.error for event in place.events.of(JobFailed)] == ["SystemExit: 4", "SystemExit: 3"]


async def stream() -> AsyncGenerator[int, None]:
    """What a library gives that bounds the time between two items."""
    with trio.fail_after(30):
        for number in range(3):
            yield number


async def crowd() -> AsyncGenerator[int, None]:
    """What a library gives that works ahead."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever)
        for number in range(3):
            yield number


@pytest.mark.parametrize("waits", [False, True])
async def test_a_scope_that_a_handler_leaves_open_cancels_no_other_job(
    clock: MockClock, place: Workplace, *, waits: bool
) -> None:
    left: list[AsyncGenerator[int, None]] = []

    async def bad(context: JobContext) -> None:
        left.append(stream())
        async for _ in left[-1]:
            if waits:
                await trio.sleep(1)
            return

    innocent = Handled(takes_s=100.0)
    async with place.service({"bad": bad, "innocent": innocent}, concurrency=1) as service:
        await service.enqueue("bad", {})
        await service.enqueue("innocent", {})
        await trio.sleep(150)
        ended = await service.transaction(states)

    assert list(ended.values()) == ["failed", "succeeded"]
    assert len(innocent.runs) == 1
    assert "left a cancel scope or a nursery open" in place.events.of(JobFailed)[0].error


async def test_a_scope_that_is_left_open_by_an_error_is_told_as_the_cause(clock: MockClock, place: Workplace) -> None:
    left: list[AsyncGenerator[int, None]] = []

    async def bad(context: JobContext) -> None:
        left.append(stream())
        async for _ in left[-1]:
            await trio.sleep(60)  # longer than the generator's own bound

    async with place.service({"bad": bad}, concurrency=1) as service:
        await service.enqueue("bad", {})
        await trio.sleep(100)
        ended = await service.transaction(states)

    assert list(ended.values()) == ["failed"]
    assert [event.error.partition(":")[0] for event in place.events.of(JobFailed)] == ["HandlerMisbehaved"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.slow("starts and stops a whole service")
async def test_a_nursery_that_a_handler_leaves_open_disturbs_nobody_who_opens_one(
    clock: MockClock, place: Workplace
) -> None:
    left: list[AsyncGenerator[int, None]] = []

    async def bad(context: JobContext) -> None:
        left.append(crowd())
        async for _ in left[-1]:
            return

    async def innocent(context: JobContext) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep, 50)
            await trio.sleep(1)
            left.clear()  # now the generator is closed, by nobody in particular
            gc.collect()

    async with place.service({"bad": bad, "innocent": innocent}, concurrency=1) as service:
        await service.enqueue("bad", {})
        job_id = await service.enqueue("innocent", {})
        await trio.sleep(100)
        view = await service.jobs.show(job_id)

    assert (view.state, view.attempts) == (JobState.SUCCEEDED, 0)
    assert service.report is not None
    assert service.report.clean
