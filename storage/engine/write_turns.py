"""Fair write turns between processes on one SQLite file.

SQLite itself only lets a writer try again and again, and a busy neighbour always wins. Two locks make a fair line:
whoever wants to write takes *queue*, then *write*, gives *queue* back, commits and gives *write* back. The one who just
wrote cannot overtake the one who holds *queue*.

Invariant: the turn is a courtesy, SQLite's own lock is the safety. So a turn that cannot be had in time is done without:
a process that was stopped with a lock in its hand must not stop its neighbours.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from types import TracebackType
from typing import Protocol

from storage.engine.data_files import FILE_MODE, create_file

FIRST_NAP_S = 0.000_05
LONGEST_NAP_S = 0.001


class WriteTurn(Protocol):
    """Entered before a write transaction begins, left after it ended."""

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def close(self) -> None:
        """No more turns will be taken."""
        ...


class NoWriteTurn:
    """For a database that nobody shares."""

    def __enter__(self) -> None:
        """Nothing to wait for."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing to give back."""

    def close(self) -> None:
        """Nothing to close."""


class FileWriteTurn:
    """Fair turns among the processes that write to `database`, by two lock files beside it."""

    def __init__(self, database: Path, *, patience_s: float, file_mode: int = FILE_MODE) -> None:
        self._queue = _open(database.with_name(f"{database.name}-queue"), file_mode)
        self._write = _open(database.with_name(f"{database.name}-turn"), file_mode)
        self._patience_s = patience_s
        self._is_patient = True

    def __enter__(self) -> None:
        # Alone, both locks are had at once; this is the path that must cost nothing.
        queued = _try_lock(self._queue)
        if queued and _try_lock(self._write):
            self._is_patient = True
        else:
            self._wait(queued=queued)
        fcntl.flock(self._queue, fcntl.LOCK_UN)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        fcntl.flock(self._write, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the lock files. They stay: removing one while a neighbour opens it would make two of them."""
        os.close(self._queue)
        os.close(self._write)

    def _wait(self, *, queued: bool) -> None:
        # After one turn that could not be had, the next ones are tried only once, or a stopped neighbour would cost
        # the whole patience at every transaction.
        give_up_at = time.monotonic() + (self._patience_s if self._is_patient else 0.0)
        queued = queued or _lock(self._queue, give_up_at)
        self._is_patient = queued and _lock(self._write, give_up_at)


def _open(path: Path, mode: int) -> int:
    create_file(path, mode=mode)
    return os.open(path, os.O_RDWR | os.O_CLOEXEC)


def _try_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _lock(file: int, give_up_at: float) -> bool:
    nap_s = FIRST_NAP_S
    while not _try_lock(file):
        if time.monotonic() >= give_up_at:
            return False
        time.sleep(nap_s)
        nap_s = min(nap_s * 2, LONGEST_NAP_S)
    return True
