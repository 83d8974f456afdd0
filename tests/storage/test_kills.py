"""What was acknowledged is still there, whoever is killed, at whatever moment."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import NullPool, create_engine

from tests.postgres import PostgresServer
from tests.storage.support import create_notes, note_numbers

KILLS = 20


class Writer:
    """The process that writes, and what it says."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.acknowledged: set[int] = set()
        self.pid = 0

    def start(self) -> None:
        """Begin to write."""
        assert self._process.stdin is not None
        self._process.stdin.write("start\n")
        self._process.stdin.flush()

    def hear(self, acknowledgements: int) -> None:
        """Listen until this many more were acknowledged."""
        wanted = len(self.acknowledged) + acknowledgements
        while len(self.acknowledged) < wanted or not self.pid:
            assert self._hear_one()

    def kill(self) -> None:
        """End it without a warning, and hear what it still had to say."""
        os.kill(self.pid, signal.SIGKILL)
        while self._hear_one():
            pass
        self.pid = 0

    def _hear_one(self) -> bool:
        assert self._process.stdout is not None
        match self._process.stdout.readline().split():
            case ["ack", number]:
                self.acknowledged.add(int(number))
            case ["pid", number]:
                self.pid = int(number)
            case said:
                assert said == ["ended"], said
                return False
        return True


@contextmanager
def writer(url: str) -> Iterator[Writer]:
    with subprocess.Popen(
        [sys.executable, "-m", "tests.storage.killed_writer", url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield Writer(process)


def prepare(url: str) -> None:
    with create_engine(url, poolclass=NullPool).begin() as connection:
        create_notes(connection)


def present(url: str) -> set[int]:
    with create_engine(url, poolclass=NullPool).connect() as connection:
        return set(note_numbers(connection))


def kill_again_and_again(url: str) -> None:
    chance = random.Random(20)
    prepare(url)
    with writer(url) as killed:
        for _ in range(KILLS):
            killed.start()
            killed.hear(chance.randint(1, 150))
            killed.kill()

            assert killed.acknowledged <= present(url)


@pytest.mark.slow("kills a process twenty times")
def test_what_sqlite_acknowledged_survives_the_death_of_the_process(tmp_path: Path) -> None:
    kill_again_and_again(f"sqlite:///{tmp_path}/notes.db")


@pytest.mark.slow("kills a process twenty times")
def test_what_postgres_acknowledged_survives_the_death_of_the_process(postgres_url: str) -> None:
    kill_again_and_again(postgres_url)


@pytest.mark.slow("crashes a server of its own, which then recovers")
def test_what_postgres_acknowledged_survives_a_crash_of_the_server() -> None:
    with PostgresServer(fsync=True) as server:
        url = server.create_database()
        prepare(url)
        with writer(url) as survivor:
            survivor.start()
            survivor.hear(200)
            server.restart("immediate")
            survivor.hear(1)
            survivor.kill()

            assert survivor.acknowledged <= present(url)
