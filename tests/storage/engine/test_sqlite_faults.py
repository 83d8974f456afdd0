"""Who is told what, when a commit group on SQLite meets a full disk, a broken one, a lock, or a member that misbehaves.

A full database and OR ROLLBACK are real here, and so is the broken disk in `test_a_disk_that_breaks_at_commit…`, which a
limit on the size of files plays in a process of its own. What cannot be had for real at COMMIT (full, busy, broken and
mended at once) is played by a driver's connection that raises there: SQLite loads no file system of ours from Python.
"""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import pytest
import trio
from outcome import Error, Outcome
from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError, OperationalError
from typing_extensions import override

from cormorant.rules.errors import CommitUnknown, StatementTooSlow, StorageUnavailable, TransactionMisused
from cormorant.rules.events import StorageBack, StorageLost
from storage.engine.sqlite import Sqlite
from storage.engine.sqlite_session import GuardedSqliteConnection
from tests.storage.support import (
    Ears,
    add_note,
    adding,
    count_notes,
    create_notes,
    gateway,
    note_numbers,
    run_as_group,
    run_for_ever,
    serving,
)

PAGES_MAX = 40


def told(result: Outcome[Any]) -> Any:
    """The value, or the class of the error."""
    return type(result.error) if isinstance(result, Error) else result.unwrap()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/notes.db"


def limit_pages(connection: Connection) -> None:
    connection.exec_driver_sql(f"PRAGMA max_page_count = {PAGES_MAX}")


def overfill(connection: Connection) -> None:
    add_note(connection, 99, "x" * 1_000_000)


def overfill_and_deny(connection: Connection) -> str:
    with pytest.raises(OperationalError, match="full"):
        overfill(connection)
    return "all is well"


def insert_or_rollback(connection: Connection) -> None:
    connection.exec_driver_sql("INSERT OR ROLLBACK INTO notes (id) VALUES (1)")


def insert_or_rollback_and_deny(connection: Connection) -> None:
    with pytest.raises(IntegrityError):
        insert_or_rollback(connection)


def say_commit(connection: Connection) -> None:
    connection.exec_driver_sql("COMMIT")


def roll_back(connection: Connection) -> None:
    connection.rollback()


@pytest.mark.parametrize(
    ("misbehave", "verdict"),
    [
        (overfill, StorageUnavailable),
        (overfill_and_deny, StorageUnavailable),
        (insert_or_rollback, IntegrityError),
        (insert_or_rollback_and_deny, IntegrityError),
        (roll_back, TransactionMisused),
    ],
)
async def test_whoever_destroys_the_transaction_is_told_and_the_innocent_run_again(
    url: str, misbehave: Callable[[Connection], Any], verdict: type[Exception]
) -> None:
    async with serving(gateway(url)) as database:
        await database.run(limit_pages)

        outcomes = await run_as_group(database, [adding(1), adding(2), misbehave, adding(3), adding(4)])

        assert [told(result) for result in outcomes] == [1, 2, verdict, 3, 4]
        assert await database.read(note_numbers) == [1, 2, 3, 4]


async def test_a_full_disk_is_told_with_its_remedy(url: str) -> None:
    async with serving(gateway(url)) as database:
        await database.run(limit_pages)

        with pytest.raises(StorageUnavailable, match="make room"):
            await database.run(overfill)


async def test_many_who_destroy_do_not_keep_the_innocent_from_their_turn(url: str) -> None:
    async with serving(gateway(url)) as database:
        await database.run(add_note, 1)

        outcomes = await run_as_group(database, [insert_or_rollback, adding(2), *[insert_or_rollback] * 8, adding(3)])

        assert [told(result) for result in outcomes] == [IntegrityError, 2, *[IntegrityError] * 8, 3]
        assert await database.read(note_numbers) == [1, 2, 3]


async def test_a_constraint_error_in_a_group_is_told_to_one_and_costs_nobody_else(url: str) -> None:
    async with serving(gateway(url)) as database:
        outcomes = await run_as_group(database, [adding(1), adding(1), adding(2)])

        assert [told(result) for result in outcomes] == [1, IntegrityError, 2]
        assert await database.read(note_numbers) == [1, 2]


