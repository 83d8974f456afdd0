"""Opens, prepares and inspects PostgreSQL; LISTEN on its own connection."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import psycopg
from psycopg import errors
from sqlalchemy import URL, Connection, NullPool, create_engine, func, select, text
from sqlalchemy.exc import DBAPIError
from typing_extensions import override

from cormorant.rules.errors import StorageMisconfigured
from cormorant.rules.secrets import redact_passwords
from storage.engine.calls import Announced, DatabaseAway, cause_of
from storage.engine.dialect import Dialect
from storage.engine.options import StorageOptions
from storage.engine.postgres_session import CHANNEL, GuardedPostgresConnection, PostgresSession, is_refusal
from storage.engine.schema import Migration, SchemaState, read_state, with_problem

MIGRATION_LOCK = 0x636F726D  # "corm": all processes of ours, and nobody else's by chance
CONNECT_TIMEOUT_S = 5

# A server whose machine is gone sends nothing; without these a call would wait for hours.
_ALIVE = {"keepalives": 1, "keepalives_idle": 5, "keepalives_interval": 3, "keepalives_count": 3}


class Postgres(Dialect):
    """One database of a PostgreSQL server. Its processes may run on several machines."""

    may_miss_changes = True

    def __init__(self, url: URL, options: StorageOptions) -> None:
        if not url.database:
            raise StorageMisconfigured("the PostgreSQL URL names no database: postgresql://user@host/name")
        full = url.set(drivername="postgresql+psycopg")
        super().__init__(create_engine(full, creator=self._connect, poolclass=NullPool, hide_parameters=True), options)
        self._sender = secrets.token_hex(8)
        self.writers = options.connections
        # The server ends statements itself. Twice that without an answer: it hangs, or the way to it.
        self.hang_limit_s = 2 * options.statement_timeout_s

    @override
    def probe(self) -> None:
        with self._opened() as connection:
            connection.execute(select(1))

    @override
    def open_session(self, announced: Announced) -> PostgresSession:
        try:
            return PostgresSession(self._engine.connect(), self._options, announced=announced, sender=self._sender)
        except DBAPIError as error:
            raise DatabaseAway(_words_of(error)) from error

    @override
    def open_changes(self) -> PostgresChanges:
        try:
            return PostgresChanges(self._connect(), sender=self._sender)
        except psycopg.Error as error:
            raise DatabaseAway(_words_of(error)) from error

    @override
    def inspect(self, migrations: Sequence[Migration]) -> SchemaState:
        try:
            with self._opened() as connection:
                server_time = connection.execute(select(func.now())).scalar_one()
                return with_problem(read_state(connection, migrations), server_time=server_time)
        except (DatabaseAway, StorageMisconfigured) as error:
            return SchemaState(is_reachable=False, problem=str(error))

    @override
    @contextmanager
    def looking(self) -> Iterator[Connection]:
        with self._opened() as connection, _patient(connection, "REPEATABLE READ READ ONLY"):
            yield connection

    @override
    @contextmanager
    def filling(self) -> Iterator[Connection]:
        with self._opened() as connection, _patient(connection):
            yield connection

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

    @override
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

    @override
    @contextmanager
    def _migrating(self, connection: Connection) -> Iterator[None]:
        with _patient(connection):
            # Held until COMMIT, also through a pooler. Waiting is bounded by lock_timeout, then tried again later.
            connection.execute(select(func.pg_advisory_xact_lock(MIGRATION_LOCK)))
            yield


@contextmanager
def _patient(connection: Connection, level: str = "READ COMMITTED") -> Iterator[None]:
    """A transaction that takes as long as it takes, in the server and between two statements."""
    driver = connection.connection.driver_connection
    assert isinstance(driver, GuardedPostgresConnection)
    driver.autocommit = False
    with connection.begin():
        connection.execute(text(f"SET TRANSACTION ISOLATION LEVEL {level}"))
        connection.execute(text("SET LOCAL statement_timeout = 0"))
        connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
        yield


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def _words_of(error: BaseException) -> str:
    return redact_passwords(str(cause_of(error)).strip())


class PostgresChanges:
    """A connection of its own that listens to the notices of all processes."""

    pause_s = 0.0

    def __init__(self, connection: psycopg.Connection[Any], *, sender: str) -> None:
        self._connection = connection
        self._sender = sender
        try:
            self._connection.execute(f"LISTEN {CHANNEL}".encode())
        except psycopg.Error:
            self._connection.close()
            raise

    def fileno(self) -> int | None:
        """Its socket."""
        return self._connection.fileno()

    def look(self) -> set[str]:
        """The channels that others have announced. The notices of this process come back, too, and are left out."""
        try:
            self._connection.pgconn.consume_input()
        except psycopg.OperationalError as error:
            raise DatabaseAway(str(error)) from error
        others = set()
        while (notice := self._connection.pgconn.notifies()) is not None:
            sender, _, channel = notice.extra.decode(errors="replace").partition(" ")
            if sender != self._sender:
                others.add(channel)
        return others

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
