"""Opens, prepares and inspects PostgreSQL; LISTEN on its own connection."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from typing import Any

import psycopg
from psycopg import errors
from sqlalchemy import URL, Connection, NullPool, create_engine, func, select, text
from sqlalchemy.exc import DBAPIError

from cormorant.rules.errors import StorageMisconfigured
from cormorant.rules.secrets import redact_passwords
from storage.engine.calls import DatabaseAway
from storage.engine.options import StorageOptions
from storage.engine.postgres_session import GuardedPostgresConnection, PostgresSession, cause_of, is_refusal
from storage.engine.schema import SchemaState, check_compatible, describe, pending_after, read_applied
from storage.migrations.runner import Migrated, Migration, apply

MIGRATION_LOCK = 0x636F726D  # "corm": all processes of ours, and nobody else's by chance
CONNECT_TIMEOUT_S = 5

# A server whose machine is gone sends nothing; without these a call would wait for hours.
_ALIVE = {"keepalives": 1, "keepalives_idle": 5, "keepalives_interval": 3, "keepalives_count": 3}


class Postgres:
    """One database of a PostgreSQL server."""

    group_max = 1
    has_reader = False

    def __init__(self, url: URL, options: StorageOptions) -> None:
        if not url.database:
            raise StorageMisconfigured("the PostgreSQL URL names no database: postgresql://user@host/name")
        self._options = options
        self._engine = create_engine(
            url.set(drivername="postgresql+psycopg"), creator=self._connect, poolclass=NullPool, hide_parameters=True
        )
        self._was_ready = False

    @property
    def writers(self) -> int:
        """How many connections are kept."""
        return self._options.connections

    @property
    def hang_limit_s(self) -> float:
        """The server ends statements itself. Twice that without an answer: it hangs, or the way to it."""
        return 2 * self._options.statement_timeout_s

    @property
    def locks_folder(self) -> None:
        """The processes may run on several machines."""
        return

    def prepare(self, migrations: Sequence[Migration], now: Callable[[], datetime]) -> Migrated | None:
        """Reach the server and bring the database to our schema."""
        with self._opened() as connection:
            applied = read_applied(connection)
            connection.rollback()
            check_compatible(applied, migrations)
            done = self._migrate(connection, migrations, now()) if pending_after(applied, migrations) else None
        self._was_ready = True
        return done

    def probe(self) -> None:
        """See whether the server answers."""
        with self._opened() as connection:
            connection.execute(select(1))

    def open_session(self) -> PostgresSession:
        """Open a connection for a worker."""
        try:
            return PostgresSession(self._engine.connect(), self._options)
        except DBAPIError as error:
            raise DatabaseAway(_words_of(error)) from error

    def open_listener(self, channel: str) -> PostgresListener:
        """Listen to a channel."""
        try:
            return PostgresListener(self._connect(), channel)
        except psycopg.Error as error:
            raise DatabaseAway(_words_of(error)) from error

    def inspect(self, migrations: Sequence[Migration]) -> SchemaState:
        """Look at the database, which is not changed."""
        try:
            with self._opened() as connection:
                server_time = connection.execute(select(func.now())).scalar_one()
                return describe(read_applied(connection), migrations, server_time=server_time)
        except (DatabaseAway, StorageMisconfigured) as error:
            return SchemaState(is_reachable=False, problem=str(error))

    @contextmanager
    def looking(self) -> Iterator[Connection]:
        """One view of the database, which is not changed."""
        with self._patient("REPEATABLE READ READ ONLY") as connection:
            yield connection

    @contextmanager
    def filling(self) -> Iterator[Connection]:
        """One write transaction."""
        with self._patient("READ COMMITTED") as connection:
            yield connection

    @contextmanager
    def _patient(self, level: str) -> Iterator[Connection]:
        """A transaction that takes as long as it takes, in the server and between two statements."""
        with self._opened() as connection:
            driver = connection.connection.driver_connection
            assert isinstance(driver, GuardedPostgresConnection)
            driver.autocommit = False
            with connection.begin():
                connection.execute(text(f"SET TRANSACTION ISOLATION LEVEL {level}"))
                connection.execute(text("SET LOCAL statement_timeout = 0"))
                connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
                yield connection

    def dispose(self) -> None:
        """Nothing outlives the sessions."""
        self._engine.dispose()

    def _connect(self) -> GuardedPostgresConnection:
        _, parameters = self._engine.dialect.create_connect_args(self._engine.url)
        defaults = {"connect_timeout": CONNECT_TIMEOUT_S, "application_name": "cormorant", **_ALIVE}
        defaults["tcp_user_timeout"] = _milliseconds(self._options.statement_timeout_s)
        driver = GuardedPostgresConnection.connect(**{**defaults, **parameters}, autocommit=True)
        with ExitStack() as undo:
            undo.callback(driver.close)
            for name, limit_s in (
                ("statement_timeout", self._options.statement_timeout_s),
                ("lock_timeout", self._options.lock_timeout_s),
                ("idle_in_transaction_session_timeout", self._options.statement_timeout_s),
            ):
                driver.execute(f"SET {name} = {_milliseconds(limit_s)}")
            undo.pop_all()
        return driver

    @contextmanager
    def _opened(self) -> Iterator[Connection]:
        try:
            with self._engine.connect() as connection:
                yield connection
        except DBAPIError as error:
            cause = cause_of(error)
            if is_refusal(cause) or isinstance(cause, errors.InsufficientPrivilege):
                raise StorageMisconfigured(f"PostgreSQL refuses us: {_words_of(error)}") from error
            if isinstance(cause, psycopg.OperationalError | psycopg.InterfaceError):
                raise DatabaseAway(_words_of(error)) from error
            raise

    def _migrate(self, connection: Connection, migrations: Sequence[Migration], now: datetime) -> Migrated | None:
        driver = connection.connection.driver_connection
        assert isinstance(driver, GuardedPostgresConnection)
        driver.autocommit = False
        with connection.begin():
            # Held until COMMIT, also through a pooler. Waiting is bounded by lock_timeout, then tried again later.
            connection.execute(select(func.pg_advisory_xact_lock(MIGRATION_LOCK)))
            # Once more, under the lock: another process may have been faster.
            applied = read_applied(connection)
            check_compatible(applied, migrations)
            pending = pending_after(applied, migrations)
            if not pending:
                return None
            # A migration takes as long as it takes, in the server and between two statements.
            connection.execute(text("SET LOCAL statement_timeout = 0"))
            connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
            apply(connection, pending, now=now)
        return Migrated(from_version=applied.schema_version, to_version=pending[-1].VERSION)


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def _words_of(error: BaseException) -> str:
    return redact_passwords(str(cause_of(error)).strip())


class PostgresListener:
    """A connection of its own that listens to a channel."""

    def __init__(self, connection: psycopg.Connection[Any], channel: str) -> None:
        self._connection = connection
        self._connection.execute(f'LISTEN "{channel}"'.encode())

    def fileno(self) -> int | None:
        """Its socket."""
        return self._connection.fileno()

    def poll(self) -> bool:
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