@pytest.mark.slow("waits for a time-out of the database, which has no mock clock")
async def test_a_call_that_takes_too_long_is_ended_once_and_the_others_go_on(url: str) -> None:
    times: list[str] = []

    def take_too_long(connection: Connection) -> None:
        times.append("begun")
        run_for_ever(connection)

    async with serving(gateway(url, statement_timeout_s=0.2)) as database:
        outcomes = await run_as_group(database, [adding(1), take_too_long, adding(2)])

        assert [told(result) for result in outcomes] == [1, StatementTooSlow, 2]
        assert await database.read(note_numbers) == [1, 2]
    assert times == ["begun"]


async def test_an_error_that_rests_on_undone_work_is_not_told(url: str) -> None:
    async with serving(gateway(url)) as database:
        await database.run(limit_pages)

        def add_and_overfill(connection: Connection) -> None:
            add_note(connection, 1)
            overfill(connection)

        outcomes = await run_as_group(database, [add_and_overfill, adding(1), adding(1)])

        assert [told(result) for result in outcomes] == [StorageUnavailable, 1, IntegrityError]


async def test_whoever_shared_a_transaction_that_somebody_committed_in_words_is_told_of_the_doubt(url: str) -> None:
    async with serving(gateway(url)) as database:
        outcomes = await run_as_group(database, [adding(1), say_commit, adding(2)])

        assert [told(result) for result in outcomes] == [CommitUnknown, TransactionMisused, 2]


class FailingAtCommit(GuardedSqliteConnection):
    """A connection whose next commits fail as they are told to."""

    failures: ClassVar[list[Callable[[FailingAtCommit], None]]] = []

    @override
    def commit(self) -> None:
        if not self.is_guarded and self.in_transaction and self.failures:
            self.failures.pop(0)(self)
        super().commit()

    def undo(self) -> None:
        sqlite3.Connection.rollback(self)


def fail(code: int, text: str) -> None:
    error = sqlite3.OperationalError(text)
    error.sqlite_errorcode = code
    raise error


def full(driver: FailingAtCommit) -> None:
    driver.undo()
    fail(sqlite3.SQLITE_FULL, "database or disk is full")


def busy(driver: FailingAtCommit) -> None:
    fail(sqlite3.SQLITE_BUSY, "database is locked")


def broken(driver: FailingAtCommit) -> None:
    driver.undo()
    fail(sqlite3.SQLITE_IOERR_FSYNC, "disk I/O error")


def broken_but_committed(driver: FailingAtCommit) -> None:
    sqlite3.Connection.commit(driver)
    fail(sqlite3.SQLITE_IOERR_FSYNC, "disk I/O error")


@pytest.fixture
def failures(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Callable[[FailingAtCommit], None]]]:
    monkeypatch.setattr(Sqlite, "driver_class", FailingAtCommit)
    yield FailingAtCommit.failures
    FailingAtCommit.failures.clear()


async def test_full_at_commit_lets_each_try_alone(url: str, failures: list[Callable[..., None]]) -> None:
    async with serving(gateway(url)) as database:
        failures += [lambda _: None, full, lambda _: None, full]

        outcomes = await run_as_group(database, [adding(1), adding(2), adding(3)])

        assert [told(result) for result in outcomes] == [1, StorageUnavailable, 3]
        assert await database.read(note_numbers) == [1, 3]


async def test_busy_at_commit_is_tried_again(url: str, failures: list[Callable[..., None]]) -> None:
    async with serving(gateway(url)) as database:
        failures += [busy, busy]

        assert await database.run(add_note, 1) == 1


@pytest.mark.parametrize(("breaks", "found"), [(broken, []), (broken_but_committed, [1, 2])])
async def test_a_disk_that_breaks_at_commit_leaves_all_in_doubt(
    url: str, failures: list[Callable[..., None]], breaks: Callable[..., None], found: list[int]
) -> None:
    async with serving(gateway(url)) as database:
        failures += [lambda _: None, breaks]

        outcomes = await run_as_group(database, [adding(1), adding(2)])

        assert [told(result) for result in outcomes] == [CommitUnknown, CommitUnknown]
        assert await database.read(note_numbers) == found
        assert await database.run(add_note, 3) == 3


