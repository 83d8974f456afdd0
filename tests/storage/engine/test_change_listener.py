"""What is announced by a commit is heard once, by all who listen to its channel, in this process and in others."""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing
from functools import partial
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest
import trio
from sqlalchemy import Connection, make_url
from trio.testing import MockClock, wait_all_tasks_blocked

from cormorant.rules.errors import CommitUnknown
from cormorant.rules.events import Event
from storage.database import Database, Mode
from storage.engine import change_listener, file_watch, sqlite
from storage.engine.calls import DatabaseAway
from storage.engine.change_listener import ChangeListener
from storage.engine.channel_counters import ChannelCounters
from storage.engine.sqlite import SqliteChanges
from storage.engine.sqlite_session import GuardedSqliteConnection
from storage.engine.statements import announce
from tests.bounds import WAIT_S
from tests.storage.proxy import Cut, proxied
from tests.storage.support import Blocker, gateway, serving
from tests.waiting import until

pytestmark = pytest.mark.slow("real files, servers and threads")

HERE = Path(__file__).parents[3]


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'shared.db'}"
    else:
        yield request.getfixturevalue("postgres_url")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "shared.db"


def error_of(words: str, code: int) -> sqlite3.OperationalError:
    """An error of SQLite."""
    error = sqlite3.OperationalError(words)
    error.sqlite_errorcode = code
    return error


@pytest.fixture
def still_clock() -> MockClock:
    """A clock that stands until the test moves it, however long real threads take."""
    return MockClock()


