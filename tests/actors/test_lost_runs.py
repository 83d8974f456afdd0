"""Which run of a job counts? Not one of an older claim, nor one of a job that was cancelled before it began."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trio
from attrs import define, field
from sqlalchemy import Connection
from trio.testing import MockClock

from actors.jobs.handler import JobContext
from actors.jobs.runner import CancelHandler
from cormorant.rules.errors import CommitUnknown
from cormorant.rules.jobs.events import JobCancelled, JobCompleted, JobReleased, JobResultDropped, JobStarted
from cormorant.rules.jobs.states import JobState
from storage.database import Database
from storage.jobs import jobs
from storage.jobs.batch import reconcile, run_batch
from supervisors.service import Service
from tests.actors.working import Handled, Workplace, states, workplace


@pytest.fixture
def place() -> Iterator[Workplace]:
    with workplace(is_shared=True) as made:
        yield made


@define
class Logged:
    """A handler that notes when each of its runs begins and ends."""

    takes_s: float
    log: list[tuple[str, float, int]] = field(factory=list)

    async def __call__(self, context: JobContext) -> None:
        self.log.append(("begins", trio.current_time(), context.token))
        try:
            await trio.sleep(self.takes_s)
        finally:
            self.log.append(("ends", trio.current_time(), context.token))


async def test_the_old_run_of_a_job_that_is_claimed_anew_is_stopped_at_the_next_heartbeat(
    clock: MockClock, place: Workplace
) -> None:
    work = Logged(takes_s=100.0)

    def by_hand(connection: Connection) -> None:
        """As somebody does elsewhere."""
        jobs.cancel(connection, job_id, now=place.clock.now())
        jobs.revive(connection, job_id, now=place.clock.now())

    async with place.service({"work": work}) as service:
        job_id = await service.enqueue("work", {})
        await trio.sleep(1)
        await service.transaction(by_hand)
        await trio.sleep(150)
        view = await service.jobs.show(job_id)

    assert work.log == [("begins", 0.0, 1), ("begins", 1.0, 2), ("ends", 20.0, 1), ("ends", 101.0, 2)]
    assert view.state is JobState.SUCCEEDED
    assert len(place.events.of(JobCompleted)) == 1


async def test_a_cancel_stops_the_run_it_was_meant_for_and_no_later_one(clock: MockClock, place: Workplace) -> None:
    work = Logged(takes_s=50.0)

    async with place.service({"work": work}) as service:
        job_id = await service.enqueue("work", {})
        await trio.sleep(1)
        await service.jobs.cancel(job_id)
        await service.jobs.revive(job_id)
        await trio.sleep(1)
        service.jobs.runner.tell_nowait(CancelHandler(job_id=job_id, token=1))  # as if it had come late
        await trio.sleep(100)

    assert work.log == [("begins", 0.0, 1), ("ends", 1.0, 1), ("begins", 1.0, 2), ("ends", 51.0, 2)]


async def claimed_but_not_begun(place: Workplace, service: Service) -> int:
    """A job that waits for the only worker: the answer of its claim came late, and other work was faster. It is 10 then."""
    job_id = await service.enqueue("work", "waits", delay_s=5.0)
    await trio.sleep(4)
    place.gateway.go_away()
    await trio.sleep(2)
    await service.jobs.run_ephemeral("work", "faster")
    await trio.sleep(1)
    place.gateway.come_back()
    await trio.sleep(3)
    assert (await service.jobs.show(job_id)).state is JobState.RUNNING
    assert trio.current_time() == 10.0
    return job_id


async def test_a_job_that_is_cancelled_before_it_begins_is_not_run(clock: MockClock, place: Workplace) -> None:
    work = Handled(takes_s=15.0)

    async with place.service({"work": work}, concurrency=1) as service:
        job_id = await claimed_but_not_begun(place, service)
        await service.jobs.cancel(job_id)
        await service.enqueue("work", "next")
        await trio.sleep(60)

    assert [context.payload for context in work.contexts] == ["faster", "next"]
    assert work.runs == [6.0, 21.0]
    assert [event.why for event in place.events.of(JobCancelled)] == ["by hand"]


async def test_a_job_that_is_cancelled_elsewhere_before_it_begins_is_not_run(
    clock: MockClock, place: Workplace
) -> None:
    work = Handled(takes_s=20.0)

    async with place.service({"work": work}, concurrency=1) as service:
        job_id = await claimed_but_not_begun(place, service)
        await service.transaction(jobs.cancel, job_id, now=place.clock.now())
        await trio.sleep(60)

    assert [context.payload for context in work.contexts] == ["faster"]
    assert [(event.job_id, event.why) for event in place.events.of(JobCancelled)] == [(job_id, "from outside")]


async def test_a_stop_during_a_look_gives_back_at_once_what_nobody_has_begun(
    clock: MockClock, place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    async def look(at: float) -> None:
        await trio.sleep_until(at)
        seen.extend((await place.gateway.read(states)).values())

    async with trio.open_nursery() as nursery:
        async with place.service({"work": Handled(takes_s=60.0)}, concurrency=1, grace_s=4.5) as service:
            await claimed_but_not_begun(place, service)
            answer_late(place.gateway, monkeypatch, s=1.0)
            await trio.sleep_until(20.5)  # the look of the heartbeat at 20 s is under way
            nursery.start_soon(look, 24.0)  # the tickers were stopped before
        assert trio.current_time() >= 25.0

    assert seen == ["pending"]


async def test_a_pause_during_a_look_holds(clock: MockClock, place: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    work = Handled()

    async with place.service({"work": work}) as service:
        await trio.sleep(10)
        answer_late(place.gateway, monkeypatch, s=1.0)
        await trio.sleep_until(20.5)
        await service.pause()
        await trio.sleep_until(21.25)
        await service.enqueue("work", {})
        await trio.sleep(100)
        assert work.runs == []
        await service.resume()
        await trio.sleep(100)

    assert len(work.runs) == 1


def answer_late(gateway: Database, monkeypatch: pytest.MonkeyPatch, *, s: float) -> None:
    """Let it take a while until one hears what a look has found."""
    run = gateway.run

    async def late(function: Callable[..., Any], *args: Any, **words: Any) -> Any:
        found = await run(function, *args, **words)
        if function is reconcile:
            await trio.sleep(s)
        return found

    monkeypatch.setattr(gateway, "run", late)


@pytest.mark.parametrize("is_written", [False, True])
@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_after_a_commit_in_doubt_exactly_what_is_stored_is_told(
    clock: MockClock, place: Workplace, monkeypatch: pytest.MonkeyPatch, *, is_written: bool, is_cancelled: bool
) -> None:
    run, cut = place.gateway.run, list[float]()

    async def cut_once(function: Callable[..., Any], *args: Any, **words: Any) -> Any:
        if function is not run_batch or not args[0].done or cut:
            return await run(function, *args, **words)
        cut.append(trio.current_time())
        if is_written:
            await run(function, *args, **words)
        elif is_cancelled:
            await run(jobs.cancel, job_id, now=place.clock.now())
        raise CommitUnknown("the line was cut")

    async with place.service({"work": Handled(takes_s=5.0)}) as service:
        job_id = await service.enqueue("work", {})
        monkeypatch.setattr(place.gateway, "run", cut_once)
        await trio.sleep(60)
        view = await service.jobs.show(job_id)

    was_dropped = is_cancelled and not is_written
    assert cut == [5.0]
    assert view.state is (JobState.CANCELLED if was_dropped else JobState.SUCCEEDED)
    assert len(place.events.of(JobCompleted)) == (not was_dropped)
    assert len(place.events.of(JobResultDropped)) == was_dropped


async def test_a_stop_that_a_handler_holds_up_counts_no_attempt(clock: MockClock, place: Workplace) -> None:
    async def work(context: JobContext) -> None:
        with trio.CancelScope(shield=True):  # as a thread that cannot be stopped
            await trio.sleep(60)

    async with place.service({"work": work}) as service:
        job_id = await service.enqueue("work", {}, max_attempts=1)
        await trio.sleep(1)
    async with place.service({}) as service:
        view = await service.jobs.show(job_id)

    assert trio.current_time() == 60.0
    assert (view.state, view.attempts) == (JobState.PENDING, 0)
    assert len(place.events.of(JobStarted)) == 1
    assert place.events.of(JobReleased) == []


@pytest.mark.parametrize("seed", range(8))
async def test_the_next_job_starts_as_soon_as_a_cancelled_one_has_ended(
    clock: MockClock, place: Workplace, seed: int
) -> None:
    work = Handled(takes_s=100.0)

    async with place.service({"work": work}, concurrency=1) as service:
        first = await service.enqueue("work", {})
        await service.enqueue("work", {})
        for _ in range(seed):
            await trio.lowlevel.checkpoint()
        await trio.sleep(7)
        await service.jobs.cancel(first)
        await trio.sleep(1)

    assert work.runs == [0.0, 7.0]
