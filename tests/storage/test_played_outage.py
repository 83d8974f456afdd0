"""An outage, played in line on the mock clock: who is held, until when, in which order, and what is told."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
import trio
from outcome import Error, Outcome, acapture
from trio.testing import MockClock, active_thread_count

from cormorant.rules.errors import StorageUnavailable
from cormorant.rules.events import SchemaMigrated, StorageBack, StorageLost
from cormorant.rules.ports import ignore
from storage.database import Database, Mode, StorageOptions
from tests.storage.support import Ears, add_note, adding, create_notes, gateway, note_numbers, serving


@pytest.fixture
def ears() -> Ears:
    return Ears()


@pytest.fixture
def database(ears: Ears) -> Iterator[Database]:
    database = gateway("sqlite://", Mode.INLINE, emit=ears)
    yield database
    database.dispose()


async def test_calls_are_held_and_go_on_in_order(clock: MockClock, database: Database, ears: Ears) -> None:
    order: list[int] = []

    async def call(number: int) -> None:
        await trio.sleep(number / 100)
        await database.run(lambda _: order.append(number))

    async with serving(database), trio.open_nursery() as nursery:
        database.go_away()
        for number in range(10):
            nursery.start_soon(call, number)
        await trio.sleep(10)
        assert order == []
        database.come_back()

    assert order == list(range(10))
    assert ears.kinds() == [StorageLost, StorageBack]


async def test_an_outage_after_a_read_ends_like_any_other(clock: MockClock, database: Database, ears: Ears) -> None:
    async with serving(database):
        await database.read(note_numbers)
        database.go_away()
        with trio.move_on_after(5):
            await database.read(note_numbers)
        database.come_back()
        await trio.sleep(10)
        await database.run(add_note, 1)
        assert await database.read(note_numbers) == [1]

    assert ears.kinds() == [StorageLost, StorageBack]


async def test_it_is_told_once_how_long_the_database_was_away(clock: MockClock, database: Database, ears: Ears) -> None:
    async with serving(database), trio.open_nursery() as nursery:
        await trio.sleep(5)
        database.go_away()
        nursery.start_soon(database.run, adding(1))
        await trio.sleep(20)
        database.come_back()

    lost, back = ears.heard
    assert isinstance(back, StorageBack)
    assert str(lost) == "StorageLost(error='an outage is played')"
    assert 20 <= back.away_s <= 25


async def test_a_call_waits_as_long_as_it_is_told_and_no_longer(clock: MockClock, database: Database) -> None:
    async with serving(database):
        database.go_away()
        started = trio.current_time()
        with pytest.raises(StorageUnavailable, match="away for the 30 s that a call waits"):
            await database.run(add_note, 1)

        assert trio.current_time() - started == 30
        database.come_back()


async def test_each_call_has_its_own_deadline(clock: MockClock, database: Database) -> None:
    ended: list[tuple[int, float]] = []

    async def call(number: int, at: float) -> None:
        await trio.sleep(at)
        result: Outcome[int] = await acapture(database.run, add_note, number)
        assert isinstance(result, Error)
        ended.append((number, trio.current_time()))

    async with serving(database):
        database.go_away()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call, 1, 0)
            nursery.start_soon(call, 2, 7.5)
            nursery.start_soon(call, 3, 40)
        database.come_back()

    assert ended == [(1, 30), (2, 37.5), (3, 70)]


async def test_a_held_call_is_withdrawn_at_once_when_its_caller_is_cancelled(
    clock: MockClock, database: Database
) -> None:
    async with serving(database):
        database.go_away()
        with trio.move_on_after(2) as scope:
            await database.run(add_note, 1)
        assert scope.cancelled_caught
        assert trio.current_time() == 2

        database.come_back()
        assert await database.run(note_numbers) == []


async def test_who_waits_for_a_seat_has_the_same_deadline(clock: MockClock, ears: Ears) -> None:
    database = gateway("sqlite://", Mode.INLINE, emit=ears, queue_max=1)
    ended: list[float] = []

    async def call(number: int) -> None:
        with pytest.raises(StorageUnavailable):
            await database.run(add_note, number)
        ended.append(trio.current_time())

    async with serving(database):
        database.go_away()
        async with trio.open_nursery() as nursery:
            for number in range(3):
                nursery.start_soon(call, number)
    database.dispose()

    assert ended == [30, 30, 30]


class NotedChance(random.Random):
    """Always the same, and remembers when it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked_at: list[float] = []

    def random(self) -> float:
        self.asked_at.append(round(trio.current_time(), 6))
        return 1.0


async def test_one_prober_looks_at_growing_distances(clock: MockClock) -> None:
    chance = NotedChance()
    database = Database(StorageOptions(url="sqlite://"), mode=Mode.INLINE, emit=ignore, chance=chance)
    async with serving(database), trio.open_nursery() as nursery:
        database.go_away()
        for number in range(5):
            nursery.start_soon(database.run, adding(number))
        await trio.sleep(20)
        database.come_back()
    database.dispose()

    assert chance.asked_at == [0, 0.1, 0.3, 0.7, 1.5, 3.1, 6.3, 11.3, 16.3]


async def test_the_start_is_acknowledged_while_the_database_is_away(
    clock: MockClock, database: Database, ears: Ears
) -> None:
    database.go_away()
    async with trio.open_nursery() as nursery:
        await nursery.start(database)
        assert ears.kinds() == [StorageLost]
        nursery.start_soon(database.run, create_notes)
        await trio.sleep(3)
        database.come_back()
        await ears.wait_for(StorageBack)

        assert await database.run(note_numbers) == []
        database.stop()


async def test_migrations_run_before_anything_else_when_the_database_comes_back(clock: MockClock) -> None:
    order: list[str] = []
    database = Database(
        StorageOptions(url="sqlite://"),
        mode=Mode.INLINE,
        emit=lambda event: order.append(event.name),
        chance=random.Random(1),
    )
    database.go_away()
    async with trio.open_nursery() as nursery:
        await nursery.start(database)
        nursery.start_soon(database.run, lambda _: order.append("ran"))
        await trio.sleep(1)
        database.come_back()
        await trio.sleep(10)
        database.stop()
    database.dispose()

    assert order == [StorageLost.name, SchemaMigrated.name, StorageBack.name, "ran"]


async def test_a_stop_during_an_outage_does_not_wait_for_its_end(clock: MockClock, database: Database) -> None:
    async def stop_later() -> None:
        await trio.sleep(1)
        database.stop()

    async with serving(database), trio.open_nursery() as nursery:
        database.go_away()
        nursery.start_soon(stop_later)
        with pytest.raises(StorageUnavailable, match="not running"):
            await database.run(add_note, 1)

    assert trio.current_time() == 1


async def test_the_content_in_memory_survives_a_restart_and_not_a_disposal(
    clock: MockClock, database: Database
) -> None:
    async with serving(database):
        await database.run(add_note, 1)
    async with serving(database, with_notes=False):
        assert await database.run(note_numbers) == [1]
    database.dispose()

    async with serving(database):
        assert await database.run(note_numbers) == []
    assert active_thread_count() == 0


def test_an_outage_can_be_played_only_in_line(ears: Ears) -> None:
    with pytest.raises(ValueError, match="only in line"):
        gateway("sqlite://", Mode.THREADS, emit=ears).go_away()
