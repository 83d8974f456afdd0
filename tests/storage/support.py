"""What the tests of storage share: a small table, functions over it, a gateway that serves, and groups on purpose."""

from __future__ import annotations

import random
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, ParamSpec, TypeVar

import alembic.operations  # noqa: F401 - loaded at the first migration; here, so that no test is slow for it
import trio
from outcome import Outcome, acapture
from sqlalchemy import BigInteger, Column, Connection, MetaData, Table, func, select
from trio.testing import wait_all_tasks_blocked

from cormorant.rules.errors import CommitUnknown, StatementTooSlow
from cormorant.rules.events import Event, SchemaMigrated
from cormorant.rules.ports import Emit, ignore
from storage.database import Database, Mode, StorageOptions
from storage.engine.columns import JsonText, Micros, PlainText
from storage.engine.schema import Migration
from storage.migrations import MIGRATIONS
from tests.bounds import WAIT_S

P = ParamSpec("P")
T = TypeVar("T")

NOTES = Table(
    "notes",
    MetaData(),
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("words", PlainText),
    Column("at", Micros),
    Column("payload", JsonText),
)

Function = Callable[[Connection], Any]


def create_notes(connection: Connection) -> None:
    NOTES.create(connection, checkfirst=True)


def add_note(connection: Connection, number: int, words: str = "") -> int:
    connection.execute(NOTES.insert(), {"id": number, "words": words})
    return number


def note_numbers(connection: Connection) -> list[int]:
    return list(connection.execute(select(NOTES.c.id).order_by(NOTES.c.id)).scalars())


def count_notes(connection: Connection) -> int:
    return connection.execute(select(func.count()).select_from(NOTES)).scalar_one()


def adding(number: int) -> Function:
    """A function that adds this note."""
    return lambda connection: add_note(connection, number)


def run_for_ever(connection: Connection) -> None:
    """A statement that never ends by itself."""
    connection.exec_driver_sql("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n")


async def in_time(call: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
    """Repeat a call until the database does it within its time-out. A slow machine can exceed a short one with any statement."""
    while True:
        try:
            return await call(*args, **kwargs)
        except (StatementTooSlow, CommitUnknown):
            continue


class Ears:
    """Hears the events of a gateway, and can be waited with."""

    def __init__(self) -> None:
        self.heard: list[Event] = []
        self._news = trio.lowlevel.ParkingLot()

    def __call__(self, event: Event) -> None:
        if not isinstance(event, SchemaMigrated):
            self.heard.append(event)
            self._news.unpark_all()

    async def wait_for(self, kind: type[Event]) -> None:
        while not any(isinstance(event, kind) for event in self.heard):
            await self._news.park()

    def kinds(self) -> list[type[Event]]:
        return [type(event) for event in self.heard]


def gateway(
    url: str,
    mode: Mode = Mode.THREADS,
    *,
    emit: Emit = ignore,
    migrations: Sequence[Migration] = MIGRATIONS,
    **options: Any,
) -> Database:
    """A gateway with these options."""
    return Database(
        StorageOptions(url=url, **options), mode=mode, emit=emit, chance=random.Random(7), migrations=migrations
    )


@asynccontextmanager
async def serving(database: Database, *, with_notes: bool = True) -> AsyncIterator[Database]:
    """The gateway as a child, stopped in order at the end."""
    async with trio.open_nursery() as nursery:
        await nursery.start(database)
        if with_notes:
            await database.run(create_notes)
        yield database
        database.stop()


class Blocker:
    """A function that keeps the worker busy until it is told to go on, so that others line up behind it."""

    def __init__(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._go_on = threading.Event()
        self.is_taken = trio.Event()

    def __call__(self, connection: Connection) -> str:
        self.hold()
        return "went on"

    def hold(self) -> None:
        """Tell that a worker is here, and keep it."""
        self._token.run_sync_soon(self.is_taken.set)
        assert self._go_on.wait(timeout=WAIT_S)

    def go_on(self) -> None:
        self._go_on.set()


async def run_as_group(database: Database, functions: Sequence[Function]) -> list[Outcome[Any]]:
    """Run functions that all arrived, in this order, while a commit was under way. What became of each."""
    outcomes: dict[int, Outcome[Any]] = {}

    async def run(place: int, function: Function) -> None:
        outcomes[place] = await acapture(database.run, function)

    async with trio.open_nursery() as nursery:
        blocker = Blocker()
        nursery.start_soon(database.run, blocker)
        await blocker.is_taken.wait()
        for place, function in enumerate(functions):
            nursery.start_soon(run, place, function)
            await wait_all_tasks_blocked()
        blocker.go_on()
    return [outcomes[place] for place in range(len(functions))]