class Heard:
    """Counts what is heard of each channel."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._news = trio.lowlevel.ParkingLot()

    def __call__(self, name: str) -> None:
        self.counts[name] += 1
        self._news.unpark_all()

    async def until(self, name: str, count: int) -> None:
        with trio.fail_after(WAIT_S):
            while self.counts[name] < count:
                await self._news.park()


def announcing(*channels: str, own: bool = True) -> Callable[[Connection], None]:
    """A transaction that announces these channels and changes nothing else."""

    def work(connection: Connection) -> None:
        for channel in channels:
            announce(connection, channel, own=own)

    return work


@asynccontextmanager
async def listening(database: Database, heard: Heard, *channels: str, in_memory: bool = False) -> AsyncIterator[None]:
    """Listen to channels: "jobs" counts all that is heard of it, "jobs of others" what others have announced.

    Begins when the connection to others is open, with nothing counted.
    """
    async with trio.open_nursery() as nursery:
        for channel in ("open", *channels):  # the first opens the connection
            await nursery.start(partial(database.listen, channel, partial(heard, f"{channel} of others"), own=False))
            await nursery.start(database.listen, channel, partial(heard, channel))
        if not in_memory:
            await heard.until("open of others", 1)
        heard.counts.clear()
        yield
        nursery.cancel_scope.cancel()


async def test_a_commit_is_heard_by_its_own_process_before_its_caller_goes_on_and_once(url: str) -> None:
    heard = Heard()
    async with serving(gateway(url)) as database, listening(database, heard, "jobs", "feeds"):
        await database.run(announcing("jobs", "jobs"))
        at_once = heard.counts.copy()
        await echo(url, heard)

    assert at_once == {"jobs": 1}
    assert heard.counts["jobs"] == 1
    assert heard.counts["feeds"] == heard.counts["jobs of others"] == 0


async def echo(url: str, heard: Heard) -> None:
    """Wait until all that others have announced so far, and all that has come back, was heard."""
    before = heard.counts["open of others"]
    async with serving(gateway(url), with_notes=False) as other:
        await other.run(announcing("open"))
    await heard.until("open of others", before + 1)


@pytest.mark.parametrize("mode", Mode)
async def test_a_database_in_memory_is_heard_by_its_own_process(mode: Mode) -> None:
    heard = Heard()
    async with serving(gateway("sqlite://", mode)) as database, listening(database, heard, "jobs", in_memory=True):
        await database.run(announcing("jobs"))

    assert heard.counts == {"jobs": 1}


async def test_another_process_is_heard_by_all(url: str) -> None:
    heard = Heard()
    async with (
        serving(gateway(url)) as other,
        serving(gateway(url), with_notes=False) as database,
        listening(database, heard, "jobs", "feeds"),
    ):
        await other.run(announcing("jobs"))
        await heard.until("jobs of others", 1)

    assert heard.counts == {"jobs": 1, "jobs of others": 1}


async def test_what_is_not_for_the_own_process_is_heard_only_by_others(url: str) -> None:
    heard, there = Heard(), Heard()
    async with (
        serving(gateway(url)) as database,
        serving(gateway(url), with_notes=False) as other,
        listening(database, heard, "jobs"),
        listening(other, there, "jobs"),
    ):
        await database.run(announcing("jobs", own=False))
        await there.until("jobs", 1)
        await echo(url, heard)

    assert heard.counts["jobs"] == 0


async def test_nothing_is_heard_of_a_transaction_that_is_undone(url: str) -> None:
    heard, there = Heard(), Heard()

    def fail(connection: Connection) -> None:
        announce(connection, "jobs")
        raise LookupError

    async with (
        serving(gateway(url)) as database,
        serving(gateway(url), with_notes=False) as other,
        listening(database, heard, "jobs", "feeds"),
        listening(other, there, "jobs", "feeds"),
    ):
        with pytest.raises(LookupError):
            await database.run(fail)
        await database.run(announcing("feeds"))
        await there.until("feeds", 1)

    assert heard.counts == {"feeds": 1}
    assert there.counts == {"feeds": 1, "feeds of others": 1}


@pytest.mark.parametrize("is_careful", [False, True])
async def test_of_a_group_in_which_one_fails_only_the_others_are_heard(file: Path, *, is_careful: bool) -> None:
    heard = Heard()

    def fail(connection: Connection) -> None:
        announce(connection, "jobs")
        raise LookupError

    async def failing(database: Database) -> None:
        with pytest.raises(LookupError):
            await database.run(fail)

    async with serving(gateway(f"sqlite:///{file}")) as database, listening(database, heard, "jobs", "feeds", "wants"):
        for _ in range(1 + is_careful):  # the second time savepoints are set from the start
            heard.counts.clear()
            blocker = Blocker()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(database.run, blocker)
                await blocker.is_taken.wait()
                nursery.start_soon(database.run, announcing("feeds"))
                nursery.start_soon(failing, database)
                nursery.start_soon(database.run, announcing("wants"))
                await wait_all_tasks_blocked()
                blocker.go_on()

    assert heard.counts == {"feeds": 1, "wants": 1}


async def test_a_commit_in_doubt_is_heard_because_it_may_have_happened(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard, url = Heard(), f"sqlite:///{file}"

    class Unsure(GuardedSqliteConnection):
        def commit(self) -> None:
            super().commit()
            if is_doubtful:
                raise error_of("disk I/O error", sqlite3.SQLITE_IOERR)

    is_doubtful = False
    monkeypatch.setattr(sqlite.Sqlite, "driver_class", Unsure)
    async with serving(gateway(url)) as database, listening(database, heard, "jobs"):
        is_doubtful = True
        with pytest.raises(CommitUnknown):
            await database.run(announcing("jobs"))
        is_doubtful = False
        assert heard.counts["jobs"] >= 1
        heard.counts.clear()
        await echo(url, heard)
        await database.run(announcing("jobs"))
        own = heard.counts["jobs"]

    assert own >= 1


async def test_a_commit_whose_answer_is_lost_on_the_way_is_heard_as_well(postgres_url: str) -> None:
    heard = Heard()
    async with (
        proxied(postgres_url) as proxy,
        serving(gateway(proxy.url, connections=1)) as database,
        listening(database, heard, "jobs"),
    ):
        proxy.cut_at("COMMIT", Cut.AFTER)
        with pytest.raises(CommitUnknown):
            await database.run(announcing("jobs"))
        at_once = heard.counts["jobs"]

    assert at_once == 1


async def test_a_commit_that_fails_for_sure_makes_nothing_unheard_that_others_announce_later(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = Heard()

    class Full(GuardedSqliteConnection):
        def commit(self) -> None:
            if is_full:
                raise error_of("database or disk is full", sqlite3.SQLITE_FULL)
            super().commit()

    is_full = False
    async with serving(gateway(f"sqlite:///{file}")) as other:
        monkeypatch.setattr(sqlite.Sqlite, "driver_class", Full)
        async with (
            serving(gateway(f"sqlite:///{file}"), with_notes=False) as database,
            listening(database, heard, "jobs"),
        ):
            is_full = True
            with pytest.raises(Exception, match="full"):
                await database.run(announcing("jobs"))
            is_full = False
            assert heard.counts == {}
            await other.run(announcing("jobs"))
            await heard.until("jobs of others", 1)

    assert heard.counts == {"jobs": 1, "jobs of others": 1}


ANNOUNCER = """
import random, sys, trio
from storage.database import Database, Mode, StorageOptions
from storage.engine.statements import announce

