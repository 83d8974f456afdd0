"""Who is told to stop, and by what? SIGINT and SIGTERM: the first asks, the second ends the process at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

import trio

from cormorant.cli.words import EXIT_FAILED

__all__ = ["StopSignals"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopSignals:
    """While entered, the first signal calls `ask` in the loop, the second calls `last_words` and exits with code 1.

    Plain handlers and not `trio.open_signal_receiver`: whoever sends a second signal may do so because the loop is
    stuck, and then no task of it would ever see the signal. For the same reason the end is `os._exit`: threads that
    hang in the database or in a stream would hold up any other.
    """

    def __init__(self, ask: Callable[[], object], *, last_words: Callable[[], object]) -> None:
        self.ask = ask
        self._last_words = last_words
        self._asked = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        self._token = trio.lowlevel.current_trio_token()
        self._before = {number: signal.signal(number, self._handle) for number in _SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        if not self._asked:
            self._asked = True
            self._token.run_sync_soon(self.ask)
            return
        # Not print: the signal may have interrupted one half-way, and a stream is not re-entrant.
        os.write(2, b"\nstopped at once by a second signal\n")
        self._last_words()
        os._exit(EXIT_FAILED)
