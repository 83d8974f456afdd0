"""Fair turns between processes that write to one SQLite file, and what a stopped neighbour costs."""

from __future__ import annotations

import fcntl
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from storage.turns import FileTurn
from tests.storage.support import add_note, count_notes, gateway, serving

NEIGHBOUR = """
import sys, trio
from tests.storage.support import *

async def write_for_ever(database, first):
    for number in range(first, first + 1_000_000):
        await database.run(add_note, number)

async def main():
    async with serving(gateway(sys.argv[1]), with_notes=False) as database, trio.open_nursery() as nursery:
        for writer in range(16):
            nursery.start_soon(write_for_ever, database, (writer + 1) * 10_000_000)
        await trio.sleep(0.1)
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
    mine, theirs = FileTurn(file, patience_s=10), FileTurn(file, patience_s=10)

    for turn in (mine, theirs, mine):
        with turn:
            pass

    mine.close()
    theirs.close()


def test_whoever_waits_goes_before_the_one_who_just_wrote(file: Path) -> None:
    mine, theirs = FileTurn(file, patience_s=10), FileTurn(file, patience_s=10)
    order: list[str] = []
    waits = threading.Event()

    def take_theirs() -> None:
        waits.set()
        with theirs:
            order.append("theirs")

    neighbour = threading.Thread(target=take_theirs)
    with mine:
        neighbour.start()
        assert waits.wait(10)
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
    with suppress(BlockingIOError):
        while True:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.flock(opened, fcntl.LOCK_UN)
    os.close(opened)


@pytest.mark.parametrize("lock", ["notes.db-queue", "notes.db-turn"])
def test_a_stopped_neighbour_costs_patience_once(file: Path, lock: str) -> None:
    turn = FileTurn(file, patience_s=0.05)
    took_s = []

    with lock_held(file.with_name(lock)):
        for _ in range(3):
            started = time.monotonic()
            with turn:
                took_s.append(time.monotonic() - started)

    assert took_s[0] >= 0.05
    assert max(took_s[1:]) < 0.05
    turn.close()


def test_patience_comes_back_with_the_first_turn_that_is_had(file: Path) -> None:
    turn = FileTurn(file, patience_s=0.02)
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


@pytest.mark.slow("starts a process that writes beside us")
async def test_a_second_process_is_not_starved_by_a_busy_first(file: Path) -> None:
    url = f"sqlite:///{file}"
    waits_s = []

    async with serving(gateway(url)) as database:
        with busy_neighbour(url):
            before = await database.read(count_notes)
            for number in range(200):
                started = time.monotonic()
                await database.run(add_note, number)
                waits_s.append(time.monotonic() - started)
            theirs = await database.read(count_notes) - before - len(waits_s)

    assert theirs > 200
    assert statistics.quantiles(waits_s, n=100)[98] < 0.25, "an order of magnitude over what the benchmark sees"


@pytest.mark.slow("starts a process and stops it in the middle of its work")
async def test_a_neighbour_that_is_stopped_holds_us_up_only_as_long_as_the_deadline(file: Path) -> None:
    url = f"sqlite:///{file}"

    async with serving(gateway(url, busy_timeout_s=0.1, hold_s=30)) as database:
        with busy_neighbour(url) as neighbour:
            neighbour.send_signal(signal.SIGSTOP)
            assert await database.read(count_notes) > 0
            neighbour.send_signal(signal.SIGKILL)
            await database.run(add_note, 1)
