"""A caller that is cancelled: its call is withdrawn while it waits in line, and waited for once a worker has it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import pytest
import trio
from outcome import Error, Outcome, acapture
from sqlalchemy import Connection
from trio.testing import active_thread_count, wait_all_tasks_blocked
from typing_extensions import override

from cormorant.rules.errors import StorageUnavailable
from cormorant.rules.events import StorageLost
from storage.database import Database
from storage.engine.calls import Call, CallQueue
from storage.engine.sqlite import Sqlite
from storage.engine.sqlite_session import GuardedSqliteConnection
from tests.storage.support import Blocker, Ears, add_note, adding, gateway, note_numbers, serving


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    if request.param == "sqlite":
        yield gateway(f"sqlite:///{tmp_path}/notes.db")
    else:
        yield gateway(request.getfixturevalue("postgres_url"), connections=1)


async def test_a_call_in_line_is_withdrawn_at_once(database: Database) -> None:
    async with serving(database), trio.open_nursery() as nursery:
        blocker = Blocker()
        nursery.start_soon(database.run, blocker)
        await blocker.is_taken.wait()
        with trio.move_on_after(0) as scope:
            await database.run(add_note, 1)

        assert scope.cancelled_caught
        blocker.go_on()
        assert await database.read(note_numbers) == []


async def test_a_taken_call_is_waited_for_and_its_answer_kept(database: Database) -> None:
    answers: list[str] = []

    async def call(blocker: Blocker, scope: trio.CancelScope) -> None:
        with scope:
            answers.append(await database.run(blocker))

    async with serving(database), trio.open_nursery() as nursery:
        blocker, scope = Blocker(), trio.CancelScope()
        nursery.start_soon(call, blocker, scope)
        await blocker.is_taken.wait()
        scope.cancel()
        await wait_all_tasks_blocked()
        assert answers == []
        blocker.go_on()

    assert answers == ["went on"]
    assert not scope.cancelled_caught


async def test_a_cancelled_gateway_finishes_what_is_taken_and_refuses_the_rest(database: Database) -> None:
    outcomes: dict[str, Outcome[object]] = {}

    async def serve(scope: trio.CancelScope, task_status: trio.TaskStatus[None]) -> None:
        with scope:
            await database(task_status=task_status)

    async def call(name: str, blocker: Blocker) -> None:
        outcomes[name] = await acapture(database.run, blocker)

    async with trio.open_nursery() as nursery:
        scope = trio.CancelScope()
        await nursery.start(serve, scope)
        taken, in_line = Blocker(), Blocker()
        nursery.start_soon(call, "taken", taken)
        await taken.is_taken.wait()
        nursery.start_soon(call, "in line", in_line)
        await wait_all_tasks_blocked()
        scope.cancel()
        await wait_all_tasks_blocked()
        taken.go_on()

    assert outcomes["taken"].unwrap() == "went on"
    assert isinstance(outcomes["in line"], Error)
    assert isinstance(outcomes["in line"].error, StorageUnavailable)
    assert active_thread_count() == 0


class HeldUp(GuardedSqliteConnection):
    """A connection that begins its next write transaction only when the test says so."""

    blocker: ClassVar[Blocker | None] = None

    @override
    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        blocker = HeldUp.blocker
        if blocker is not None and sql == "BEGIN IMMEDIATE":
            HeldUp.blocker = None
            blocker.hold()
        return super().execute(sql, parameters)


async def test_whoever_was_cancelled_while_taken_goes_when_the_call_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Sqlite, "driver_class", HeldUp)
    ears, scope, caught = Ears(), trio.CancelScope(), list[bool]()
    database = gateway(f"sqlite:///{tmp_path}/notes.db", emit=ears, busy_timeout_s=0.01)

    async def call() -> None:
        with scope:
            await database.run(add_note, 1)
        caught.append(scope.cancelled_caught)

    async with serving(database):
        with closing(sqlite3.connect(tmp_path / "notes.db", isolation_level=None)) as neighbour:
            neighbour.execute("BEGIN IMMEDIATE")
            blocker = HeldUp.blocker = Blocker()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(call)
                await blocker.is_taken.wait()
                scope.cancel()
                await wait_all_tasks_blocked()
                assert caught == [], "a call that a worker has is waited for"
                blocker.go_on()
            assert caught == [True]
            assert ears.kinds() == [StorageLost]

        assert await database.run(note_numbers) == []


async def test_a_function_that_cancels_its_own_caller_is_still_answered(database: Database) -> None:
    async with serving(database):
        with trio.CancelScope() as scope:

            def add_and_cancel(connection: Connection) -> int:
                trio.from_thread.run_sync(scope.cancel)
                return add_note(connection, 1)

            answer = await database.run(add_and_cancel)

        assert answer == 1
        assert await database.read(note_numbers) == [1]


async def test_calls_that_two_workers_give_back_stand_in_their_old_order() -> None:

    line = CallQueue()
    calls = [Call(adding(number), reads_only=False) for number in range(4)]
    for call in calls:
        line.put(call)
    first, second = line.take(1), line.take(1)

    line.put_back(second)
    line.put_back(first)

    assert line.waiting() == calls
    assert line.is_paused
    assert line.withdraw(calls[0])
    assert not line.withdraw(calls[0])
