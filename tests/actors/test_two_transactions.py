"""While one transaction of jobs takes long a second one may begin, and what is ours is compared only when neither is under way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trio
from attrs import define, field
from trio.testing import MockClock

from actors.jobs.handler import JobContext
from actors.jobs.producer import ENOUGH
from cormorant.rules.errors import CommitUnknown
from cormorant.rules.jobs.events import JobCompleted
from storage.database import Database
from storage.jobs.batch import leave, reconcile, run_batch
from tests.actors.working import Workplace, states, workplace

JOBS = 5 * ENOUGH
AT_ONCE = 2 * ENOUGH
LATE_S = 1.0


@pytest.fixture
def place() -> Iterator[Workplace]:
    with workplace() as made:
        yield made


@define
class Slow:
    """A gateway whose answers about jobs come late, and that notes what was under way together."""

    gateway: Database
    doubts: int = 0
    """So many of those that end jobs are written, and nobody hears of it."""
    together: list[list[str]] = field(factory=list)
    _out: list[str] = field(factory=list)

    async def run(self, function: Callable[..., Any], *args: Any, **words: Any) -> Any:
        if function not in {run_batch, reconcile, leave}:
            return await Database.run(self.gateway, function, *args, **words)
        self._out.append(function.__name__)
        self.together.append(list(self._out))
        try:
            found = await Database.run(self.gateway, function, *args, **words)
            await trio.sleep(LATE_S)
        finally:
            self._out.remove(function.__name__)
        if function is run_batch and args[0].done and self.doubts:
            self.doubts -= 1
            raise CommitUnknown("the line was cut")
        return found


@define
class Work:
    """A handler that counts its runs; each takes another while, so that endings come all the time."""

    takes_s: float
    runs: int = 0

    async def __call__(self, context: JobContext) -> None:
        self.runs += 1
        if self.takes_s:
            await trio.sleep(context.payload * self.takes_s)


async def run_all(place: Workplace, slow: Slow, monkeypatch: pytest.MonkeyPatch, work: Work) -> set[str]:
    """Run all jobs and say what states they came to."""
    async with place.service({"work": work}, concurrency=AT_ONCE) as service:
        for number in range(JOBS):
            await service.enqueue("work", number % 100, delay_s=10.0)
        monkeypatch.setattr(place.gateway, "run", slow.run)
        with trio.fail_after(600):
            while len(place.events.of(JobCompleted)) < JOBS:
                await trio.sleep(1.0)
        found = await place.gateway.read(states)
    return set(found.values())


@pytest.mark.slow("hundreds of jobs")
async def test_endings_need_not_wait_for_a_transaction_that_is_under_way(
    clock: MockClock, place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow(place.gateway)

    await run_all(place, slow, monkeypatch, Work(takes_s=0.01))

    assert ["run_batch", "run_batch"] in slow.together
    assert max(map(len, slow.together)) == 2


@pytest.mark.slow("hundreds of jobs")
@pytest.mark.parametrize("takes_s", [0.0, 0.01])
@pytest.mark.parametrize("doubts", [0, 3])
async def test_each_job_is_done_once_and_nothing_is_compared_meanwhile(
    clock: MockClock, place: Workplace, monkeypatch: pytest.MonkeyPatch, takes_s: float, *, doubts: int
) -> None:
    slow, work = Slow(place.gateway, doubts), Work(takes_s)

    found = await run_all(place, slow, monkeypatch, work)

    done = [event.job_id for event in place.events.of(JobCompleted)]
    assert found == {"succeeded"}
    assert (work.runs, len(done), len(set(done))) == (JOBS, JOBS, JOBS)
    assert slow.doubts == 0
    assert all(len(out) == 1 for out in slow.together if {"clear_up", "leave"} & set(out))
