"""Runs migrations in order and records them. The dialect holds the lock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Protocol

from attrs import frozen
from sqlalchemy import Connection, MetaData
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from cormorant.rules.errors import MigrationFailed
from storage.engine.schema import MIGRATIONS_TABLE

if TYPE_CHECKING:
    from alembic.operations import Operations


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


@frozen(kw_only=True)
class Migrated:
    """What a run of the migrations did."""

    from_version: int
    to_version: int
    backup: str | None = None


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
