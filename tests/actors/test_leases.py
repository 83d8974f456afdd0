"""Who is dead loses its jobs, who lives keeps them, and who cannot be sure stops."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
import trio
from sqlalchemy import Connection, text
from trio.testing import MockClock

from actors.jobs.handler import JobContext
from actors.jobs.runner import CancelHandler
from cormorant.rules.errors import CommitUnknown
from cormorant.rules.jobs.events import (
    JobCompleted,
    JobFailed,
    JobReclaimed,
    JobResultDropped,
    WorkerDeclaredDead,
    WorkerLeaseLost,
    WorkerRegistered,
    WorkerUnconfirmed,
)
from cormorant.rules.jobs.states import JobState, Sighting
from storage.engine.file_locks import WorkerLocks
from storage.jobs import jobs, workers
from storage.jobs.workers import SWEEPER
from supervisors import Supervisor
from tests.actors.working import Handled, Workplace, workplace

DEAD = "elsewhere.1"
RIVAL = "elsewhere.2"


@pytest.fixture
def place() -> Iterator[Workplace]:
    with workplace(is_shared=True) as made:
        yield made


def die_with_a_job(connection: Connection, *, now: datetime) -> None:
    """What another process did before it died: it registered and claimed whatever was due."""
    workers.register(connection, DEAD, kinds=["work"], version="0", now=now)
    claimed = jobs.claim(connection, owner=DEAD, kinds=["work"], priorities=[5], limit=100, now=now)
    assert claimed


def only_worker(connection: Connection) -> str:
    found: str = connection.execute(text("SELECT id FROM workers WHERE dead_at IS NULL")).scalar_one()
    return found


async def test_the_jobs_of_a_dead_process_are_taken_over_after_five_minutes_of_silence(
    clock: MockClock, place: Workplace
) -> None:
    work = Handled()

    async with place.service({"work": work}) as service:
        await service.pause()
        job_id = await service.enqueue("work", {})
        await service.transaction(die_with_a_job, now=place.clock.now())
        await service.resume()
        await trio.sleep(1000)
        view = await service.jobs.show(job_id)

    assert work.runs == [360.0], "first seen by the look at 60 s, silent for 300 s from then on"
    assert (view.state, view.attempts, view.reclaims) == (JobState.SUCCEEDED, 1, 1)
    assert [event.owner for event in place.events.of(JobReclaimed)] == [DEAD]
    assert [event.reclaimed for event in place.events.of(WorkerDeclaredDead)] == [1]


@pytest.mark.slow("a simulated hour of beats")
async def test_a_process_that_beats_however_rarely_keeps_its_jobs(clock: MockClock, place: Workplace) -> None:
    work = Handled()

    async with place.service({"work": work}) as service:
        await service.pause()
        await service.enqueue("work", {})
        await service.transaction(die_with_a_job, now=place.clock.now())
        await service.resume()
        for _ in range(10):
            await trio.sleep(290)
            assert await service.transaction(workers.beat, DEAD, now=place.clock.now()) is not None

    assert work.runs == []


def observe_instead(connection: Connection, *, now: datetime) -> None:
    """What another process did that took over the lease of the sweeper."""
    workers.register(connection, RIVAL, kinds=[], version="0", now=now)
    seen = workers.take_lease(connection, SWEEPER, worker_id=RIVAL, instead_of=None)
    assert workers.take_lease(connection, SWEEPER, worker_id=RIVAL, instead_of=seen).holder == RIVAL


async def test_a_sweeper_that_takes_over_continues_from_what_the_other_has_stored(
    clock: MockClock, place: Workplace
) -> None:
    work = Handled()

    async with place.service({"work": work}) as service:
        await service.pause()
        await service.enqueue("work", {})
        await trio.sleep(1)  # the first look is over
        await service.transaction(observe_instead, now=place.clock.now())
        await trio.sleep(89)
        await service.transaction(die_with_a_job, now=place.clock.now())
        await service.transaction(workers.record_sightings, {DEAD: Sighting(beat=0, unchanged_s=200.0)})
        await service.transaction(workers.retire, RIVAL)
        await service.resume()
        await trio.sleep(400)

    assert work.runs == [240.0], "200 s until the look at 120 s, of which the other has seen all, and two looks more"


async def test_an_id_whose_registration_is_in_doubt_is_forgotten_at_the_first_look(
    clock: MockClock, place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, doubtful = place.gateway.run, list[str]()

    async def cut_once(function: Callable[..., Any], *args: Any, **words: Any) -> Any:
        done = await run(function, *args, **words)
        if function is workers.register and not doubtful:
            doubtful.append(args[0])
            raise CommitUnknown("the line was cut")
        return done

    monkeypatch.setattr(place.gateway, "run", cut_once)
    async with place.service({}) as service:
        await trio.sleep(1)
        known = [worker.id for worker in await service.transaction(workers.all_workers)]

    assert len(known) == 1
    assert known != doubtful


@pytest.mark.parametrize("jump_s", [-600, 600, 86_400])
async def test_a_clock_that_jumps_kills_nobody(clock: MockClock, place: Workplace, jump_s: float) -> None:
    work = Handled(takes_s=200.0)

    async with place.service({"work": work}) as service:
        await service.enqueue("work", {})
        await trio.sleep(50)
        place.clock.jump(jump_s)
        await trio.sleep(900)

    assert work.runs == [0.0]
    assert place.events.of(WorkerDeclaredDead) == []
    assert len(place.events.of(JobCompleted)) == 1


@pytest.mark.slow("a simulated hour")
async def test_an_outage_begins_the_observation_anew(clock: MockClock, place: Workplace) -> None:
    work = Handled()

    async with place.service({"work": work}) as service:
        await service.pause()
        await service.enqueue("work", {})
        await service.transaction(die_with_a_job, now=place.clock.now())
        await service.resume()
        await trio.sleep(250)
        place.gateway.go_away()
        await trio.sleep(400)
        place.gateway.come_back()
        await trio.sleep(250)
        assert work.runs == [], "it may have been unable to beat, as we were"
        await trio.sleep(400)

    assert len(work.runs) == 1


async def test_a_poison_job_ends_as_failed_and_takes_nobody_else_with_it(clock: MockClock, place: Workplace) -> None:
    work = Handled()

    async with place.service({"work": work}) as service:
        await service.pause()
        poison = await service.enqueue("work", "poison", max_attempts=3)
        for _ in range(3):
            await service.transaction(die_with_a_job, now=place.clock.now())
            await trio.sleep(500)
        innocent = await service.enqueue("work", "innocent")
        dead, alive = await service.jobs.show(poison), await service.jobs.show(innocent)

    assert (dead.state, dead.attempts) == (JobState.FAILED, 3)
    assert (alive.state, alive.attempts) == (JobState.PENDING, 0)
    assert len(place.events.of(JobFailed)) == 1


async def test_what_belongs_to_somebody_who_is_not_known_is_taken_over_at_the_next_look(
    clock: MockClock, place: Workplace
) -> None:
    work = Handled()

    async with place.service({"work": work}) as service:
        await service.pause()
        await service.enqueue("work", {})
        await trio.sleep(1)  # the first look is over
        await service.transaction(die_with_a_job, now=place.clock.now())
        await service.transaction(workers.retire, DEAD)
        await service.resume()
        await trio.sleep(100)

    assert work.runs == [60.0]
    assert [event.owner for event in place.events.of(JobReclaimed)] == [DEAD]


@pytest.mark.slow("twenty deaths, hours apart")
async def test_twenty_deaths_do_not_touch_a_job_that_never_started(clock: MockClock, place: Workplace) -> None:
    async with place.service({}) as service:
        started = await service.enqueue("work", "started", max_attempts=50)
        waiting = await service.enqueue("work", "waiting", max_attempts=2, delay_s=100_000)
        for _ in range(20):
            await service.transaction(die_with_a_job, now=place.clock.now())
            await trio.sleep(500)
        first, second = await service.jobs.show(started), await service.jobs.show(waiting)

    assert first.attempts == 20
    assert (second.state, second.attempts) == (JobState.PENDING, 0)


async def test_declared_dead_a_process_stops_its_handlers_and_begins_anew(clock: MockClock, place: Workplace) -> None:
    stopped: list[float] = []

    async def work(context: JobContext) -> None:
        try:
            await trio.sleep(50)
        except trio.Cancelled:
            stopped.append(trio.current_time())
            raise

    async with place.service({"work": work}) as service:
        await service.enqueue("work", {})
        await trio.sleep(5)
        me = await service.transaction(only_worker)
        await service.transaction(workers.mark_dead, me, beat=0, now=place.clock.now())
        await trio.sleep(200)
        now_me = await service.transaction(only_worker)

    assert stopped == [20.0], "at the next heartbeat"
    assert [event.worker for event in place.events.of(WorkerLeaseLost)] == [me]
    assert now_me != me
    assert len(place.events.of(WorkerRegistered)) == 2
    assert len(place.events.of(JobCompleted)) == 1, "the job was reclaimed and run under the new name"


async def test_what_a_stale_owner_finishes_changes_nothing(clock: MockClock, place: Workplace) -> None:
    work = Handled(takes_s=10.0)

    async with place.service({"work": work}) as service:
        job_id = await service.enqueue("work", {})
        await trio.sleep(1)
        await service.pause()
        await trio.sleep(1)  # the pause makes it look what is its own
        me = await service.transaction(only_worker)
        await service.transaction(jobs.reclaim, owner=me, limit=10, now=place.clock.now())
        await trio.sleep(12)
        view = await service.jobs.show(job_id)

    assert view.state is JobState.PENDING
    assert len(place.events.of(JobResultDropped)) == 1


@pytest.mark.slow("simulated minutes of outage")
async def test_without_a_confirmed_beat_for_240_s_a_process_stops_its_own_handlers(
    clock: MockClock, place: Workplace
) -> None:
    stopped: list[float] = []

    async def work(context: JobContext) -> None:
        try:
            await trio.sleep(10_000)
        except trio.Cancelled:
            stopped.append(trio.current_time())
            raise

    async with place.service({"work": work}) as service:
        job_id = await service.enqueue("work", {})
        await trio.sleep(25)
        place.gateway.go_away()
        await trio.sleep(400)
        place.gateway.come_back()
        await trio.sleep(20)
        view = await service.jobs.show(job_id)

    assert stopped[0] == 20.0 + 240.0, "the last confirmed beat was at 20 s"
    assert [event.handlers for event in place.events.of(WorkerUnconfirmed)] == [1]
    assert view.attempts == 0, "it was given back, not failed"


async def test_a_database_away_for_two_minutes_stops_no_handler(clock: MockClock, place: Workplace) -> None:
    work = Handled(takes_s=150.0)

    async with place.service({"work": work}) as service:
        await service.enqueue("work", {})
        await trio.sleep(10)
        place.gateway.go_away()
        await trio.sleep(120)
        place.gateway.come_back()
        await trio.sleep(60)

    assert work.runs == [0.0]
    assert place.events.of(WorkerUnconfirmed) == []
    assert len(place.events.of(JobCompleted)) == 1


async def test_a_crash_of_the_runner_costs_an_attempt_and_nothing_else(clock: MockClock, place: Workplace) -> None:
    work = Handled(takes_s=20.0)
    service = place.service({"work": work})

    async with service:
        job_id = await service.enqueue("work", {})
        await trio.sleep(1)
        crash_the_runner(service._root)  # noqa: SLF001 - there is no polite way to make it crash
        await trio.sleep(60)
        view = await service.jobs.show(job_id)

    assert len(work.runs) == 2
    assert (view.state, view.attempts) == (JobState.SUCCEEDED, 1)


class Bomb(CancelHandler):
    """A message that goes off when it is looked at."""

    @property
    def job_id(self) -> int:
        raise ValueError("bomb")


def crash_the_runner(root: Supervisor) -> None:
    jobs_child = root._table["jobs"]  # noqa: SLF001 - as above
    jobs_child.spec.run._address.tell_nowait(Bomb.__new__(Bomb))  # type: ignore[attr-defined]  # noqa: SLF001 - as above


async def test_jobs_of_an_age_are_forgotten_the_failed_ones_later(clock: MockClock, place: Workplace) -> None:
    work = Handled()
    day = timedelta(days=1).total_seconds()
    kept: list[set[int]] = []

    async with place.service({"work": work, "bad": Handled(raises=[ValueError("x")])}, poll_s=300.0) as service:
        done = await service.enqueue("work", {})
        dead = await service.enqueue("bad", {}, max_attempts=1)
        await trio.sleep(1)
        for days in (6, 2):
            place.clock.jump(days * day)
            await trio.sleep(3_700)
            kept.append(set(await service.transaction(_ids)))
        assert kept == [{done, dead}, {dead}]


def _ids(connection: Connection) -> list[int]:
    return list(connection.execute(text("SELECT id FROM jobs")).scalars())


def hold_the_lease(connection: Connection) -> None:
    workers.take_lease(connection, workers.SWEEPER, worker_id=DEAD, instead_of=None)


async def test_a_dead_process_that_observed_the_others_is_dead_as_soon_as_any_other(
    clock: MockClock, place: Workplace
) -> None:
    work = Handled()

    async with place.service({"work": work}) as service:
        await trio.sleep(1)
        await service.pause()
        await service.enqueue("work", {})
        await service.transaction(die_with_a_job, now=place.clock.now())
        await service.transaction(lambda connection: connection.execute(text("DELETE FROM leases")))
        await service.transaction(hold_the_lease)
        await service.resume()
        await trio.sleep(1_000)

    assert work.runs == [360.0]


async def test_a_process_that_stops_during_an_outage_is_known_to_have_ended(clock: MockClock, place: Workplace) -> None:
    async with place.service({}):
        await trio.sleep(1)
        place.gateway.go_away()
    [registered] = place.events.of(WorkerRegistered)

    assert await place.gateway.with_locks(WorkerLocks.dead_among, [registered.worker]) == [registered.worker]
