"""Fair turns between processes that write to one SQLite file, and what a stopped neighbour costs."""

from __future__ import annotations

import fcntl
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import trio

from storage.engine import sqlite
from storage.engine.file_locks import WriteTurn
from tests.bounds import WAIT_S
from tests.storage.support import add_note, count_notes, gateway, serving

NEIGHBOUR = """
import sys, trio
from tests.storage.support import *

async def write_for_ever(database, first, task_status):
    await database.run(add_note, first)
    task_status.started()
    for number in range(first + 1, first + 1_000_000):
        await database.run(add_note, number)

async def main():
    async with serving(gateway(sys.argv[1]), with_notes=False) as database, trio.open_nursery() as nursery:
        for writer in range(16):
            await nursery.start(write_for_ever, database, (writer + 1) * 10_000_000)
        print("busy", flush=True)

trio.run(main)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "notes.db"


@contextmanager
def lock_held(path: Path) -> Iterator[None]:
    """A neighbour was stopped with this lock in its hand."""
    opened = os.open(path, os.O_RDWR | os.O_CREAT)
    fcntl.flock(opened, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(opened)


def test_alone_a_turn_is_had_at_once_and_leaves_no_lock(file: Path) -> None:
    mine, theirs = WriteTurn(file, patience_s=10), WriteTurn(file, patience_s=10)

    for turn in (mine, theirs, mine):
        with turn:
            pass

    mine.close()
    theirs.close()


def test_whoever_waits_goes_before_the_one_who_just_wrote(file: Path) -> None:
    mine, theirs = WriteTurn(file, patience_s=WAIT_S), WriteTurn(file, patience_s=WAIT_S)
    order: list[str] = []
    waits = threading.Event()

    def take_theirs() -> None:
        waits.set()
        with theirs:
            order.append("theirs")

    neighbour = threading.Thread(target=take_theirs)
    with mine:
        neighbour.start()
        assert waits.wait(WAIT_S)
        wait_until_locked(file.with_name("notes.db-queue"))
    with mine:
        order.append("mine")
    neighbour.join()

    assert order == ["theirs", "mine"]
    mine.close()
    theirs.close()


def wait_until_locked(path: Path) -> None:
    """Until the neighbour stands in the queue. There is no event for that between processes."""
    opened = os.open(path, os.O_RDWR)
    give_up_at = time.monotonic() + WAIT_S
    while time.monotonic() < give_up_at:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(opened)
            return
        fcntl.flock(opened, fcntl.LOCK_UN)
        time.sleep(0.001)
    pytest.fail(f"nobody locked {path.name}")


@pytest.fixture
def naps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Each time that somebody slept, waiting for a turn."""
    taken: list[float] = []
    sleep = time.sleep

    def nap(seconds: float) -> None:
        taken.append(seconds)
        sleep(seconds)

    monkeypatch.setattr("storage.engine.file_locks.time.sleep", nap)
    return taken


@pytest.mark.parametrize("lock", ["notes.db-queue", "notes.db-turn"])
def test_a_stopped_neighbour_costs_patience_once(file: Path, lock: str, naps: list[float]) -> None:
    turn = WriteTurn(file, patience_s=0.05)

    with lock_held(file.with_name(lock)):
        started = time.monotonic()
        with turn:
            took_s = time.monotonic() - started
        waited = len(naps)
        for _ in range(2):
            with turn:
                pass

    assert took_s >= 0.05
    assert len(naps) == waited > 0, "the later turns were tried once and not waited for"
    turn.close()


def test_patience_comes_back_with_the_first_turn_that_is_had(file: Path) -> None:
    turn = WriteTurn(file, patience_s=0.02)
    with lock_held(file.with_name("notes.db-turn")), turn:
        pass
    with turn:
        pass

    with lock_held(file.with_name("notes.db-turn")):
        started = time.monotonic()
        with turn:
            took_s = time.monotonic() - started

    assert took_s >= 0.02
    turn.close()


@contextmanager
def busy_neighbour(url: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([sys.executable, "-c", NEIGHBOUR, url], stdout=subprocess.PIPE, text=True) as neighbour:
        assert neighbour.stdout is not None
        assert neighbour.stdout.readline() == "busy\n"
        yield neighbour
        neighbour.kill()


async def test_the_gateway_stands_in_the_queue_and_goes_before_the_neighbour_who_just_wrote(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "TURN_PATIENCE_S", WAIT_S)
    neighbour = WriteTurn(file, patience_s=WAIT_S)

    async with (
        serving(gateway(f"sqlite:///{file}", busy_timeout_s=WAIT_S)) as database,
        trio.open_nursery() as nursery,
    ):
        with neighbour:
            nursery.start_soon(database.run, add_note, 1)
            await trio.to_thread.run_sync(wait_until_locked, file.with_name("notes.db-queue"))
            before = notes_in(file)
        with neighbour:
            after = notes_in(file)

    assert (before, after) == (0, 1)
    neighbour.close()


def notes_in(file: Path) -> int:
    """Looked at without a turn."""
    with closing(sqlite3.connect(file)) as connection:
        number: int = connection.execute("SELECT count(*) FROM notes").fetchone()[0]
        return number


@pytest.mark.slow("starts a process that writes beside us")
async def test_two_busy_processes_write_beside_each_other(file: Path) -> None:
    url = f"sqlite:///{file}"
    ours, theirs = 0, 0

    async with serving(gateway(url, hold_s=WAIT_S)) as database:
        with busy_neighbour(url), trio.fail_after(WAIT_S):
            before = await database.read(count_notes)
            while min(ours, theirs) < 200:
                await database.run(add_note, ours)
                ours += 1
                theirs = await database.read(count_notes) - before - ours


@pytest.mark.slow("starts a process and stops it in the middle of its work")
async def test_a_neighbour_that_is_stopped_holds_us_up_only_as_long_as_the_deadline(file: Path) -> None:
    url = f"sqlite:///{file}"

    async with serving(gateway(url, busy_timeout_s=0.1, hold_s=WAIT_S)) as database:
        with busy_neighbour(url) as neighbour:
            neighbour.send_signal(signal.SIGSTOP)
            assert await database.read(count_notes) > 0
            neighbour.send_signal(signal.SIGKILL)
            await database.run(add_note, 1)
