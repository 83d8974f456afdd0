"""Copies everything into another database and verifies it by hashes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import cache
from typing import Any, Final

from attrs import frozen
from sqlalchemy import Connection, MetaData, Select, Table, Text, TypeDecorator, func, inspect, select, text
from sqlalchemy.exc import DBAPIError

from cormorant.rules.errors import CormorantError, DatabasePreRelease
from storage.engine.dialect import Dialect, dialect_for
from storage.engine.options import StorageOptions
from storage.engine.schema import mark_finished, mark_unfinished
from storage.migrations import MIGRATIONS
from storage.tables import METADATA

__all__ = ["PAGE", "CopiesDiffer", "CopyFailed", "CopyReport", "TargetNotEmpty", "copy_all", "own_tables"]

PAGE: Final = 500

Tell = Callable[[str, int, int], object]
"""Called with a table, the rows of it that are done, and how many there are."""


class TargetNotEmpty(CormorantError):
    """There is something in the database that is to be filled."""


class CopyFailed(CormorantError):
    """One of the databases did not do its part. Nothing was kept of it."""


class CopiesDiffer(CormorantError):
    """What was written is not what was read. Nothing was kept of it."""


@frozen(kw_only=True)
class CopyReport:
    """One table that was copied: how many rows, and the hash that both sides have."""

    table: str
    rows: int
    sha256: str


@cache
def own_tables() -> tuple[Table, ...]:
    """All tables but the record of the migrations, which every database has of its own. Values are copied as they are stored."""
    plain = MetaData()
    tables = [table.to_metadata(plain) for _, table in sorted(METADATA.tables.items())]
    for column in (column for table in tables for column in table.columns):
        if isinstance(column.type, TypeDecorator):
            column.type = column.type.impl_instance
    return tuple(tables)


def copy_all(source: str, target: str, *, now: Callable[[], datetime], tell: Tell) -> list[CopyReport]:
    """Copy every table of ours into an empty database. Blocks. The source is only read, in one view of everything.

    From the first step to the last the target is marked, so that nobody takes what a kill left for a database.

    Raises `TargetNotEmpty`, `CopiesDiffer`, and what opening either raises.
    """
    tables = own_tables()
    old, new = dialect_for(StorageOptions(url=source)), dialect_for(StorageOptions(url=target))
    try:
        _begin(new, tables, now)
        with old.looking() as reading, new.filling() as writing:
            _refuse_filled(writing, tables)
            copied = [_copied(reading, writing, table, tell) for table in tables]
            mark_finished(writing)
            return copied
    finally:
        old.dispose()
        new.dispose()


def _begin(new: Dialect, tables: Sequence[Table], now: Callable[[], datetime]) -> None:
    """Make the tables and mark the target. One that is marked already is one where we did not come to the end."""
    state = new.inspect(MIGRATIONS)
    if state.is_pre_release:
        raise DatabasePreRelease
    if state.is_unfinished:
        with new.filling() as writing:
            mark_finished(writing)
    new.prepare(MIGRATIONS, now)
    with new.filling() as writing:
        _refuse_filled(writing, tables)
        mark_unfinished(writing, now=now())


def _refuse_filled(connection: Connection, tables: Sequence[Table]) -> None:
    filled = [table.name for table in tables if connection.execute(select(table).limit(1)).first() is not None]
    if filled:
        raise TargetNotEmpty(f"it has rows already, in {', '.join(filled)}; name an empty database")


def _copied(reading: Connection, writing: Connection, table: Table, tell: Tell) -> CopyReport:
    try:
        return _copy(reading, writing, table, tell)
    except DBAPIError as error:
        raise CopyFailed(f"{table.name} could not be copied: {error.orig}") from error


def _copy(reading: Connection, writing: Connection, table: Table, tell: Tell) -> CopyReport:
    columns = sorted(column.name for column in table.columns)
    total = reading.execute(select(func.count()).select_from(table)).scalar_one()
    read, done = hashlib.sha256(), 0
    for page in _pages(reading, table, columns):
        for row in page:
            read.update(_line(row))
        writing.execute(table.insert(), [dict(zip(columns, row, strict=True)) for row in page])
        done += len(page)
        tell(table.name, done, total)
    _carry_counter(reading, writing, table)
    written, there = hashlib.sha256(), 0
    for page in _pages(writing, table, columns):
        for row in page:
            written.update(_line(row))
        there += len(page)
    if (done, read.digest()) != (there, written.digest()):
        what = (
            f"{table.name}: {done} rows were read, {there} written, hashes {'equal' if done == there else 'not equal'}"
        )
        raise CopiesDiffer(f"{what}; nothing was kept in the target, and the source is as it was")
    return CopyReport(table=table.name, rows=done, sha256=read.hexdigest())


def _pages(connection: Connection, table: Table, columns: Sequence[str]) -> Iterator[Sequence[Sequence[Any]]]:
    rows = connection.execute(_ordered(connection, table, columns), execution_options={"yield_per": PAGE})
    yield from rows.partitions()


def _ordered(connection: Connection, table: Table, columns: Sequence[str]) -> Select[Any]:
    """All rows in an order that both kinds of databases share: text by its bytes."""
    is_postgres = connection.dialect.name == "postgresql"
    keys = [
        column.collate("C") if is_postgres and isinstance(column.type, Text) else column
        for column in table.primary_key.columns
    ]
    return select(*(table.c[name] for name in columns)).order_by(*keys)


def _line(row: Sequence[Any]) -> bytes:
    return json.dumps(list(row), ensure_ascii=True, separators=(",", ":")).encode() + b"\n"


def _carry_counter(reading: Connection, writing: Connection, table: Table) -> None:
    """Let the next number be the one it would have been: those of rows that are gone are not given again.

    Whether numbers are given is for the target to say: a table without a counter on one side may have one on the other.
    """
    if _counter(writing, table.name) is None:
        return
    last = max(_counter(reading, table.name) or 0, reading.execute(select(func.max(table.c.id))).scalar() or 0)
    if writing.dialect.name == "postgresql":
        if last:
            writing.execute(
                text("SELECT setval(pg_get_serial_sequence(:name, 'id'), :last)"), {"name": table.name, "last": last}
            )
        return
    writing.execute(text("DELETE FROM sqlite_sequence WHERE name = :name"), {"name": table.name})
    writing.execute(
        text("INSERT INTO sqlite_sequence (name, seq) VALUES (:name, :last)"), {"name": table.name, "last": last}
    )


def _counter(connection: Connection, name: str) -> int | None:
    """The last number that was given in a table; 0: none yet; None: it gives no numbers."""
    if connection.dialect.name == "postgresql":
        sequence = _sequence(connection, name)
        if sequence is None:
            return None
        # A name that the server itself has quoted.
        last = connection.execute(text(f"SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {sequence}"))  # noqa: S608 - see above
        return int(last.scalar_one())
    made = connection.execute(text("SELECT sql FROM sqlite_master WHERE name = :name"), {"name": name}).scalar_one()
    if "AUTOINCREMENT" not in made.upper():
        return None
    last = connection.execute(text("SELECT seq FROM sqlite_sequence WHERE name = :name"), {"name": name})
    return int(last.scalar() or 0)


def _sequence(connection: Connection, name: str) -> str | None:
    if "id" not in {column["name"] for column in inspect(connection).get_columns(name)}:
        return None
    found: str | None = connection.execute(text("SELECT pg_get_serial_sequence(:name, 'id')"), {"name": name}).scalar()
    return found
