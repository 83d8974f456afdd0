"""What a person is told by a service: through durable jobs, by Apprise, to a real server, on the mock clock."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterator
from datetime import time
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from sqlalchemy import Connection, text

from actors.actor import Address
from actors.jobs.handler import JobContext
from actors.jobs.working_set import JobWakeUp
from actors.notifier import RING, NoticeBuffer, Notifier
from cormorant.clients.apprise import send
from cormorant.rules.events import DiskLow, Stamped
from cormorant.rules.notices import Message, NoticeKind, QuietHours
from cormorant.rules.search.events import SourceStopped
from cormorant.rules.secrets import Secret
from cormorant.rules.settings.service import NotifySettings
from cormorant.rules.settings.settings import JobSettings, Settings
from cormorant.rules.watch.events import HandoverSent, WantChanged
from cormorant.rules.watch.prices import PriceAlert
from cormorant.testing import START, Recorder, memory_gateway, settings, simulated
from storage import NewJob
from storage.database import Database
from supervisors.service import Service
from tests.environments import environment_of
from tests.notifying.phone import Phone, ringing

SLOW = pytest.mark.slow("the first of them loads Apprise, a second")
MINUTE = 60.0


@pytest.fixture
def phone() -> Iterator[Phone]:
    with ringing() as phone:
        yield phone


def telling(phone: Phone, folder: Path, **how: Any) -> Settings:
    given: dict[str, Any] = {"apprise": Secret(phone.address), "disk_free_bytes": 0} | how
    options = NotifySettings(**given)
    return settings(notify=options, data=str(folder), jobs=JobSettings(retry_base_s=20.0))


def handed(number: int) -> HandoverSent:
    return HandoverSent(want=number, title=f"Album {number}", target="qbittorrent", times=1)


async def tell_here(address: str, message: Message) -> None:
    """By Apprise within this process: on the mock clock another one would always come too late."""
    send(address, message)


def run(
    chosen: Settings,
    body: Callable[[Service], Awaitable[object]],
    gateway: Database | None = None,
    *,
    seed: int = 1,
    **how: Any,
) -> Recorder:
    """A service with these settings, on the mock clock from midnight of 1 January 2026 UTC."""
    events, simulation = Recorder(), simulated(seed)

    async def main(database: Database) -> None:
        async with simulation.open_service(
            chosen, gateway=database, listeners=[events], tell=tell_here, **how
        ) as service:
            await body(service)

    if gateway is not None:
        simulation.run(main, gateway)
    else:
        with memory_gateway() as own:
            simulation.run(main, own)
    return events


def titles(phone: Phone) -> list[str]:
    return [told["title"].removeprefix("Cormorant: ") for told in phone.told]


@SLOW
def test_a_danger_is_told_within_seconds_and_the_rest_of_a_minute_together(phone: Phone, tmp_path: Path) -> None:
    async def body(service: Service) -> None:
        service.emit(handed(0))
        service.emit(SourceStopped(source="red", because="401"))
        await trio.sleep(10)
        assert sorted(titles(phone)) == ["An account is in danger", "Handed over"]
        for number in range(1, 18):
            service.emit(handed(number))
            await trio.sleep(1)
        assert len(phone.told) == 2
        await trio.sleep(60)

    run(telling(phone, tmp_path), body)

    assert titles(phone)[2:] == ["Handed over"]
    assert phone.told[2]["message"].splitlines()[-1] == "and 12 more"


@SLOW
def test_quiet_hours_are_kept_and_then_all_is_told_together(phone: Phone, tmp_path: Path) -> None:
    async def night(service: Service) -> None:
        service.emit(handed(1))
        await trio.sleep(MINUTE)
        service.emit(SourceStopped(source="red", because="401"))
        service.emit(PriceAlert(price="cent", side="below", limit_cents=500, cents=400, currency="EUR"))
        await trio.sleep(MINUTE)

    async def later(service: Service) -> None:
        service.emit(WantChanged(want=5, title="B", state="gave up", reason="nothing"))
        await trio.sleep(6.9 * MINUTE)
        assert phone.told == []
        await trio.sleep(0.2 * MINUTE)

    chosen = telling(phone, tmp_path, quiet=QuietHours(time(22), time(0, 7)))
    with memory_gateway() as gateway:
        run(chosen, night, gateway)
        run(chosen, later, gateway)  # after a restart, the same night

    assert titles(phone) == ["What happened meanwhile"]
    assert [part.splitlines()[0] for part in phone.told[0]["message"].split("\n\n")] == [
        "An account is in danger:",
        "Handed over:",
        "Given up:",
        "Price alert:",
    ]


@SLOW
def test_a_service_that_fails_is_tried_again_and_gets_all_that_came_meanwhile(phone: Phone, tmp_path: Path) -> None:
    phone.answers = [500, 503]

    async def body(service: Service) -> None:
        service.emit(handed(1))
        await trio.sleep(8)
        service.emit(handed(2))
        await trio.sleep(2 * MINUTE)

    events = run(telling(phone, tmp_path), body)

    assert [told["message"].splitlines() for told in phone.told] == [
        ["Album 1: handed to qbittorrent", "Album 2: handed to qbittorrent"]
    ]
    assert "hunter2hunter2" not in "".join(events.lines())
    assert "hook-secret" not in "".join(events.lines())


@SLOW
def test_no_job_holds_an_address_and_each_address_has_its_own(phone: Phone, tmp_path: Path) -> None:
    phone.answers = [500]
    two = Secret(f"{phone.address} {phone.address}/other")
    rows: list[tuple[str, str]] = []

    async def body(service: Service) -> None:
        service.emit(handed(1))
        await trio.sleep(5)
        rows.extend(await service.transaction(_jobs))
        await trio.sleep(MINUTE)

    run(telling(phone, tmp_path, apprise=two), body)

    assert len(phone.told) == 2  # neither is told twice for the other's sake
    assert len(rows) == 2
    assert "hunter2hunter2" not in str(rows)


def _jobs(connection: Connection) -> list[tuple[str, str]]:
    found = connection.execute(text("SELECT dedupe_key, payload FROM jobs WHERE kind = 'notify'"))
    return [(str(row.dedupe_key), str(row.payload)) for row in found]


@SLOW
def test_what_happens_just_before_and_during_an_orderly_stop_is_told_after_the_next_start(
    phone: Phone, tmp_path: Path
) -> None:
    services: list[Service] = []

    async def work(_: JobContext) -> None:
        try:
            await trio.sleep_forever()
        finally:
            services[0].emit(SourceStopped(source="blue", because="403"))

    async def until_the_end(service: Service) -> None:
        services.append(service)
        await service.enqueue("last", {})
        await trio.sleep(5)
        service.emit(SourceStopped(source="green", because="401"))
        await trio.sleep(0.5)
        service.emit(SourceStopped(source="red", because="401"))  # a tick takes it in during the stop

    async def later(_: Service) -> None:
        await trio.sleep(2 * MINUTE)

    def told() -> list[str]:
        return [line.split(" ")[0] for each in phone.told for line in each["message"].splitlines()]

    with memory_gateway() as gateway:
        run(telling(phone, tmp_path), until_the_end, gateway, handlers={"last": work})
        assert told() == ["green"]
        run(telling(phone, tmp_path), later, gateway, seed=2)

    assert told() == ["green", "red", "blue"]


async def test_what_a_notifier_could_not_put_up_is_put_up_by_the_next_one() -> None:
    board = NoticeBuffer(on=frozenset(NoticeKind), notifier=Address("notifier"))
    board(Stamped(1, START, handed(1)))
    put_up: list[str] = []

    def notifier(run: Callable[..., Awaitable[object]]) -> Notifier:
        class Store:
            async def read(self, *_: object) -> dict[str, object]:
                return {}

            async def run(self, _: object, job: Any, **__: object) -> object:
                return await run(job)

        store: Any = Store()  # two of its methods
        chosen = settings(notify=NotifySettings(disk_free_bytes=0))
        environment = environment_of(chosen, database=store, clock=simulated(1).clock, chance=random.Random(0))
        return Notifier(environment, board=board, receivers=["me"], producer=JobWakeUp())

    async def crash(_: NewJob) -> object:
        raise RuntimeError("a bug")

    async def take(job: NewJob) -> object:
        put_up.append(str(job.dedupe_key))
        return True

    with pytest.raises(RuntimeError):
        await notifier(crash).tick()
    await notifier(take).end()

    assert (put_up, board.waiting) == (["handed-over@me"], {})


@SLOW
def test_a_full_disk_is_told_once_a_day_whatever_restarts(phone: Phone, tmp_path: Path) -> None:
    chosen = telling(phone, tmp_path, disk_free_bytes=10**15)

    async def body(_: Service) -> None:
        await trio.sleep(2 * MINUTE)

    with memory_gateway() as gateway:
        heard = [run(chosen, body, gateway) for _ in range(3)]

    assert titles(phone) == ["The disk is nearly full"]
    assert [len(events.of(DiskLow)) for events in heard] == [1, 1, 1]


def test_only_what_is_asked_for_is_put_on_the_board_and_the_board_is_bounded() -> None:
    board = NoticeBuffer(on=frozenset({NoticeKind.HANDED_OVER}), notifier=Address("notifier"))

    for number in range(RING + 5):
        board(Stamped(number, START, handed(number)))
        board(Stamped(number, START, SourceStopped(source="red", because="401")))
    board(Stamped(0, START, WantChanged(want=RING + 4, title="x", state="done", reason="told already")))

    assert [board.ring[0].key, board.ring[-1].key, len(board.ring)] == ["5", str(RING + 4), RING]


def test_without_an_address_there_is_no_notifier() -> None:
    async def body(service: Service) -> None:
        status = await service.status()
        sweepers = next(child for child in status.tree if child.name == "sweepers")
        assert [child.name for child in sweepers.children] == ["reclaim_sweeper", "maintenance", "clock_watch"]

    run(attrs.evolve(settings(), notify=NotifySettings()), body)
