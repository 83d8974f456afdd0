"""What is known and told when PostgreSQL, or the way to it, breaks at the worst moment."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import psycopg
import pytest
import trio
from psycopg.pq import ExecStatus
from sqlalchemy import Connection, make_url, text
from sqlalchemy.exc import IntegrityError

from cormorant.rules.errors import (
    CommitUnknown,
    StatementTooSlow,
    StorageMisconfigured,
    StorageUnavailable,
    TransactionMisused,
)
from cormorant.rules.events import StorageBack, StorageLost
from storage.database import Database, Mode
from storage.engine.postgres_session import RERUNS_MAX, PostgresSession
from tests.bounds import WAIT_S
from tests.postgres import PostgresServer
from tests.storage.proxy import Cut, proxied
from tests.storage.support import (
    Ears,
    add_note,
    adding,
    count_notes,
    create_notes,
    gateway,
    in_time,
    note_numbers,
    serving,
)

WRONG = "not the password"


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    """A server that the tests here may stop, crash and stall, one after the other. Each leaves it running."""
    with PostgresServer() as server:
        yield server


def admin(url: str) -> psycopg.Connection[Any]:
    """A connection of our own, beside the gateway."""
    return psycopg.connect(
        make_url(url).set(drivername="postgresql").render_as_string(hide_password=False), autocommit=True
    )


@pytest.mark.parametrize(("cut", "found"), [(Cut.BEFORE, []), (Cut.AFTER, [1])])
async def test_a_line_cut_at_commit_leaves_the_call_in_doubt_and_is_not_tried_again(
    postgres_url: str, cut: Cut, found: list[int]
) -> None:
    async with proxied(postgres_url) as proxy, serving(gateway(proxy.url, connections=1)) as database:
        proxy.cut_at("COMMIT", cut)

        with pytest.raises(CommitUnknown, match="look before repeating"):
            await database.run(add_note, 1)

        assert await database.read(note_numbers) == found


class Deaf:
    """A driver that once cannot send a command, says so in words of its own, and does not know yet that the line is dead."""

    def __init__(self, pgconn: Any, command: bytes) -> None:
        self._pgconn = pgconn
        self._command: bytes | None = command

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pgconn, name)

    def exec_(self, command: bytes) -> Any:
        if command != self._command:
            return self._pgconn.exec_(command)
        self._command = None
        return self._pgconn.make_empty_result(ExecStatus.FATAL_ERROR)


async def test_a_commit_that_the_driver_could_not_send_is_in_doubt_and_its_connection_is_given_up(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    deaf: list[Deaf] = []
    begin = PostgresSession.__init__

    def hard_of_hearing(self: PostgresSession, *what: Any, **how: Any) -> None:
        begin(self, *what, **how)
        if not deaf:
            deaf.append(Deaf(self._pgconn, b"COMMIT"))
            self._pgconn = deaf[0]  # type: ignore[assignment]  # it has what is asked of it

    async with serving(gateway(postgres_url, connections=1)) as database:
        await database.run(add_note, 1)
    monkeypatch.setattr(PostgresSession, "__init__", hard_of_hearing)
    async with serving(gateway(postgres_url, connections=1), with_notes=False) as database:
        with pytest.raises(CommitUnknown, match="look before repeating"):
            await database.run(add_note, 2)

        assert await database.run(add_note, 3) == 3
        assert await database.read(note_numbers) == [1, 3]


async def test_a_read_has_its_answer_before_commit(postgres_url: str) -> None:
    async with proxied(postgres_url) as proxy, serving(gateway(proxy.url)) as database:
        proxy.cut_at("COMMIT", Cut.BEFORE)

        assert await database.read(note_numbers) == []


@pytest.mark.parametrize("words", ["BEGIN", "INSERT"])
@pytest.mark.parametrize("cut", Cut)
async def test_a_line_cut_before_commit_is_no_doubt_and_the_call_runs_once(
    postgres_url: str, words: str, cut: Cut
) -> None:
    ears = Ears()
    async with proxied(postgres_url) as proxy, serving(gateway(proxy.url, emit=ears, connections=1)) as database:
        proxy.cut_at(words, cut)

        assert await database.run(add_note, 1) == 1

        assert await database.read(note_numbers) == [1]
    assert ears.heard == [], "one dead connection is no outage"


async def test_an_outage_is_told_and_waited_out(postgres_url: str) -> None:
    ears = Ears()
    async with proxied(postgres_url) as proxy, serving(gateway(proxy.url, emit=ears)) as database:
        proxy.cut_now()
        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(database.run, adding(number))
            await ears.wait_for(StorageLost)
            proxy.is_open = True

        assert await database.read(count_notes) == 10
    assert ears.kinds() == [StorageLost, StorageBack]


async def test_an_outage_that_lasts_is_given_up_at_the_deadline(postgres_url: str) -> None:
    async with proxied(postgres_url) as proxy, serving(gateway(proxy.url, hold_s=0.1)) as database:
        proxy.cut_now()

        with pytest.raises(StorageUnavailable, match="away for the 0.1 s"):
            await database.run(add_note, 1)


async def test_connections_that_died_while_idle_are_not_noticed(postgres_url: str) -> None:
    ears = Ears()
    async with serving(gateway(postgres_url, emit=ears)) as database:
        await database.read(count_notes)
        with admin(postgres_url) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )

        assert await database.run(add_note, 1) == 1
    assert ears.heard == []


@pytest.mark.slow("sees an outage three times")
async def test_a_call_that_always_loses_its_connection_is_taken_for_the_cause(postgres_url: str) -> None:
    async with serving(gateway(postgres_url, connections=1)) as database:
        with pytest.raises(StorageUnavailable, match="lost 3 times during this call"):
            await database.run(
                lambda connection: connection.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))
            )

        assert await database.run(add_note, 1) == 1


class Writers:
    """Write as fast as they can, and remember what was acknowledged and what is in doubt."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._news = trio.lowlevel.ParkingLot()
        self.are_stopped = False
        self.acknowledged: set[int] = set()
        self.doubtful: set[int] = set()

    async def write(self, first: int) -> None:
        for number in itertools.count(first):
            if self.are_stopped:
                return
            try:
                await self._database.run(add_note, number)
            except CommitUnknown:
                self.doubtful.add(number)
            else:
                self.acknowledged.add(number)
                self._news.unpark_all()

    async def until_more(self, count: int) -> None:
        wanted = len(self.acknowledged) + count
        while len(self.acknowledged) < wanted:
            await self._news.park()


