"""What another process changes is seen at once, not at the next poll or heartbeat: on real databases with real threads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from random import SystemRandom
from typing import Concatenate, ParamSpec, TypeVar

import pytest
import trio
from attrs import evolve
from sqlalchemy import Connection
from typing_extensions import override

from actors import SystemClock
from actors.jobs.handler import JobContext, Run
from cormorant.rules.jobs.events import JobCancelled, JobFailed
from cormorant.rules.jobs.states import JobState
from cormorant.rules.jobs.verdicts import Fail, Snooze
from cormorant.rules.ports import ignore
from cormorant.rules.settings.settings import JobSettings
from cormorant.rules.settings.watch import SubscriptionSettings
from cormorant.rules.watch.feeds import DueFeed, FetchedFeed
from cormorant.testing import Recorder, settings
from storage import pauses
from storage.database import Database, Mode, StorageOptions
from storage.jobs import jobs
from storage.jobs.batch import Reconciled
from storage.watch import watches
from supervisors import Service, open_service
from tests.environments import environment_of
from tests.storage.support import serving
from tests.watch_kinds import CASES, Case

P = ParamSpec("P")
T = TypeVar("T")

SOON_S = 50.0
"""Shorter than the minute between two heartbeats, which would find it too. It usually takes less than a second."""

TICKER_SOON_S = 25.0
"""Shorter than the time between two looks of any ticker."""

pytestmark = pytest.mark.slow("real processes' worth of threads and files")


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'shared.db'}"
    else:
        yield request.getfixturevalue("postgres_url")


class Watched(Database):
    """A gateway that notes whether claiming was paused, each time the service compares with the database what is its own."""

    def __init__(self, url: str) -> None:
        super().__init__(StorageOptions(url=url), mode=Mode.THREADS, emit=ignore, chance=SystemRandom())
        self.checks: list[object] = []

    @override
    async def run(self, function: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        result = await super().run(function, *args, **kwargs)
        if isinstance(result, Reconciled):
            self.checks.append(result.is_paused)
        return result


@asynccontextmanager
async def two(
    url: str, run: Run, heard: Recorder | None = None, gateway: Watched | None = None
) -> AsyncIterator[Service]:
    """A service that neither polls nor beats while the test lasts; what comes out is another that runs nothing."""
    chosen = evolve(JobSettings(), poll_s=300.0, heartbeat_s=60.0)
    listeners = [heard] if heard else []
    works = open_service(
        settings(jobs=chosen),
        environment=environment_of(database=gateway or Watched(url), listeners=listeners),
        handlers={"work": run},
    )
    async with works, open_service(settings(jobs=chosen), environment=environment_of(database=Watched(url))) as other:
        yield other


async def until(heard: list[object], count: int) -> None:
    with trio.fail_after(SOON_S):
        while len(heard) < count:
            await trio.sleep(0.005)


async def test_what_another_process_enqueues_or_revives_is_run_at_once(url: str) -> None:
    runs: list[object] = []
    heard = Recorder()

    async def work(context: JobContext) -> None:
        runs.append(context.payload)
        raise Fail("the first time") if len(runs) == 1 else Snooze(1000)

    async with two(url, work, heard) as other:
        job_id = await other.enqueue("work", "payload")
        await until(runs, 1)
        with trio.fail_after(SOON_S):
            while not heard.of(JobFailed):
                await trio.sleep(0.005)
        await other.jobs.revive(job_id)
        await until(runs, 2)

    assert runs == ["payload", "payload"]


async def test_what_another_process_cancels_is_stopped_at_once_and_told(url: str) -> None:
    began: list[object] = []
    stopped: list[object] = []
    heard = Recorder()

    async def work(context: JobContext) -> None:
        began.append(context.job_id)
        try:
            await trio.sleep_forever()
        finally:
            stopped.append(context.job_id)

    async with two(url, work, heard) as other:
        job_id = await other.enqueue("work", {})
        await until(began, 1)
        await other.transaction(jobs.cancel, job_id, now=SystemClock().now())
        await until(stopped, 1)

    assert [event.job_id for event in heard.of(JobCancelled)] == [job_id]


async def test_a_pause_from_another_process_holds_at_once_and_so_does_its_end(url: str) -> None:
    runs: list[object] = []
    gateway = Watched(url)

    async def work(context: JobContext) -> None:
        runs.append(context.payload)

    async with two(url, work, gateway=gateway) as other:
        await other.enqueue("work", 1)
        await until(runs, 1)
        await other.transaction(pauses.set_all, is_paused=True, now=SystemClock().now())
        with trio.fail_after(SOON_S):
            while not any(gateway.checks):
                await trio.sleep(0.005)
        paused = await other.enqueue("work", 2)
        await until(gateway.checks, len(gateway.checks) + 1)  # it has heard of the new job
        view = await other.jobs.show(paused)
        await other.transaction(pauses.set_all, is_paused=False, now=SystemClock().now())
        await until(runs, 2)

    assert view.state is JobState.PENDING


@pytest.mark.parametrize("case", [case for case in CASES if case.is_in_file], ids=str)
async def test_a_watch_that_another_process_makes_due_is_worked_on_at_once(url: str, case: Case) -> None:
    checked: list[datetime] = []

    async def feed(_: DueFeed) -> FetchedFeed:
        await trio.lowlevel.checkpoint()
        return FetchedFeed()

    async def until_worked_on(other: Database, due: datetime) -> None:
        with trio.fail_after(TICKER_SOON_S):
            while (found := await other.read(watches.find, case.kind, "one")).next_attempt_at <= due:
                await trio.sleep(0.005)
        checked.append(found.next_attempt_at)

    async with serving(Watched(url), with_notes=False) as other:
        now = SystemClock().now()
        await other.run(watches.add_new, case.kind, [case.new("one", now + timedelta(days=1), added_at=now)])
        works = open_service(
            settings(subscriptions=SubscriptionSettings(domain_request_delay_s=0.1)),
            environment=environment_of(database=Watched(url), feed=feed),
        )
        async with works:
            for _ in range(3):  # the first may be found by a round at the start
                due = SystemClock().now()
                await other.run(watches.make_due, case.kind, "one", now=due)
                await until_worked_on(other, due)

    assert len(set(checked)) == 3
