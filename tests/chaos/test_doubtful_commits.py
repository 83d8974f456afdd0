"""The line is cut exactly at COMMIT, and nobody knows whether it happened: no job is lost, enqueued or executed twice."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import cycle
from typing import Any

import pytest
import trio
from attrs import define, field

from actors.jobs.handler import JobContext
from cormorant.rules.jobs.events import JobCompleted, JobResultDropped, WorkerRegistered
from cormorant.rules.secrets import Secret
from cormorant.rules.settings.service import WebSettings
from cormorant.rules.settings.settings import JobSettings, Settings, StorageSettings
from cormorant.testing import Recorder
from supervisors.service import Service, open_service
from tests.chaos.conftest import Tell
from tests.chaos.journal import LOOK_S
from tests.chaos.ledger import Ledger, assert_one_completion_each
from tests.chaos.worker import KIND, NEVER_S
from tests.environments import environment_of
from tests.storage.proxy import Cut, Proxy, proxied

CALM = {"heartbeat_s": 20.0, "lock_timeout_s": NEVER_S, "sweep_s": 60.0, "poll_s": 60.0}
MARK = "marked"
"""Stands in the payload of a job: the line is cut at the COMMIT of the transaction that enqueues or claims this job."""


@define(eq=False)
class Place:
    """A service behind a line that can be cut, and what its handler ran."""

    service: Service
    proxy: Proxy
    ledger: Ledger
    events: Recorder
    runs: list[int]
    gate: trio.Event = field(factory=trio.Event)

    def told(self, job: int) -> list[str]:
        """The states a job went through."""
        return [change.became for change in self.ledger.changes() if change.job == job]


@asynccontextmanager
async def placed(ledger: Ledger, **chosen: Any) -> AsyncIterator[Place]:
    """The service with a handler that waits at the gate if its payload says so."""
    events, runs = Recorder(), list[int]()
    async with proxied(ledger.url) as proxy:
        settings = Settings(
            storage=StorageSettings(url=Secret(proxy.url)),
            jobs=JobSettings(**CALM | chosen),
            web=WebSettings(enabled=False),
        )

        async def work(context: JobContext) -> None:
            assert context.job_id is not None
            runs.append(context.job_id)
            if context.payload.get("waits"):
                await place.gate.wait()
            await trio.sleep(context.payload.get("s", 0.0))

        service = open_service(settings, environment=environment_of(listeners=[events]), handlers={KIND: work})
        place = Place(service, proxy, ledger, events, runs)
        async with service:
            while not events.of(WorkerRegistered):
                await trio.sleep(LOOK_S)
            yield place


async def enqueued(ledger: Ledger, payloads: Sequence[dict[str, Any]]) -> list[int]:
    return await trio.to_thread.run_sync(partial(ledger.enqueue, payloads))


@pytest.mark.slow("starts and stops a whole service")
@pytest.mark.parametrize(
    ("cut", "states"),
    [
        (Cut.BEFORE, ["running", "succeeded"]),
        (Cut.AFTER, ["running", "pending", "running", "succeeded"]),
    ],
)
async def test_a_job_that_was_perhaps_claimed_is_given_back_and_runs_once(
    postgres_ledger: Ledger, cut: Cut, states: list[str]
) -> None:
    async with placed(postgres_ledger) as place:
        place.proxy.cut_at("COMMIT", cut, after=MARK)
        (job,) = await enqueued(postgres_ledger, [{"mark": MARK}])
        await postgres_ledger.until_finished()

    assert place.proxy.cuts == 1
    assert place.runs == [job]
    assert place.told(job) == states
    assert postgres_ledger.show(job).attempts == 0


@pytest.mark.slow("starts and stops a whole service")
@pytest.mark.parametrize("cut", Cut)
async def test_what_was_perhaps_settled_is_neither_lost_nor_run_again_and_what_was_claimed_with_it_runs_once(
    postgres_ledger: Ledger, cut: Cut
) -> None:
    async with placed(postgres_ledger, concurrency=1) as place:
        place.proxy.cut_at("COMMIT", cut, after=MARK)
        first, second = await enqueued(postgres_ledger, [{"waits": True}, {"mark": MARK}])
        place.gate.set()
        await postgres_ledger.until_finished()

    assert place.proxy.cuts == 1
    assert place.runs == [first, second]
    assert_one_completion_each(postgres_ledger.changes(), [first, second])
    assert [event.job_id for event in place.events.of(JobCompleted)] == [first, second]
    assert place.events.of(JobResultDropped) == []
    assert {job.attempts for job in postgres_ledger.jobs()} == {0}


@pytest.mark.slow("starts and stops a whole service")
@pytest.mark.parametrize("cut", Cut)
@pytest.mark.parametrize("key", [None, "key"])
async def test_what_was_perhaps_enqueued_is_enqueued_once(postgres_ledger: Ledger, cut: Cut, key: str | None) -> None:
    async with placed(postgres_ledger) as place:
        place.proxy.cut_at("COMMIT", cut, after=MARK)
        job = await place.service.enqueue(KIND, {"mark": MARK}, dedupe_key=key)
        await postgres_ledger.until_finished()

    assert place.proxy.cuts == 1
    assert [view.id for view in postgres_ledger.jobs()] == [job]
    assert place.runs == [job]


@pytest.mark.slow("starts and stops a whole service")
@pytest.mark.parametrize("cut", Cut)
async def test_a_line_cut_at_the_very_last_commit_does_not_spoil_an_orderly_stop(
    postgres_ledger: Ledger, cut: Cut
) -> None:
    async with placed(postgres_ledger) as place:
        (job,) = await enqueued(postgres_ledger, [{}])
        await postgres_ledger.until_finished()
        place.proxy.cut_at("COMMIT", cut, after="DELETE FROM workers WHERE id")

    assert place.proxy.cuts == 1
    assert place.service.report is not None
    assert place.service.report.forced == ()
    assert postgres_ledger.show(job).attempts == 0


async def cut_again_and_again(proxy: Proxy, counted: Counter[Cut]) -> None:
    chance = random.Random(8)
    for cut in cycle(Cut):
        proxy.cut_at("COMMIT", cut)
        counted[cut] += 1
        await trio.sleep(chance.uniform(0.1, 1.5))


@pytest.mark.slow("many jobs over a line that is cut again and again")
async def test_a_line_that_is_cut_again_and_again_loses_nothing_and_runs_nothing_twice(
    postgres_ledger: Ledger, tell: Tell
) -> None:
    cuts = Counter[Cut]()
    async with placed(postgres_ledger, heartbeat_s=0.5) as place, trio.open_nursery() as nursery:
        nursery.start_soon(cut_again_and_again, place.proxy, cuts)
        ids = await enqueued(postgres_ledger, [{"s": 0.1}] * 1000)
        ids += [await place.service.enqueue(KIND, {"s": 0.1}) for _ in range(100)]
        await postgres_ledger.until_finished()
        nursery.cancel_scope.cancel()

    assert sorted(place.runs) == sorted(ids)
    assert postgres_ledger.states() == {"succeeded": len(ids)}
    assert_one_completion_each(postgres_ledger.changes(), ids)
    released = sum(change.was == "running" and change.became == "pending" for change in postgres_ledger.changes())
    tell(f"{cuts.total()} cuts at COMMIT: {len(ids)} jobs, 0 executed again, {released} claimed unseen and given back")
