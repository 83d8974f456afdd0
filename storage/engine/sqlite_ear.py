"""How does a process notice that another one has written to a SQLite file?"""

from __future__ import annotations

import sqlite3

from storage.engine.calls import DatabaseAway


class SqliteListener:
    """A connection of its own that sees the file's version change when another one commits."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._version = self._look()

    def fileno(self) -> int | None:
        """A file does not tell."""
        return None

    def has_heard(self) -> bool:
        """Whether anybody has committed."""
        before, self._version = self._version, self._look()
        return before != self._version

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _look(self) -> int:
        try:
            version: int = self._connection.execute("PRAGMA data_version").fetchone()[0]
        except sqlite3.Error as error:
            raise DatabaseAway(str(error)) from error
        return version
