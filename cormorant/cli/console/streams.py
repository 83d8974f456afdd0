"""How is something said when a stream may be closed, full or stuck? The words may get lost; nothing waits or fails for them.

Loads nothing but the standard library: signals are minded before the rest of the program is there.
"""

from __future__ import annotations

import _thread
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import NoReturn, TextIO

__all__ = ["attempt", "leave", "open_missing", "say"]

SAY_S = 1.0
"""How long a stream gets to take what is said."""


def open_missing() -> None:
    """Open nothing in place of a standard stream that is closed. A file of ours would get its number, and our words."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
    # Not its number: somebody may have been faster than we, and then it is a file of theirs.
    sys.stdout = sys.stdout or _nowhere()
    sys.stderr = sys.stderr or _nowhere()


def _nowhere() -> TextIO:
    return open(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8", closefd=False)


def say(text: str, *, err: bool = False, within_s: float = SAY_S) -> None:
    """Write lines to standard output, or to standard error, if they are taken in time."""
    stream = sys.stderr if err else sys.stdout
    attempt(partial(_write, stream, f"{text}\n"), within_s=within_s)


def _write(stream: TextIO | None, text: str) -> None:
    if stream is None:
        return
    try:
        number = stream.fileno()
    except (OSError, ValueError):  # in memory, as in tests and notebooks
        stream.write(text)
        stream.flush()
        return
    # Not through the stream: one that is stuck holds its lock, and Python's end would wait for it.
    left = text.encode(stream.encoding, "backslashreplace")
    while left:
        left = left[os.write(number, left) :]


def leave(code: int) -> NoReturn:
    """End the process now, all having been said."""
    # Python's own end would wait for a stream that is stuck, and has an exit code of its own for one that fails.
    os._exit(code)


def attempt(action: Callable[[], object], *, within_s: float) -> None:
    """Do something in a thread of its own and wait for it, but not for long. Streams that fail are no matter.

    A signal handler may call it: it takes no lock that the interrupted code may hold. `threading` would.
    """
    done = _thread.allocate_lock()
    done.acquire()

    def act() -> None:
        try:
            with suppress(OSError, ValueError):
                action()
        finally:
            done.release()

    with suppress(RuntimeError):  # no more threads to be had
        _thread.start_new_thread(act, ())
        done.acquire(timeout=within_s)
