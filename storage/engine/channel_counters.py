"""ChannelCounters: what was announced in a SQLite file, counted by channel."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Final

from attrs import define, field

PREFIX: Final = "announced "
"""The names of the counters in the table of flags."""


@define(eq=False)
class ChannelCounters:
    """Counts what this process announces in a file, and knows up to where the counters are accounted for.

    A counter rises with each transaction that announces its channel, in that transaction. The writer adds under SQLite's
    lock, so it knows exactly whether others have added since; readers need only look for what is above that.
    """

    path: Path
    _known: dict[str, int] = field(init=False, factory=dict)
    _added: dict[str, int] = field(init=False, factory=dict)
    """What the open transaction has added."""
    _lock: Lock = field(init=False, factory=Lock)

    def add(self, driver: sqlite3.Connection, channels: Iterable[str], others: set[str]) -> None:
        """Count announcements of the open transaction. Adds to `others` the channels that others have announced before it.

        What was added stays there if a later channel fails: it counts as known from now on.
        """
        for channel in channels:
            ((total,),) = driver.execute(_ADD, (PREFIX + channel,)).fetchall()
            # Before COMMIT: a look in between would count it as an announcement of another process.
            with self._lock:
                if self._known.get(channel, 0) != total - 1:
                    others.add(channel)
                self._known[channel] = self._added[channel] = total

    def undo_added(self) -> None:
        """The transaction did not commit, or nobody knows. Invariant: called before its lock is released, if it holds one."""
        with self._lock:
            self._known |= {channel: total - 1 for channel, total in self._added.items()}
        self._added.clear()

    def touch_file(self) -> None:
        """Let other processes look: the transaction has committed.

        A watch of the log would be too early: SQLite writes the log before COMMIT has succeeded.
        """
        if self._added:
            self._added.clear()
            with suppress(OSError):  # the file was removed
                os.utime(self.path)

    def forget(self) -> None:
        """Begin anew: it may be another file by now."""
        with self._lock:
            self._known.clear()

    def look(self, driver: sqlite3.Connection) -> set[str]:
        """The channels that others have announced since the last look."""
        totals = [(name.removeprefix(PREFIX), int(total)) for name, total in driver.execute(_READ)]
        with self._lock:
            risen = {channel: total for channel, total in totals if total > self._known.get(channel, 0)}
            self._known |= risen
        return set(risen)


_ADD = """
    INSERT INTO flags (name, value, changed_at) VALUES (?, '1', 0)
    ON CONFLICT (name) DO UPDATE SET value = CAST(value AS INTEGER) + 1 RETURNING CAST(value AS INTEGER)
"""
_READ = f"SELECT name, value FROM flags WHERE name > '{PREFIX}' AND name < '{PREFIX}~'"  # noqa: S608 - a constant