async def main(url, rounds):
    database = Database(StorageOptions(url=url), mode=Mode.THREADS, emit=lambda event: None, chance=random.Random(0))
    async with trio.open_nursery() as nursery:
        await nursery.start(database)
        print("ready", flush=True)
        for _ in range(rounds):
            await trio.to_thread.run_sync(sys.stdin.readline)
            await database.run(announce, "jobs")
            print("done", flush=True)
        database.stop()

trio.run(main, sys.argv[1], int(sys.argv[2]))
"""


async def test_a_process_that_commits_in_the_same_instant_is_never_missed(url: str) -> None:
    rounds, heard = 25, Heard()
    async with serving(gateway(url)) as database, listening(database, heard, "jobs"):
        command = [sys.executable, "-c", ANNOUNCER, url, str(rounds)]
        process = await trio.lowlevel.open_process(
            command, stdin=-1, stdout=-1, env={**os.environ, "PYTHONPATH": str(HERE)}
        )
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None
        assert stdout is not None
        async with stdin, stdout:
            said = b""

            async def until_said(count: int) -> None:
                nonlocal said
                while said.count(b"\n") < count:
                    said += await stdout.receive_some()

            with trio.fail_after(WAIT_S):
                await until_said(1)
                for number in range(rounds):
                    before = heard.counts["jobs of others"]
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(stdin.send_all, b"\n")
                        for _ in range(5):
                            await database.run(announcing("jobs"))
                    await until_said(number + 2)
                    await heard.until("jobs of others", before + 1)
                await process.wait()

    assert heard.counts["jobs of others"] == rounds, "each time once, and never for commits of its own"


async def test_own_commits_one_after_the_other_are_never_taken_for_those_of_others(url: str) -> None:
    heard = Heard()
    async with serving(gateway(url)) as database, listening(database, heard, "jobs"):
        for _ in range(50):
            async with trio.open_nursery() as nursery:
                for _ in range(4):
                    nursery.start_soon(database.run, announcing("jobs"))
            await trio.sleep(0.01)
        await echo(url, heard)

    assert heard.counts["jobs of others"] == 0


async def test_a_listening_connection_that_dies_counts_once_and_hears_again(postgres_url: str) -> None:
    heard = Heard()
    kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND datname = current_database()"
    async with serving(gateway(postgres_url)) as database, listening(database, heard, "jobs"):
        address = make_url(postgres_url).set(drivername="postgresql").render_as_string(hide_password=False)
        with psycopg.connect(address) as admin:
            admin.execute(kill)
        await heard.until("jobs of others", 1)
        lost = heard.counts.copy()
        await echo(postgres_url, heard)

    assert lost["jobs"] == lost["jobs of others"] == 1
    assert heard.counts["jobs"] == 1


async def test_a_file_that_is_replaced_counts_once_and_is_heard_again(file: Path, tmp_path: Path) -> None:
    heard, backup = Heard(), tmp_path / "backup.db"
    url = f"sqlite:///{file}"
    async with serving(gateway(url)) as other:
        await other.run(announcing("jobs"))
    shutil.copy(file, backup)
    async with serving(gateway(url)) as database, listening(database, heard, "jobs"):
        for _ in range(3):
            await database.run(announcing("jobs"))
        heard.counts.clear()
        for end in ("-wal", "-shm"):
            file.with_name(file.name + end).unlink()
        backup.replace(file)
        await heard.until("jobs of others", 1)
        async with serving(gateway(url)) as restored:
            await restored.run(announcing("jobs"))
            await heard.until("jobs of others", 2)

    assert heard.counts["jobs of others"] == 2


async def test_two_gateways_of_one_process_hear_each_other(url: str) -> None:
    first, second = Heard(), Heard()
    async with (
        serving(gateway(url)) as one,
        serving(gateway(url), with_notes=False) as two,
        listening(one, first, "jobs"),
        listening(two, second, "jobs"),
    ):
        await one.run(announcing("jobs"))
        await second.until("jobs of others", 1)
        await two.run(announcing("jobs"))
        await first.until("jobs of others", 1)

    assert first.counts == second.counts == {"jobs": 2, "jobs of others": 1}


async def test_without_a_watch_a_file_is_looked_at_once_a_second(
    file: Path, monkeypatch: pytest.MonkeyPatch, still_clock: MockClock
) -> None:
    monkeypatch.setattr(sqlite, "watch", lambda _: None)
    looks, heard, url = counted_looks(monkeypatch), Heard(), f"sqlite:///{file}"
    async with (
        serving(gateway(url)) as other,
        serving(gateway(url), with_notes=False) as database,
        listening(database, heard, "jobs"),
    ):
        for _ in range(100):
            still_clock.jump(0.1)
            await wait_all_tasks_blocked()
        counted = len(looks)
        await other.run(announcing("jobs"))
        still_clock.jump(1.0)
        await heard.until("jobs of others", 1)

    assert counted in {9, 10}


def counted_looks(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Every look from now on."""
    looks: list[float] = []
    look = SqliteChanges.look

    def counted(changes: SqliteChanges) -> Any:
        if trio.lowlevel.in_trio_run():  # the first is made by the thread that connects
            looks.append(trio.current_time())
        return look(changes)

    monkeypatch.setattr(SqliteChanges, "look", counted)
    return looks


