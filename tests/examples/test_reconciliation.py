"""The example does what it says: five looks, half an hour apart, by itself, across restarts and errors."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio
from attrs import Factory, define
from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from cormorant.rules.jobs.events import JobCompleted, JobRetried, JobSnoozed
from cormorant.rules.jobs.states import JobState
from cormorant.rules.settings.settings import Settings
from cormorant.testing import Recorder, Simulation, memory_gateway, simulated
from examples.reconciliation import (
    Reconciler,
    Report,
    Status,
    all_reports,
    main_real,
    make_table,
    record,
    submit,
    take_in,
    until_settled,
)
from storage.database import Database
from storage.jobs.jobs import NewJob
from storage.jobs.reports import recent
from supervisors import Service
from tests.bounds import WAIT_S
from tests.cli.program import ROOT, environment

pytestmark = pytest.mark.slow("two simulated hours with heartbeats cost a second")

MINUTE = 60.0
HALF_HOUR = 30 * MINUTE


@define
class ScriptedPlatform:
    """Answers as it was told to, remembers when it was asked, and at the end of its script knows nothing."""

    script: list[int | Exception | None]
    asked_at: list[float] = Factory(list)

    async def conversions(self, report_id: int) -> int | None:
        await trio.lowlevel.checkpoint()
        self.asked_at.append(trio.current_time())
        answer = self.script.pop(0) if self.script else None
        if isinstance(answer, Exception):
            raise answer
        return answer


@define
class World:
    """A database that outlives services, and a platform."""

    simulation: Simulation
    database: Database
    platform: ScriptedPlatform
    recorder: Recorder = Factory(Recorder)

    def service(self) -> Service:
        reconciler = Reconciler(platform=self.platform, clock=self.simulation.clock)
        return self.simulation.open_service(
            Settings(),
            gateway=self.database,
            handlers={"reconcile": reconciler.reconcile},
            listeners=[self.recorder],
        )


def play(story: Callable[[World], Awaitable[None]], *script: int | Exception | None) -> World:
    """Play a story on the simulated clock, with what the platform answers."""
    simulation = simulated(seed=7)

    async def main() -> World:
        with memory_gateway() as database:
            world = World(simulation, database, ScriptedPlatform(list(script)))
            await story(world)
            return world

    return simulation.run(main)


async def one_report(world: World) -> Report:
    """Open a service, report seven conversions, wait for the end."""
    async with world.service() as service:
        await service.transaction(make_table)
        await take_in(service, Report(id=1, reported=7))
        [report] = await until_settled(service, look_s=MINUTE)
    return report


@pytest.mark.parametrize(("found", "status"), [(7, Status.MATCHED), (8, Status.MISMATCHED)])
def test_what_the_platform_knows_is_settled_by_the_first_look(found: int, status: Status) -> None:
    async def story(world: World) -> None:
        report = await one_report(world)
        assert (report.status, report.found, report.looks) == (status, found, 1)

    assert play(story, found).platform.asked_at == [0.0]


def test_what_is_missing_is_looked_at_five_times_half_an_hour_apart_and_ends_as_missing() -> None:
    async def story(world: World) -> None:
        report = await one_report(world)
        assert (report.status, report.looks) == (Status.MISSING, 5)

    world = play(story)

    assert world.platform.asked_at == [0.0, 30 * MINUTE, 60 * MINUTE, 90 * MINUTE, 120 * MINUTE]
    assert [event.for_s for event in world.recorder.of(JobSnoozed)] == [HALF_HOUR] * 4
    assert len(world.recorder.of(JobCompleted)) == 1


def test_what_comes_late_is_found_by_a_later_look() -> None:
    async def story(world: World) -> None:
        assert (await one_report(world)).status is Status.MATCHED

    assert play(story, None, None, 7).platform.asked_at == [0.0, 30 * MINUTE, 60 * MINUTE]


def test_waiting_counts_no_attempt() -> None:
    async def story(world: World) -> None:
        await one_report(world)
        async with world.service() as service:
            [job] = await service.transaction(recent, limit=2)
        assert (job.state, job.attempts) == (JobState.SUCCEEDED, 0)

    play(story)


def test_an_error_of_the_platform_uses_up_none_of_the_looks() -> None:
    async def story(world: World) -> None:
        assert (await one_report(world)).looks == 5

    world = play(story, ConnectionError("the platform is down"))

    [retried] = world.recorder.of(JobRetried)
    begun_at = retried.retry_in_s
    assert world.platform.asked_at == [0.0, *(pytest.approx(begun_at + n * HALF_HOUR) for n in range(5))]


@pytest.mark.parametrize(
    ("closed_at", "open_at", "asked_at"),
    [
        (45, 50, [0, 30, 60, 90, 120]),
        (45, 75, [0, 30, 75, 105, 135]),  # due while nobody was there: looked at as soon as somebody is
    ],
)
def test_a_restart_in_the_middle_loses_nothing(closed_at: int, open_at: int, asked_at: list[int]) -> None:
    async def story(world: World) -> None:
        async with world.service() as service:
            await service.transaction(make_table)
            await take_in(service, Report(id=1, reported=7))
            await trio.sleep_until(closed_at * MINUTE)
        await trio.sleep_until(open_at * MINUTE)
        async with world.service() as service:
            [report] = await until_settled(service, look_s=MINUTE)
        assert (report.status, report.looks) == (Status.MISSING, 5)

    assert play(story).platform.asked_at == [minutes * MINUTE for minutes in asked_at]


def test_a_look_whose_process_died_before_the_job_was_settled_is_not_made_twice() -> None:
    async def story(world: World) -> None:
        def looked_and_died(connection: Connection, report: Report, job: NewJob) -> None:
            submit(connection, report, job, now=world.simulation.clock.now())
            record(connection, report, None, now=world.simulation.clock.now())

        async with world.service() as service:
            await service.transaction(make_table)
            job = service.jobs.make("reconcile", {"report": 1})
            await service.transaction(looked_and_died, Report(id=1, reported=7), job)
            [report] = await until_settled(service, look_s=MINUTE)
        assert report.looks == 5

    assert play(story).platform.asked_at == [30 * MINUTE, 60 * MINUTE, 90 * MINUTE, 120 * MINUTE]


def test_a_report_and_its_job_are_written_both_or_neither() -> None:
    async def story(world: World) -> None:
        async with world.service() as service:
            await service.transaction(make_table)
            await take_in(service, Report(id=1, reported=7))
            with pytest.raises(IntegrityError):
                await take_in(service, Report(id=1, reported=8))
            assert [report.reported for report in await service.transaction(all_reports)] == [7]
            assert len(await service.transaction(recent, limit=9)) == 1

    play(story, 7)


def test_a_report_that_is_gone_ends_its_job_as_failed() -> None:
    async def story(world: World) -> None:
        async with world.service() as service:
            await service.transaction(make_table)
            job_id = await service.enqueue("reconcile", {"report": 404})
            await trio.sleep(1)
            job = await service.jobs.show(job_id)
        assert job.state is JobState.FAILED
        assert job.last_errors[-1]["error"] == "Fail: there is no report 404"

    play(story)


async def test_it_runs_on_a_real_file_and_the_real_clock(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    await main_real(tmp_path, again_s=0.05)

    assert "report 104: reported 3, the platform says None: missing" in capsys.readouterr().out
    assert (tmp_path / "cormorant.db").exists()


def test_the_program_finishes_by_itself() -> None:
    ended = subprocess.run(
        [sys.executable, "examples/reconciliation.py"],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=True,
    )

    assert "02:00:00  report 104  look 5  missing" in ended.stdout
    assert ended.stderr == ""
