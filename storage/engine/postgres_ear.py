"""How does a process hear what PostgreSQL tells it?"""

from __future__ import annotations

from typing import Any

import psycopg

from storage.engine.calls import DatabaseAway


class PostgresListener:
    """A connection of its own that listens to a channel."""

    def __init__(self, connection: psycopg.Connection[Any], channel: str) -> None:
        self._connection = connection
        self._connection.execute(f'LISTEN "{channel}"'.encode())

    def fileno(self) -> int | None:
        """Its socket."""
        return self._connection.fileno()

    def has_heard(self) -> bool:
        """Whether a notice came in; all that wait are one."""
        try:
            self._connection.pgconn.consume_input()
        except psycopg.OperationalError as error:
            raise DatabaseAway(str(error)) from error
        heard = False
        while self._connection.pgconn.notifies() is not None:
            heard = True
        return heard

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