async def test_an_idle_file_is_looked_at_once_a_minute_and_one_that_nothing_listens_to_never(
    file: Path, monkeypatch: pytest.MonkeyPatch, still_clock: MockClock
) -> None:
    looks, heard = counted_looks(monkeypatch), Heard()

    async def pass_an_hour() -> int:
        looks.clear()
        for _ in range(60):
            for part_s in (change_listener.LOOK_ANYWAY_S - 1.0, 1.0):
                still_clock.jump(part_s)
                await wait_all_tasks_blocked()
        return len(looks)

    async with serving(gateway(f"sqlite:///{file}")) as database:
        await database.run(announcing("jobs"))
        unheard = await pass_an_hour()
        async with listening(database, heard, "jobs"):
            idle = await pass_an_hour()
            for _ in range(20):
                await database.run(announcing())
            unannounced = await pass_an_hour()

    assert unheard == 0
    assert max(idle, unannounced) <= 60


async def test_what_a_process_announced_that_was_killed_before_it_told_is_heard_within_a_minute(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ChannelCounters, "touch_file", lambda _: None)
    monkeypatch.setattr(change_listener, "LOOK_ANYWAY_S", 0.2)
    heard, url = Heard(), f"sqlite:///{file}"
    async with (
        serving(gateway(url)) as other,
        serving(gateway(url), with_notes=False) as database,
        listening(database, heard, "jobs"),
    ):
        await other.run(announcing("jobs"))
        await heard.until("jobs", 1)


class RefusedConnection:
    """A connection that is refused some times before it opens. Nothing is announced on it."""

    pause_s = 1.0

    def __init__(self, refusals: int) -> None:
        self.refusals = refusals

    def open(self) -> RefusedConnection:
        self.refusals -= 1
        if self.refusals >= 0:
            raise DatabaseAway("LISTEN was refused")
        return self

    def fileno(self) -> None:
        return None

    def look(self) -> set[str]:
        return set()

    def close(self) -> None:
        pass


@pytest.mark.parametrize(("refusals", "told"), [(1, []), (3, ["ListenerLost", "ListenerRestored"])])
async def test_a_connection_that_cannot_be_opened_twice_is_reported_once_and_its_return_too(
    refusals: int, told: list[str]
) -> None:
    listener, events, connection = ChangeListener(), list[Event](), RefusedConnection(refusals)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(listener.follow, connection.open, chance=Random(1), emit=events.append))
        await nursery.start(partial(listener.listen, "jobs", lambda: None, own=True))
        await until(lambda: connection.refusals == -1 and len(events) >= len(told))
        nursery.cancel_scope.cancel()

    assert [type(event).__name__ for event in events] == told


async def test_what_others_announced_is_kept_when_counting_a_later_channel_fails(file: Path) -> None:
    others = set[str]()
    with closing(sqlite3.connect(file, isolation_level=None)) as driver:
        driver.execute("CREATE TABLE flags (name TEXT PRIMARY KEY, value TEXT, changed_at INTEGER)")
        ChannelCounters(file).add(driver, ["jobs"], set())
        driver.execute(
            "CREATE TRIGGER full BEFORE INSERT ON flags WHEN NEW.name LIKE '%feeds' "
            "BEGIN SELECT RAISE(FAIL, 'disk is full'); END"
        )
        with pytest.raises(sqlite3.Error, match="disk is full"):
            ChannelCounters(file).add(driver, ["jobs", "feeds"], others)

    assert others == {"jobs"}


async def test_many_announcements_are_looked_at_at_most_ten_times_a_second(
    file: Path, monkeypatch: pytest.MonkeyPatch, still_clock: MockClock
) -> None:
    looks, heard, url = counted_looks(monkeypatch), Heard(), f"sqlite:///{file}"
    async with (
        serving(gateway(url)) as other,
        serving(gateway(url), with_notes=False) as database,
        listening(database, heard, "jobs"),
    ):
        still_clock.jump(1.0)
        await wait_all_tasks_blocked()
        looks.clear()
        for _ in range(50):
            await other.run(announcing("jobs"))
            await wait_all_tasks_blocked()
            still_clock.jump(0.02)
        still_clock.jump(1.0)
        await wait_all_tasks_blocked()

    apart = [later - earlier for earlier, later in pairwise(looks)]
    assert min(apart) >= change_listener.LOOK_S - 1e-9
    assert 1 <= heard.counts["jobs of others"] <= len(looks) <= 12


