"""WorkerLocks: a lock on a file of each process, so that the others know at once when it is dead. SQLite only.

The system frees the lock when the process ends, however it ends. A process that is frozen keeps it.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from attrs import define, field

from storage.engine.data_files import FILE_MODE, create_file, folder_mode, make_folder

NAME_LENGTH_MAX: Final = 200
OLD_S: Final = 3_600.0
"""A younger file may belong to a process that is about to register."""


@define(eq=False)
class WorkerLocks:
    """The locks of the processes that share a database file. All methods block for a moment."""

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
            create_file(self._path(worker_id), mode=self.file_mode)
            number = os.open(self._path(worker_id), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
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


def _is_free(path: Path) -> bool:
    """Whether a file is there and nobody holds its lock."""
    try:
        number = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        return _try_lock(number)
    finally:
        os.close(number)


def _try_lock(number: int) -> bool:
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
