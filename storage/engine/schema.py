"""Migration, schema version and compatibility of a database."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from attrs import frozen
from sqlalchemy import Column, Connection, Integer, MetaData, Table, func, inspect, select

from cormorant.rules.errors import DatabaseNeedsNewerCode, DatabasePreRelease, DatabaseUnfinished
from storage.engine.columns import Micros, PlainText

if TYPE_CHECKING:
    from storage.migrations.runner import Migration

MIGRATIONS_TABLE = Table(
    "migrations",
    MetaData(),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("name", PlainText, nullable=False),
    Column("min_code_version", Integer, nullable=False),
    Column("applied_at", Micros, nullable=False),
)


@frozen(kw_only=True)
class Applied:
    """What the database says about itself. Version 0: nothing of ours is in it."""

    schema_version: int = 0
    min_code_version: int = 0
    is_unfinished: bool = False
    """Whether a copy into it was begun and not finished."""
    first_name: str = ""
    """The name of its first step."""


UNFINISHED = 0
"""The version under which it is noted that a copy was begun; the copy takes it away in the transaction that finishes it."""


@frozen(kw_only=True)
class SchemaState:
    """What was found by looking at a database, for `cormorant doctor`."""

    is_reachable: bool
    problem: str | None = None
    """Why it cannot be used as it is, with the remedy."""
    schema_version: int = 0
    min_code_version: int = 0
    code_version: int = 0
    is_unfinished: bool = False
    is_pre_release: bool = False
    """Whether it was made before the initial schema."""
    pending: tuple[str, ...] = ()
    """The migrations that a start would run, oldest first."""
    server_time: datetime | None = None
    """The clock of a PostgreSQL server."""


def read_applied(connection: Connection) -> Applied:
    """What was applied so far. Looks only."""
    if not inspect(connection).has_table(MIGRATIONS_TABLE.name):
        return Applied()
    columns = MIGRATIONS_TABLE.c
    newest = select(func.max(columns.version), func.max(columns.min_code_version), func.min(columns.version))
    version, min_code_version, oldest = connection.execute(newest).one()
    first = connection.execute(select(columns.name).where(columns.version == 1)).scalar_one_or_none()
    return Applied(
        schema_version=version or 0,
        min_code_version=min_code_version or 0,
        is_unfinished=oldest == UNFINISHED,
        first_name=first or "",
    )


def mark_unfinished(connection: Connection, *, now: datetime) -> None:
    """Note that a copy into the database begins: until it is finished nobody else works with it."""
    row = {"version": UNFINISHED, "name": "a copy was begun", "min_code_version": 0, "applied_at": now}
    connection.execute(MIGRATIONS_TABLE.insert(), row)


def mark_finished(connection: Connection) -> None:
    """Note that nothing is half done any more."""
    connection.execute(MIGRATIONS_TABLE.delete().where(MIGRATIONS_TABLE.c.version == UNFINISHED))


def code_version(migrations: Sequence[Migration]) -> int:
    """The schema version that this code was written for."""
    return max((migration.VERSION for migration in migrations), default=0)


def check_compatible(applied: Applied, migrations: Sequence[Migration]) -> None:
    """Raise if the database is in a state that this code cannot work with. Newer alone is no harm."""
    if applied.is_unfinished:
        raise DatabaseUnfinished
    if is_pre_release(applied, migrations):
        raise DatabasePreRelease
    have = code_version(migrations)
    if applied.schema_version > have and applied.min_code_version > have:
        raise DatabaseNeedsNewerCode(needs=applied.min_code_version, have=have)


def is_pre_release(applied: Applied, migrations: Sequence[Migration]) -> bool:
    """Whether the database was made before the initial schema, when the first step had another name."""
    first = next((step for step in migrations if step.VERSION == 1), None)
    is_ours = first is not None and getattr(first, "TABLES", None) is not None
    return is_ours and first is not None and applied.first_name not in {"", first.NAME}


def pending_after(applied: Applied, migrations: Sequence[Migration]) -> list[Migration]:
    """The migrations that are still to run, oldest first."""
    newer = (step for step in migrations if applied.schema_version < step.VERSION)
    return sorted(newer, key=lambda step: step.VERSION)


def describe(applied: Applied, migrations: Sequence[Migration], *, server_time: datetime | None = None) -> SchemaState:
    """What to tell about a database that was looked at."""
    problem = None
    try:
        check_compatible(applied, migrations)
    except (DatabaseNeedsNewerCode, DatabasePreRelease, DatabaseUnfinished) as cannot:
        problem = str(cannot)
    return SchemaState(
        is_reachable=True,
        problem=problem,
        schema_version=applied.schema_version,
        min_code_version=applied.min_code_version,
        code_version=code_version(migrations),
        is_unfinished=applied.is_unfinished,
        is_pre_release=is_pre_release(applied, migrations),
        pending=tuple(f"{step.VERSION:04} {step.NAME}" for step in pending_after(applied, migrations)),
        server_time=server_time,
    )