async def test_a_file_that_is_locked_while_it_is_looked_at_is_looked_at_again(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard, url = Heard(), f"sqlite:///{file}"
    async with (
        serving(gateway(url)) as other,
        serving(gateway(url), with_notes=False) as database,
        listening(database, heard, "jobs"),
    ):
        look = ChannelCounters.look
        failed: list[sqlite3.Error] = []

        def locked_once(counters: ChannelCounters, driver: sqlite3.Connection) -> set[str]:
            if not failed:
                failed.append(error_of("database is locked", sqlite3.SQLITE_BUSY))
                raise failed[0]
            return look(counters, driver)

        monkeypatch.setattr(ChannelCounters, "look", locked_once)
        await other.run(announcing("jobs"))
        await heard.until("jobs of others", 1)

    assert failed


async def test_a_callback_may_end_another_while_both_are_called() -> None:
    changes, heard = ChangeListener(), Heard()
    scopes = [trio.CancelScope(), trio.CancelScope()]

    async def listen(number: int, task_status: trio.TaskStatus[None]) -> None:
        def hear() -> None:
            heard(str(number))
            scopes[1 - number].cancel()

        with scopes[number]:
            await changes.listen("jobs", hear, own=True, task_status=task_status)

    async with trio.open_nursery() as nursery:
        for number in range(2):
            await nursery.start(listen, number)
        changes.deliver({"jobs"}, ())
        await wait_all_tasks_blocked()
        changes.deliver({"jobs"}, ())

    assert heard.counts["0"] == 1
    assert sum(heard.counts.values()) <= 2


async def test_who_was_cancelled_is_not_called_any_more(url: str) -> None:
    heard = Heard()
    async with serving(gateway(url)) as database:
        async with listening(database, heard, "jobs"):
            pass
        heard.counts.clear()
        await database.run(announcing("jobs"))

    assert heard.counts == {}


async def test_a_file_is_complete_when_its_gateway_has_stopped(file: Path) -> None:
    heard, url = Heard(), f"sqlite:///{file}"
    async with serving(gateway(url)) as database, trio.open_nursery() as nursery:
        await nursery.start(database.listen, "open", partial(heard, "open"))
        await heard.until("open", 1)
        await database.run(announcing("jobs"))
        database.stop()
        await trio.sleep_until(trio.current_time())
        nursery.cancel_scope.cancel()

    assert not file.with_name(f"{file.name}-wal").exists()


async def test_a_gateway_that_is_stopped_and_started_hears_others_again(url: str) -> None:
    heard = Heard()
    database = gateway(url)
    async with trio.open_nursery() as nursery:
        await nursery.start(database.listen, "jobs", partial(heard, "jobs"))
        for count in (1, 2):
            async with serving(database):
                await heard.until("jobs", count)
        nursery.cancel_scope.cancel()

    assert heard.counts == {"jobs": 2}


def test_a_file_system_of_a_network_is_not_watched(file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file.touch()
    device = file.stat().st_dev
    mounts = tmp_path / "mountinfo"
    monkeypatch.setattr(file_watch, "MOUNTS", mounts)
    line = f"36 35 {os.major(device)}:{os.minor(device)} / /mnt rw,noatime shared:1 - {{}} source rw\n"
    found = {}
    for kind in ("nfs4", "fuse.sshfs", "ext4", "overlay"):
        mounts.write_text(line.format(kind))
        watched = file_watch.watch(file)
        found[kind] = watched is not None
        if watched is not None:
            watched.close()

    assert found == {"nfs4": False, "fuse.sshfs": False, "ext4": True, "overlay": True}


def test_a_file_is_not_watched_where_there_is_no_inotify_or_no_watch_left(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.touch()
    monkeypatch.setattr(sys, "platform", "darwin")
    assert file_watch.watch(file) is None
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(file_watch, "_libc", NoneLeft)
    assert file_watch.watch(file) is None


class NoneLeft:
    """A system whose limit of watches is reached."""

    def inotify_init1(self, flags: int) -> int:
        return os.open(os.devnull, os.O_RDONLY)

    def inotify_add_watch(self, descriptor: int, path: bytes, events: int) -> int:
        return -1