@pytest.mark.slow("stops and starts a server of its own")
async def test_a_server_that_is_restarted_under_load_loses_and_repeats_nothing(
    own_server: PostgresServer,
) -> None:
    ears = Ears()

    async with serving(gateway(own_server.create_database(), emit=ears, hold_s=WAIT_S)) as database:
        writers = Writers(database)
        async with trio.open_nursery() as nursery:
            for writer in range(8):
                nursery.start_soon(writers.write, writer * 1_000_000)
            for mode in ("fast", "immediate"):
                await writers.until_more(50)
                await trio.to_thread.run_sync(own_server.restart, mode)
            await writers.until_more(50)
            writers.are_stopped = True
        present = set(await database.read(note_numbers))

    assert writers.acknowledged <= present <= writers.acknowledged | writers.doubtful
    assert ears.kinds()[:4] == [StorageLost, StorageBack] * 2


@pytest.mark.slow("stops and starts a server of its own")
async def test_the_start_is_acknowledged_while_the_server_is_away(own_server: PostgresServer) -> None:
    ears = Ears()
    url = own_server.create_database()
    await trio.to_thread.run_sync(own_server.stop)

    waiting = gateway(url, emit=ears, hold_s=WAIT_S)
    async with serving(waiting, with_notes=False) as database, trio.open_nursery() as nursery:
        assert ears.kinds() == [StorageLost]
        nursery.start_soon(database.run, create_notes)
        await trio.to_thread.run_sync(own_server.start)

    assert ears.kinds() == [StorageLost, StorageBack]


def stop_own_server_process(stopped: list[int], connection: Connection) -> None:
    pid: int = connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
    # On a slow machine the server may have ended the session already: then there is nothing to stop.
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
        stopped.append(pid)
    connection.execute(text("SELECT 1"))


@pytest.mark.slow("stops a process of a server of its own and waits for the time-out")
async def test_a_server_that_hangs_ends_the_call_all_the_same(own_server: PostgresServer) -> None:
    stopped: list[int] = []
    hanging = gateway(own_server.create_database(), statement_timeout_s=0.2)
    try:
        async with serving(hanging, with_notes=False) as database:
            await in_time(database.run, create_notes)
            while not stopped:
                with pytest.raises(StatementTooSlow):
                    await database.run(partial(stop_own_server_process, stopped))

            assert await in_time(database.run, count_notes) == 0
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)


class Failing:
    """A function that the server refuses a number of times with this code."""

    def __init__(self, code: str, times: int) -> None:
        self._code = code
        self.times_left = times

    def __call__(self, connection: Connection) -> str:
        add_note(connection, self.times_left)
        if self.times_left:
            self.times_left -= 1
            connection.exec_driver_sql(f"DO $$ BEGIN RAISE 'lost' USING ERRCODE = '{self._code}'; END $$")
        return "won"


@pytest.mark.parametrize("code", ["40001", "40P01"])
async def test_a_call_that_lost_a_race_runs_again(postgres_url: str, code: str) -> None:
    async with serving(gateway(postgres_url)) as database:
        assert await database.run(Failing(code, times=RERUNS_MAX)) == "won"

        assert await database.read(note_numbers) == [0]


async def test_a_call_that_loses_every_race_is_told_so(postgres_url: str) -> None:
    async with serving(gateway(postgres_url)) as database:
        with pytest.raises(StorageUnavailable, match="again and again"):
            await database.run(Failing("40001", times=RERUNS_MAX + 1))


