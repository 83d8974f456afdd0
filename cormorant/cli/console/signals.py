"""SIGINT and SIGTERM. Loads little, so that a signal during the start is handled."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType

from cormorant.cli.console.output import attempt, leave, write

__all__ = ["StopSignals"]

_FORCED_S = 0.6
"""How long the end by force waits for last words."""


class StopSignals:
    """Once installed, the first signal calls `ask`, the second calls `last_words` and exits with code 1.

    While there is nobody to ask, nothing has been started: the first signal exits with code 0. The handlers stay to the
    end of the process, which may be held up by a stream or a database until its very last line.

    Plain handlers and not `trio.open_signal_receiver`: whoever sends a second signal may do so because the loop is
    stuck, and then no task of it would ever see the signal. For the same reason the process is left at once: threads
    that hang in the database or in a stream would hold up any other end.
    """

    def __init__(self) -> None:
        self.ask: Callable[[], object] | None = None
        self.last_words: Callable[[], object] | None = None
        self._heard = 0

    def install(self) -> None:
        """Mind the signals from now on."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._handle)

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        self._heard += 1
        if self._heard > 1:
            self._end_by_force()
        elif self.ask:
            self.ask()
        else:
            self._end_before_the_start()

    def _end_before_the_start(self) -> None:
        try:
            write("stopped before it was ready", within_s=_FORCED_S)
        finally:
            leave(0)

    def _end_by_force(self) -> None:
        try:
            if self._heard == 2:  # noqa: PLR2004 - a third one does not wait for the second
                attempt(self._write_last_line, within_s=_FORCED_S)
        finally:
            leave(1)

    def _write_last_line(self) -> None:
        write("\nstopped at once by a second signal", err=True, within_s=_FORCED_S)
        if self.last_words:
            self.last_words()
