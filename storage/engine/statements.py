"""FastStatement (hot statements straight to the driver), SKIP LOCKED, and running a statement in pages."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Column, Connection, TextClause, delete, select, text, tuple_
from sqlalchemy.exc import DBAPIError

from storage.database import Database
from storage.engine.calls import ANNOUNCED
from storage.engine.sqlite_session import GuardedSqliteConnection

_NAME: Final = re.compile(r":(\w+)")


class FastStatement:
    """One statement with `:names`, run with a value for each in the order in which they are written.

    Given to SQLite's own driver by position, to other databases through SQLAlchemy.
    """

    __slots__ = ("_names", "_sql", "_statement")

    def __init__(self, sql: str) -> None:
        self._sql = _NAME.sub("?", sql)
        self._names = tuple(_NAME.findall(sql))
        self._statement = text(sql)

    def change(self, connection: Connection, values: Sequence[Any]) -> int:
        """Change rows and say how many."""
        cursor = self._on_sqlite(connection, values)
        if cursor is not None:
            return cursor.rowcount
        changed: int = connection.execute(self._statement, self._named(values)).rowcount
        return changed

    def change_many(self, connection: Connection, rows: Sequence[Sequence[Any]]) -> None:
        """Change rows, once for each of these."""
        if rows and self._on_sqlite(connection, rows, many=True) is None:
            connection.execute(self._statement, [self._named(values) for values in rows])

    def first(self, connection: Connection, values: Sequence[Any]) -> tuple[Any, ...] | None:
        """The first row, by position; None: there is none."""
        cursor = self._on_sqlite(connection, values)
        if cursor is not None:
            row: tuple[Any, ...] | None = cursor.fetchone()
            return row
        found = connection.execute(self._statement, self._named(values)).first()
        return None if found is None else tuple(found)

    def rows(self, connection: Connection, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """All rows, by position."""
        cursor = self._on_sqlite(connection, values)
        if cursor is not None:
            return cursor.fetchall()
        return [tuple(row) for row in connection.execute(self._statement, self._named(values))]

    def _named(self, values: Sequence[Any]) -> dict[str, Any]:
        return dict(zip(self._names, values, strict=True))

    def _on_sqlite(self, connection: Connection, values: Sequence[Any], *, many: bool = False) -> sqlite3.Cursor | None:
        """Run it on SQLite's own driver. None: it is another database."""
        driver: object = connection.connection.dbapi_connection  # `driver_connection` is the same, the long way round
        if not isinstance(driver, sqlite3.Connection):
            return None
        try:
            return driver.executemany(self._sql, values) if many else driver.execute(self._sql, values)
        except sqlite3.Error as error:
            raise self._told(connection, driver, error) from error

    def _told(self, connection: Connection, driver: sqlite3.Connection, error: sqlite3.Error) -> Exception:
        """As SQLAlchemy would tell it, and noted as `note_destroyers` would."""
        told = DBAPIError.instance(self._sql, None, error, sqlite3.Error, dialect=connection.dialect)
        if isinstance(driver, GuardedSqliteConnection):
            driver.note(told)
        return told


PAGE = 1_000


async def in_pages(
    database: Database, change: Callable[..., Sequence[int]], tell: Callable[[int], object] = lambda _: None
) -> int:
    """Call `change` until it finds nothing more after the last id; `tell` hears of each page. Returns how many in all."""
    total = after = 0
    while changed := await database.run(change, limit=PAGE, after=after):
        total += len(changed)
        after = changed[-1]
        tell(len(changed))
    return total


def prune(connection: Connection, time: Column[Any], *, before: datetime, limit: int) -> int:
    """Delete the rows of a table that have an earlier time in a column, oldest first. Returns how many."""
    key = time.table.primary_key.columns
    oldest = select(*key).where(time < before).order_by(time).limit(limit)
    pruned: int = connection.execute(delete(time.table).where(tuple_(*key).in_(oldest))).rowcount
    return pruned


def announce(connection: Connection, channel: str, *, own: bool = True) -> None:
    """Let all who listen to a channel look when this transaction commits; without `own` only in other processes."""
    channels: dict[str, bool] = connection.info.setdefault(ANNOUNCED, {})
    channels[channel] = own or channels.get(channel, False)


SKIP_LOCKED: Final = "FOR UPDATE SKIP LOCKED"


def skip_locked(connection: Connection, sql: str) -> TextClause:
    """A statement that goes past rows which another holds, where its text says `{lock}`. SQLite has one writer, and no need."""
    return text(sql.format(lock=SKIP_LOCKED if connection.dialect.name == "postgresql" else ""))
