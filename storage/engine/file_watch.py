"""FileWatch: becomes readable when a file is touched, moved or removed. By inotify, on Linux only."""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

ATTRIBUTES: Final = 0x4
MOVED: Final = 0x800
REMOVED: Final = 0x400
EVENTS_BYTES: Final = 65_536
"""What is read at once. Each event takes 16 bytes, because a watched file has no name in its events."""
MOUNTS = Path("/proc/self/mountinfo")
OF_ONE_MACHINE_ONLY: Final = frozenset({"9p", "afs", "ceph", "cifs", "nfs", "nfs4", "smb3", "smbfs", "virtiofs"})
"""File systems that another machine may write to as well, which inotify does not notice. As are all of FUSE."""


class FileWatch:
    """One watched file. Raises `OSError` where it cannot be watched."""

    def __init__(self, path: Path) -> None:
        if is_shared_between_machines(path):
            raise OSError(f"{path} is on a file system that other machines may write to")
        libc = _libc()
        self._descriptor: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            raise _last_error()
        if libc.inotify_add_watch(self._descriptor, os.fsencode(path), ATTRIBUTES | MOVED | REMOVED) < 0:
            error = _last_error()
            self.close()
            raise error

    def fileno(self) -> int:
        """What becomes readable."""
        return self._descriptor

    def clear(self) -> None:
        """Forget what has happened until now."""
        with suppress(BlockingIOError):
            while len(os.read(self._descriptor, EVENTS_BYTES)) == EVENTS_BYTES:
                pass

    def close(self) -> None:
        """Watch no more."""
        os.close(self._descriptor)


def watch(path: Path) -> FileWatch | None:
    """Watch a file; None where that is not possible: no Linux, no watch left, or a file system of a network."""
    try:
        return FileWatch(path)
    except OSError:
        return None


def is_shared_between_machines(path: Path) -> bool:
    """Whether the file system is one that another machine may write to, as far as the system tells."""
    device = path.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    with suppress(OSError):
        for line in MOUNTS.read_text(errors="replace").splitlines():
            mounted, _, kind = line.partition(" - ")
            if mounted.split()[2] == wanted:
                name = kind.split()[0]
                return name in OF_ONE_MACHINE_ONLY or name.startswith("fuse")
    return False


def _libc() -> ctypes.CDLL:
    if sys.platform != "linux":
        raise OSError("there is no inotify on this system")
    return ctypes.CDLL(None, use_errno=True)


def _last_error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
