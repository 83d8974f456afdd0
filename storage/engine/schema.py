"""The schema of a database: its version, whether this code can work with it, and the migrations that bring it up to date."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from attrs import evolve, frozen
from sqlalchemy import Column, Connection, Integer, MetaData, Table, inspect, select
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from cormorant.rules.errors import (
    CormorantError,
    DatabaseNeedsNewerCode,
    DatabasePreRelease,
    DatabaseUnfinished,
    MigrationFailed,
)
from storage.engine.columns import Micros, PlainText

if TYPE_CHECKING:
    from alembic.operations import Operations

MIGRATIONS_TABLE = Table(
    "migrations",
    MetaData(),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("name", PlainText, nullable=False),
    Column("min_code_version", Integer, nullable=False),
    Column("applied_at", Micros, nullable=False),
)


class Migration(Protocol):
    """A step: a module with these names."""

    @property
    def VERSION(self) -> int:  # noqa: N802 - a constant of the module
        """Its place in the order, from 1."""
        ...

    @property
    def NAME(self) -> str:  # noqa: N802 - a constant of the module
        """What it brings, in a word or two."""
        ...

    @property
    def MIN_CODE_VERSION(self) -> int:  # noqa: N802 - a constant of the module
        """The oldest code, by its schema version, that works with the database afterwards."""
        ...

    def upgrade(self, op: Operations) -> None:
        """Do it, in the transaction that is open."""
        ...


UNFINISHED = 0
"""The version under which it is noted that a copy was begun; the copy takes it away in the transaction that finishes it."""


@frozen(kw_only=True)
class SchemaState:
    """What was found by looking at a database. Version 0: nothing of ours is in it."""

    is_reachable: bool
    problem: str | None = None
    """Why it cannot be used as it is, with the remedy."""
    schema_version: int = 0
    min_code_version: int = 0
    code_version: int = 0
    is_unfinished: bool = False
    """Whether a copy into it was begun and not finished."""
    is_pre_release: bool = False
    """Whether it was made before the initial schema."""
    steps: tuple[Migration, ...] = ()
    """The migrations that a start would run, oldest first."""
    server_time: datetime | None = None
    """The clock of a PostgreSQL server."""

    @property
    def pending(self) -> tuple[str, ...]:
        """The steps by number and name."""
        return tuple(f"{step.VERSION:04} {step.NAME}" for step in self.steps)


def read_state(connection: Connection, migrations: Sequence[Migration]) -> SchemaState:
    """What the database says about itself. Looks only."""
    if not inspect(connection).has_table(MIGRATIONS_TABLE.name):
        return state_of((), migrations)
    columns = MIGRATIONS_TABLE.c
    applied = connection.execute(select(columns.version, columns.name, columns.min_code_version)).all()
    return state_of(applied, migrations)


def state_of(applied: Sequence[Any], migrations: Sequence[Migration]) -> SchemaState:
    """What follows from the rows of the migrations that were applied."""
    names = {row.version: row.name for row in applied}
    version = max(names, default=0)
    first = next((step for step in migrations if step.VERSION == 1), None)
    return SchemaState(
        is_reachable=True,
        schema_version=version,
        min_code_version=max((row.min_code_version for row in applied), default=0),
        code_version=max((step.VERSION for step in migrations), default=0),
        is_unfinished=UNFINISHED in names,
        # Before the initial schema the first step had another name.
        is_pre_release=first is not None
        and initial_tables(first) is not None
        and names.get(1) not in {None, first.NAME},
        steps=tuple(sorted((step for step in migrations if version < step.VERSION), key=lambda step: step.VERSION)),
    )


def read_usable(connection: Connection, migrations: Sequence[Migration]) -> SchemaState:
    """As `read_state`. Raises if the database is in a state that this code cannot work with. Newer alone is no harm."""
    state = read_state(connection, migrations)
    misfit = _misfit(state)
    if misfit is not None:
        raise misfit
    return state


def with_problem(state: SchemaState, *, server_time: datetime | None = None) -> SchemaState:
    """What to tell about a database that was looked at."""
    misfit = _misfit(state)
    return evolve(state, problem=None if misfit is None else str(misfit), server_time=server_time)


def _misfit(state: SchemaState) -> CormorantError | None:
    if state.is_unfinished:
        return DatabaseUnfinished()
    if state.is_pre_release:
        return DatabasePreRelease()
    have, needs = state.code_version, state.min_code_version
    return DatabaseNeedsNewerCode(needs=needs, have=have) if state.schema_version > have and needs > have else None


def mark_unfinished(connection: Connection, *, now: datetime) -> None:
    """Note that a copy into the database begins: until it is finished nobody else works with it."""
    row = {"version": UNFINISHED, "name": "a copy was begun", "min_code_version": 0, "applied_at": now}
    connection.execute(MIGRATIONS_TABLE.insert(), row)


def mark_finished(connection: Connection) -> None:
    """Note that nothing is half done any more."""
    connection.execute(MIGRATIONS_TABLE.delete().where(MIGRATIONS_TABLE.c.version == UNFINISHED))


def initial_tables(step: Migration) -> MetaData | None:
    """The tables of the initial step; None: the step changes a database that exists."""
    tables: MetaData | None = getattr(step, "TABLES", None)
    return tables


def apply(connection: Connection, pending: Sequence[Migration], *, now: datetime) -> None:
    """Run the steps in the open transaction. The caller has opened it, holds the lock and commits.

    A new database gets all tables of the initial step as they are declared now. So the later steps are done there already.
    """
    MIGRATIONS_TABLE.create(connection, checkfirst=True)
    tables = initial_tables(pending[0])
    if tables is not None:
        _run(pending[0], lambda: tables.create_all(connection, checkfirst=False))
    else:
        operations = _operations(connection)
        for step in pending:
            _run(step, partial(step.upgrade, operations))
    rows = [
        {"version": step.VERSION, "name": step.NAME, "min_code_version": step.MIN_CODE_VERSION, "applied_at": now}
        for step in pending
    ]
    connection.execute(MIGRATIONS_TABLE.insert(), rows)


def _operations(connection: Connection) -> Operations:
    # Loaded here because most starts have nothing to migrate, and Alembic takes longer to load than all else at a start.
    from alembic.operations import Operations  # noqa: PLC0415 - see above
    from alembic.runtime.migration import MigrationContext  # noqa: PLC0415 - see above

    return Operations(MigrationContext.configure(connection))


def _run(step: Migration, change: Callable[[], None]) -> None:
    try:
        change()
    except SQLAlchemyError as error:
        if isinstance(error, DBAPIError) and error.connection_invalidated:
            raise
        raise MigrationFailed(version=step.VERSION, name=step.NAME, why=str(error)) from error
