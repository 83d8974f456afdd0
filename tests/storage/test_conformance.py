"""What every gateway promises: the same suite over both databases, with threads and in line."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import trio
from attrs import frozen
from sqlalchemy import Connection, NullPool, create_engine, insert, select, text
from sqlalchemy.exc import IntegrityError
from trio.testing import active_thread_count

from cormorant.rules.errors import StatementTooSlow, StorageUnavailable, TextRefused, TransactionMisused
from storage.database import Database, Mode
from tests.postgres import DatabaseServer
from tests.storage.support import (
    NOTES,
    add_note,
    adding,
    count_notes,
    create_notes,
    gateway,
    in_time,
    note_numbers,
    run_for_ever,
    serving,
)

KINDS = (
    "sqlite threads",
    "sqlite inline",
    "sqlite memory",
    "postgres threads",
    "postgres inline",
)


@frozen
class Maker:
    """Makes gateways to one database."""

    url: str
    mode: Mode
    made: list[Database]

    def __call__(self, **options: Any) -> Database:
        self.made.append(gateway(self.url, self.mode, **options))
        return self.made[-1]


@pytest.fixture(scope="module")
def shared_postgres_url(postgres_server: DatabaseServer) -> Iterator[str]:
    url = postgres_server.create_database()
    yield url
    postgres_server.drop_database(url)


def emptied(url: str) -> str:
    """The same database without its content. Making a new one for each of so many tests takes longer than all of them."""
    with create_engine(url, poolclass=NullPool).begin() as connection:
        connection.exec_driver_sql("DROP SCHEMA public CASCADE")
        connection.exec_driver_sql("CREATE SCHEMA public")
    return url


@pytest.fixture(params=KINDS)
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Maker]:
    kind: str = request.param
    if kind.startswith("postgres"):
        url = emptied(request.getfixturevalue("shared_postgres_url"))
    else:
        url = "sqlite://" if "memory" in kind else f"sqlite:///{tmp_path}/notes.db"
    maker = Maker(url, Mode.THREADS if kind.endswith("threads") else Mode.INLINE, [])
    yield maker
    for database in maker.made:
        database.dispose()


async def test_a_function_gets_its_arguments_and_its_result_comes_back(make: Maker) -> None:
    async with serving(make()) as database:
        number = await database.run(add_note, 7, words="seven")

        found = await database.read(note_numbers)

    assert number == 7
    assert found == [7]


async def test_what_was_acknowledged_is_there_after_a_restart(make: Maker) -> None:
    database = make()
    async with serving(database):
        await database.run(add_note, 1)

    async with serving(database, with_notes=False):
        await database.run(add_note, 2)

        assert await database.read(note_numbers) == [1, 2]


async def test_a_function_that_raises_undoes_all_of_its_own(make: Maker) -> None:
    def add_two_and_fail(connection: Connection) -> None:
        add_note(connection, 1)
        add_note(connection, 2)
        raise LookupError("changed my mind")

    async with serving(make()) as database:
        with pytest.raises(LookupError, match="changed my mind"):
            await database.run(add_two_and_fail)

        assert await database.read(count_notes) == 0


async def test_a_constraint_error_undoes_one_call_among_many(make: Maker) -> None:
    refused: list[int] = []

    async def add(database: Database, number: int) -> None:
        try:
            await database.run(add_note, number % 40)
        except IntegrityError:
            refused.append(number)

    async with serving(make()) as database:
        async with trio.open_nursery() as nursery:
            for number in range(60):
                nursery.start_soon(add, database, number)

        assert await database.read(note_numbers) == list(range(40))
    assert len(refused) == 20


async def test_no_error_shows_the_values_that_were_to_be_written(make: Maker) -> None:
    async with serving(make()) as database:
        await database.run(add_note, 1)
        with pytest.raises(IntegrityError) as caught:
            await database.run(add_note, 1, words="https://site.example/feed?passkey=hunter2")

    assert "hunter2" not in str(caught.value)


def add_without_parent(connection: Connection) -> None:
    connection.exec_driver_sql("CREATE TABLE parts (note BIGINT REFERENCES notes (id) DEFERRABLE INITIALLY DEFERRED)")
    connection.exec_driver_sql("INSERT INTO parts VALUES (5)")


async def test_an_error_at_commit_is_told_and_nothing_happened(make: Maker) -> None:
    async with serving(make()) as database:
        with pytest.raises(IntegrityError):
            await database.run(add_without_parent)

        await database.run(add_note, 5)
        await database.run(add_without_parent)


async def test_many_writers_lose_nothing(make: Maker) -> None:
    def increase(connection: Connection) -> None:
        connection.execute(text("UPDATE notes SET payload = CAST(CAST(payload AS INTEGER) + 1 AS TEXT) WHERE id = 1"))

    def start(connection: Connection) -> None:
        connection.execute(NOTES.insert(), {"id": 1, "payload": 0})

    async with serving(make()) as database:
        await database.run(start)
        async with trio.open_nursery() as nursery:
            for _ in range(100):
                nursery.start_soon(database.run, increase)

        assert await database.read(lambda connection: connection.execute(select(NOTES.c.payload)).scalar_one()) == 100


async def test_a_read_cannot_write(make: Maker) -> None:
    async with serving(make()) as database:
        with pytest.raises(TransactionMisused, match=r"give it to run\(\)"):
            await database.read(add_note, 1)

        await database.run(add_note, 2)
        assert await database.read(note_numbers) == [2]


def commit(connection: Connection) -> None:
    connection.commit()


def roll_back(connection: Connection) -> None:
    connection.rollback()


def close(connection: Connection) -> None:
    connection.close()


def commit_in_words(connection: Connection) -> None:
    connection.exec_driver_sql("COMMIT")


def commit_the_driver(connection: Connection) -> None:
    connection.connection.commit()


def commit_and_deny(connection: Connection) -> None:
    with suppress(TransactionMisused):
        connection.commit()


def leave_a_nested_one_open(connection: Connection) -> None:
    connection.begin_nested()


@pytest.mark.parametrize(
    "end", [commit, roll_back, close, commit_in_words, commit_the_driver, commit_and_deny, leave_a_nested_one_open]
)
async def test_a_function_that_ends_its_transaction_is_told_so(make: Maker, end: Callable[[Connection], None]) -> None:
    def misuse(connection: Connection) -> None:
        add_note(connection, 1)
        end(connection)

    async with serving(make()) as database:
        with pytest.raises(TransactionMisused, match="leave that to the gateway"):
            await database.run(misuse)

        await database.run(add_note, 2)
        assert 2 in await database.read(note_numbers)


async def test_an_error_caught_in_a_nested_transaction_spoils_nothing(make: Maker) -> None:
    def add_unless_there(connection: Connection, number: int) -> None:
        try:
            with connection.begin_nested():
                add_note(connection, number)
        except IntegrityError:
            add_note(connection, number + 100)

    async with serving(make()) as database:
        await database.run(add_unless_there, 1)
        await database.run(add_unless_there, 1)

        assert await database.read(note_numbers) == [1, 101]


@pytest.mark.slow("waits for a time-out of the database, which has no mock clock")
@pytest.mark.parametrize("call", ["run", "read"])
async def test_a_statement_that_never_ends_is_ended(make: Maker, call: str) -> None:
    def add_once(connection: Connection) -> None:
        if not note_numbers(connection):
            add_note(connection, 1)

    async with serving(make(statement_timeout_s=0.2), with_notes=False) as database:
        await in_time(database.run, create_notes)
        with pytest.raises(StatementTooSlow, match="longer than 0.2 s"):
            await getattr(database, call)(run_for_ever)

        await in_time(database.run, add_once)
        assert await in_time(database.read, note_numbers) == [1]


async def test_nobody_is_served_before_the_start_and_after_the_end(make: Maker) -> None:
    database = make()
    with pytest.raises(StorageUnavailable, match="not running"):
        await database.run(note_numbers)
    async with serving(database):
        pass

    with pytest.raises(StorageUnavailable, match="not running"):
        await database.run(note_numbers)


async def test_a_stop_finishes_what_is_in_line(make: Maker) -> None:
    database = make()
    async with serving(database), trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(database.run, adding(number))
        await trio.testing.wait_all_tasks_blocked()
        database.stop()

    async with serving(database, with_notes=False):
        assert await database.read(count_notes) == 20


async def test_whoever_is_cancelled_before_the_call_does_not_call(make: Maker) -> None:
    async with serving(make()) as database:
        with trio.CancelScope() as scope:
            scope.cancel()
            await database.run(add_note, 1)

        assert await database.read(count_notes) == 0


async def test_more_callers_than_seats_wait_their_turn(make: Maker) -> None:
    async with serving(make(queue_max=3)) as database:
        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(database.run, adding(number))

        assert await database.read(count_notes) == 20


async def test_functions_run_where_the_mode_says(make: Maker) -> None:
    async with serving(make()) as database:
        thread = await database.run(lambda _: threading.current_thread())
        threads = active_thread_count()

    assert (thread is threading.current_thread()) == (make.mode is Mode.INLINE)
    assert (threads == 0) == (make.mode is Mode.INLINE)
    assert active_thread_count() == 0


VALUES: list[dict[str, Any]] = [
    {"words": "emoji 🦅, 中文, e\u0301, \u200d, quote ' and \\ and \n"},
    {"words": ""},
    {"at": datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC)},
    {"at": datetime(1900, 1, 1, 0, 0, 0, 1, UTC)},
    {"payload": {"half a pair": "\ud83d", "whole": "🦅", "deep": [1.5, None, True, {"": []}]}},
    {"payload": "\\u0000 in words, not the character"},
    {"payload": 2**63 - 1},
]


async def test_values_come_back_as_they_were(make: Maker) -> None:
    async with serving(make()) as database:
        for number, value in enumerate(VALUES):
            await database.run(lambda connection, row: connection.execute(insert(NOTES), row), {"id": number} | value)
        rows = await database.read(
            lambda connection: connection.execute(select(NOTES).order_by(NOTES.c.id)).mappings().all()
        )

    assert [{key: row[key] for key in value} for row, value in zip(rows, VALUES, strict=True)] == VALUES


async def test_the_largest_and_the_smallest_number_fit(make: Maker) -> None:
    async with serving(make()) as database:
        await database.run(add_note, 2**63 - 1)
        await database.run(add_note, -(2**63))

        assert await database.read(note_numbers) == [-(2**63), 2**63 - 1]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"words": "a\0b"}, "NUL"),
    ({"payload": {"a": ["\0"]}}, "NUL"),
    ({"payload": "\\\0"}, "NUL"),
    ({"words": "half a pair \ud83d"}, "not valid Unicode"),
]


async def test_text_that_not_every_database_can_keep_is_refused(make: Maker) -> None:
    async with serving(make()) as database:
        for value, why in REFUSED:
            with pytest.raises(TextRefused, match=why):
                await database.run(lambda connection, row: connection.execute(insert(NOTES), row), {"id": 1} | value)

        assert await database.read(count_notes) == 0