FILE_LIMIT = """
import resource, signal, sys, trio
from cormorant.rules.errors import CommitUnknown
from tests.storage.support import *

async def main():
    async with serving(gateway(sys.argv[1])) as database:
        await database.run(add_note, 1)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
        try:
            await database.run(add_note, 2, words="x" * 1_000_000)
        except CommitUnknown as unknown:
            print("unknown:", unknown)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        await database.run(add_note, 3)
        print(await database.read(note_numbers))

trio.run(main)
"""


@pytest.mark.slow("starts a process, because a limit on the size of files is a process's")
def test_a_disk_that_really_breaks_at_commit_leaves_the_call_in_doubt_and_is_used_again(url: str) -> None:
    done = subprocess.run([sys.executable, "-c", FILE_LIMIT, url], capture_output=True, text=True, check=False)

    said = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert "the disk reported an error" in said[0]
    assert said[1] == "[1, 3]"


async def test_a_locked_database_is_waited_for(url: str, tmp_path: Path) -> None:
    ears = Ears()
    async with serving(gateway(url, emit=ears, busy_timeout_s=0.01)) as database:
        async with trio.open_nursery() as nursery:
            with closing(sqlite3.connect(tmp_path / "notes.db", isolation_level=None)) as neighbour:
                neighbour.execute("BEGIN IMMEDIATE")
                nursery.start_soon(database.run, adding(1))
                await ears.wait_for(StorageLost)
                assert await database.read(count_notes) == 0

        assert await database.read(note_numbers) == [1]
    assert ears.kinds() == [StorageLost, StorageBack]
    assert "another program keeps the database locked" in str(ears.heard[0])


async def test_a_database_that_stays_locked_is_given_up_at_the_deadline(url: str, tmp_path: Path) -> None:
    async with serving(gateway(url, busy_timeout_s=0.01, hold_s=0.05)) as database:
        with closing(sqlite3.connect(tmp_path / "notes.db", isolation_level=None)) as neighbour:
            neighbour.execute("BEGIN IMMEDIATE")
            with pytest.raises(StorageUnavailable, match=r"away for the 0.05 s .* locked"):
                await database.run(add_note, 1)


async def test_a_read_does_not_wait_behind_a_write(url: str) -> None:
    async with serving(gateway(url)) as database:
        numbers = []

        async def read_in_between() -> None:
            numbers.append(await database.read(note_numbers))

        def write_while_reading(connection: Connection) -> None:
            add_note(connection, 1)
            trio.from_thread.run(read_in_between)

        await database.run(write_while_reading)

        assert numbers == [[]]
        assert await database.read(note_numbers) == [1]


async def test_the_file_has_the_settings_that_survive_a_power_cut(url: str) -> None:
    def settings(connection: Connection) -> dict[str, object]:
        names = ("journal_mode", "synchronous", "foreign_keys", "auto_vacuum")
        return {name: connection.exec_driver_sql(f"PRAGMA {name}").scalar_one() for name in names}

    async with serving(gateway(url)) as database:
        found = await database.run(settings)

    assert found == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "auto_vacuum": 2}


def remove_all(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink()


async def test_a_file_that_vanished_is_not_replaced_by_an_empty_one(url: str, tmp_path: Path) -> None:
    database = gateway(url, hold_s=0.05)
    async with serving(database):
        pass
    remove_all(tmp_path)

    async with serving(database, with_notes=False):
        with pytest.raises(StorageUnavailable, match="cannot be opened"):
            await database.run(add_note, 1)

    assert not (tmp_path / "notes.db").exists()


def crash(driver: FailingAtCommit) -> None:
    raise RuntimeError("a mistake in the gateway")


async def test_nobody_waits_for_ever_when_the_gateway_itself_crashes(
    url: str, failures: list[Callable[..., None]]
) -> None:
    database = gateway(url)

    async def serve_until_it_crashes(task_status: trio.TaskStatus[None]) -> None:
        with pytest.RaisesGroup(RuntimeError, flatten_subgroups=True):
            await database(task_status=task_status)

    async with trio.open_nursery() as nursery:
        await nursery.start(serve_until_it_crashes)
        await database.run(create_notes)
        failures.append(crash)
        with pytest.raises(CommitUnknown, match="gateway crashed with this call in hand"):
            await database.run(add_note, 1)

    async with serving(database, with_notes=False):
        assert await database.read(note_numbers) == []
