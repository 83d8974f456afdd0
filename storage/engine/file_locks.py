"""Locks on files beside a SQLite database: fair write turns between processes, and a lock that shows that a worker lives."""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final

from attrs import define, field

from storage.engine.data_files import FILE_MODE, create_file, folder_mode, make_folder

FIRST_NAP_S = 0.000_05
LONGEST_NAP_S = 0.001
NAME_LENGTH_MAX: Final = 200
OLD_S: Final = 3_600.0
"""A younger file may belong to a process that is about to register."""


class WriteTurn:
    """Fair turns among the processes that write to `database`, by two lock files beside it.

    SQLite itself only lets a writer try again and again, and a busy neighbour always wins. Two locks make a fair line:
    whoever wants to write takes *queue*, then *write*, gives *queue* back, commits and gives *write* back. The one who just
    wrote cannot overtake the one who holds *queue*.

    Invariant: the turn is a courtesy, SQLite's own lock is the safety. So a turn that cannot be had in time is done without:
    a process that was stopped with a lock in its hand must not stop its neighbours.
    """

    def __init__(self, database: Path, *, patience_s: float, file_mode: int = FILE_MODE) -> None:
        self._queue = _created(database.with_name(f"{database.name}-queue"), file_mode)
        self._write = _created(database.with_name(f"{database.name}-turn"), file_mode)
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
        queued = queued or _lock_until(self._queue, give_up_at)
        self._is_patient = queued and _lock_until(self._write, give_up_at)


@define(eq=False)
class WorkerLocks:
    """A lock on a file of each process that shares a database, so that the others know at once when it is dead.

    The system frees the lock when the process ends, however it ends. A process that is frozen keeps it. All methods block
    for a moment.
    """

    folder: Path | None
    """None: a file tells nothing, because the database is a server or in memory."""
    file_mode: int = FILE_MODE
    _held: dict[str, int] = field(init=False, factory=dict)
    _released: set[str] = field(init=False, factory=set)

    def hold(self, worker_id: str) -> None:
        """Hold the lock of a worker of this process until it is released or the process ends.

        A file system without locks is no error: silence shows the death of a process as well, only later.
        """
        if self.folder is None or worker_id in self._held or self.folder.is_symlink():
            return
        with suppress(OSError):
            make_folder(self.folder, mode=folder_mode(self.file_mode))
            number = _created(self._path(worker_id), self.file_mode)
            if _try_lock(number) and not self._is_free(worker_id):
                self._held[worker_id] = number
                self._released.discard(worker_id)
                return
            os.close(number)
            self._path(worker_id).unlink(missing_ok=True)  # without its file nothing is known of the worker

    def release(self, worker_id: str) -> None:
        """Release the lock of a worker of this process: it works no more, and the others see that at once."""
        self._released.add(worker_id)
        number = self._held.pop(worker_id, None)
        if number is not None:
            os.close(number)

    def dead_among(self, worker_ids: Iterable[str]) -> list[str]:
        """Those that surely work no more: their file is there and nobody holds its lock, or this process released it."""
        return [
            each for each in worker_ids if each in self._released or (each not in self._held and self._is_free(each))
        ]

    def forget(self, worker_id: str) -> None:
        """Remove the file of a worker that works no more, and release its lock."""
        self.release(worker_id)
        self._released.discard(worker_id)
        if self.folder is not None:
            with suppress(OSError):
                self._path(worker_id).unlink(missing_ok=True)

    def remove_old(self, known: Collection[str]) -> None:
        """Remove the files of workers that are not known: their process ended before it registered, or after it was forgotten."""
        if self.folder is None:
            return
        kept = {self._path(worker_id) for worker_id in known}
        with suppress(OSError):
            for path in self.folder.glob("*.lock"):
                is_old = time.time() - path.stat().st_mtime > OLD_S
                if is_old and path not in kept and _is_free(path):
                    path.unlink(missing_ok=True)

    def _is_free(self, worker_id: str) -> bool:
        return self.folder is not None and _is_free(self._path(worker_id))

    def _path(self, worker_id: str) -> Path:
        assert self.folder is not None
        return self.folder / f"{re.sub(r'[^A-Za-z0-9._-]', '_', worker_id)[-NAME_LENGTH_MAX:]}.lock"


def _created(path: Path, mode: int) -> int:
    create_file(path, mode=mode)
    return _open(path)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)


def _is_free(path: Path) -> bool:
    """Whether a file is there and nobody holds its lock."""
    try:
        number = _open(path)
    except OSError:
        return False
    try:
        return _try_lock(number)
    finally:
        os.close(number)


def _try_lock(file: int) -> bool:
    """Whether the lock was had. A file system without locks gives none."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _lock_until(file: int, give_up_at: float) -> bool:
    nap_s = FIRST_NAP_S
    while not _try_lock(file):
        if time.monotonic() >= give_up_at:
            return False
        time.sleep(nap_s)
        nap_s = min(nap_s * 2, LONGEST_NAP_S)
    return True