@pytest.mark.slow("PostgreSQL looks for a deadlock after a second")
async def test_two_calls_that_lock_each_other_out_both_succeed(postgres_url: str) -> None:
    both_hold_one = threading.Barrier(2)
    begun: list[int] = []

    def lock(first: int, second: int) -> Callable[[Connection], None]:
        def in_order(connection: Connection) -> None:
            begun.append(first)
            connection.execute(text("UPDATE notes SET words = 'locked' WHERE id = :id"), {"id": first})
            if begun.count(first) == 1:
                both_hold_one.wait(timeout=WAIT_S)
            connection.execute(text("UPDATE notes SET words = 'locked' WHERE id = :id"), {"id": second})

        return in_order

    async with serving(gateway(postgres_url, lock_timeout_s=WAIT_S, statement_timeout_s=WAIT_S)) as database:
        await database.run(add_note, 1)
        await database.run(add_note, 2)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(database.run, lock(1, 2))
            nursery.start_soon(database.run, lock(2, 1))

    # The one that runs again may lock its first row before the other gets it, and is then ended once more.
    assert len(begun) >= 3, "one of them was ended by the server and ran again"


async def test_a_lock_that_is_not_had_in_time_is_told(postgres_url: str) -> None:
    async with serving(gateway(postgres_url, lock_timeout_s=0.05)) as database:
        with admin(postgres_url) as neighbour, neighbour.transaction():
            neighbour.execute("LOCK TABLE notes")
            with pytest.raises(StorageUnavailable, match="lock timeout"):
                await database.run(add_note, 1)


async def test_a_function_that_goes_on_after_an_error_is_told_that_its_work_is_lost(postgres_url: str) -> None:
    def add_twice(connection: Connection) -> str:
        add_note(connection, 1)
        with suppress(IntegrityError):
            add_note(connection, 1)
        return "fine"

    async with serving(gateway(postgres_url)) as database:
        with pytest.raises(TransactionMisused, match="begin_nested"):
            await database.run(add_twice)

        assert await database.read(count_notes) == 0


@pytest.mark.slow("waits for a time-out of the server")
async def test_a_function_that_dawdles_in_its_transaction_is_ended(postgres_url: str) -> None:
    def dawdle(connection: Connection) -> None:
        pid: int = connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
        add_note(connection, 1)
        with admin(postgres_url) as neighbour:
            while neighbour.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", [pid]).fetchone():
                time.sleep(0.01)
        add_note(connection, 2)

    async with serving(gateway(postgres_url, statement_timeout_s=0.2), with_notes=False) as database:
        await in_time(database.run, create_notes)
        with pytest.raises(StatementTooSlow):
            await database.run(dawdle)

        assert await in_time(database.read, count_notes) == 0


async def test_statements_stay_prepared_after_a_call_that_failed(postgres_url: str) -> None:
    def prepared(connection: Connection) -> int:
        return len(connection.exec_driver_sql("SELECT name FROM pg_prepared_statements").all())

    async with serving(gateway(postgres_url, connections=1)) as database:
        for number in range(10):
            await database.run(add_note, number)
        before = await database.read(prepared)
        with pytest.raises(IntegrityError):
            await database.run(add_note, 1)

        assert await database.read(prepared) == before > 0


async def test_a_statement_prepared_before_a_newer_process_changed_the_table_still_works(postgres_url: str) -> None:
    def everything(connection: Connection) -> list[Any]:
        return list(connection.exec_driver_sql("SELECT * FROM notes").all())

    async with serving(gateway(postgres_url, connections=1)) as database:
        for _ in range(10):
            await database.read(everything)
        with admin(postgres_url) as newer:
            newer.execute("ALTER TABLE notes ADD COLUMN more TEXT")

        assert await database.read(everything) == []


@pytest.mark.parametrize(
    ("change", "remedy"),
    [
        ({"username": "nobody_at_all"}, 'role "nobody_at_all" does not exist'),
        ({"database": "no_such_database"}, 'database "no_such_database" does not exist'),
        ({"database": ""}, "names no database"),
    ],
)
@pytest.mark.parametrize("mode", Mode)
async def test_what_waiting_does_not_cure_ends_the_start(
    postgres_url: str, change: dict[str, Any], remedy: str, mode: Mode
) -> None:
    url = make_url(postgres_url).set(**change).render_as_string(hide_password=False)

    with pytest.raises(StorageMisconfigured, match=remedy):
        await gateway(url, mode)()


@pytest.mark.slow("changes the rules of a server of its own")
async def test_a_wrong_password_ends_the_start_and_is_not_shown(own_server: PostgresServer) -> None:
    url = make_url(own_server.create_database())
    with admin(own_server.url) as connection:
        connection.execute("CREATE ROLE keeper LOGIN PASSWORD 'right'")
    rules = own_server.folder / "data" / "pg_hba.conf"
    rules.write_text(f"local all keeper scram-sha-256\n{rules.read_text()}")
    await trio.to_thread.run_sync(own_server.restart)

    with pytest.raises(StorageMisconfigured, match="password authentication failed") as refused:
        await gateway(url.set(username="keeper", password=WRONG).render_as_string(hide_password=False))()

    assert WRONG not in str(refused.value)
