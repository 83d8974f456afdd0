"""Dialect: what each kind of database offers, chosen from a URL."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path

from sqlalchemy import URL, Connection, Engine, make_url
from sqlalchemy.exc import ArgumentError

from cormorant.rules.errors import StorageMisconfigured
from cormorant.rules.events import SchemaMigrated
from storage.engine.calls import Announced, CallSession
from storage.engine.change_listener import ChangeConnection
from storage.engine.options import StorageOptions
from storage.engine.schema import Migration, SchemaState, apply, read_usable

FORMS = "use sqlite:///folder/file.db or postgresql://user:password@host/name"


class Dialect(ABC):
    """One kind of database: how to reach it, prepare it and serve calls with it. Everything here blocks."""

    writers = 1
    """How many sessions may write at the same time."""
    group_max = 1
    """How many calls a session takes at once."""
    has_reader = False
    """Whether reads get a session of their own, so that they do not wait behind writes."""
    hang_limit_s: float | None = None
    """After how long a silent session is cut. None: its own time-outs always end a call."""
    is_shared = True
    """Whether other processes may use the database. A database in memory has one owner."""
    may_miss_changes = False
    """Whether a change of another process may go unheard for a while: a notification is not repeated."""
    locks_folder: Path | None = None
    """Where the processes that share the database hold their locks. None: a lock could not show their death."""

    def __init__(self, engine: Engine, options: StorageOptions) -> None:
        self._engine = engine
        self._options = options
        self._was_ready = False

    def prepare(self, migrations: Sequence[Migration], now: Callable[[], datetime]) -> SchemaMigrated | None:
        """Reach the database and bring it to our schema. Raises `DatabaseAway` or `StorageMisconfigured`."""
        with self._opened() as connection:
            state = read_usable(connection, migrations)
            connection.rollback()
            self._set_up(connection)
            done = self._migrate(connection, migrations, now()) if state.steps else None
        self._was_ready = True
        return done

    @abstractmethod
    def probe(self) -> None:
        """Raise `DatabaseAway` unless a call would be served now."""

    @abstractmethod
    def open_session(self, announced: Announced) -> CallSession:
        """Open a connection that notes what it announces. Raises `DatabaseAway`."""

    @abstractmethod
    def open_changes(self) -> ChangeConnection | None:
        """Listen to what other processes announce. None: there are no others. Raises `DatabaseAway`."""

    @abstractmethod
    def inspect(self, migrations: Sequence[Migration]) -> SchemaState:
        """Look at the schema without creating or changing anything."""

    @abstractmethod
    def looking(self) -> AbstractContextManager[Connection]:
        """A connection that changes nothing and sees everything as it is at one moment. Raises `DatabaseAway`."""

    @abstractmethod
    def filling(self) -> AbstractContextManager[Connection]:
        """One write transaction, however long it takes; what raises in it undoes it. Raises `DatabaseAway`."""

    def dispose(self) -> None:
        """Let go of what outlives sessions: a database in memory."""
        self._engine.dispose()

    @abstractmethod
    def _opened(self) -> AbstractContextManager[Connection]:
        """A connection, whose errors are raised as `DatabaseAway` or `StorageMisconfigured`."""

    def _set_up(self, connection: Connection) -> None:  # noqa: B027 - a server keeps no settings of ours
        """Set what the database itself keeps, once it is known to be ours."""

    @abstractmethod
    def _migrating(self, connection: Connection) -> AbstractContextManager[None]:
        """One write transaction, however long it takes, while no other process migrates."""

    def _migrate(self, connection: Connection, migrations: Sequence[Migration], now: datetime) -> SchemaMigrated | None:
        with self._migrating(connection):
            # Once more, under the lock: another process may have been faster.
            state = read_usable(connection, migrations)
            return self._upgrade(connection, state, now) if state.steps else None

    def _upgrade(self, connection: Connection, state: SchemaState, now: datetime) -> SchemaMigrated:
        apply(connection, state.steps, now=now)
        return SchemaMigrated(from_version=state.schema_version, to_version=state.steps[-1].VERSION, backup=None)


def dialect_for(options: StorageOptions) -> Dialect:
    """The kind of database that the URL names. Nothing is opened yet."""
    url = _parse(options.url)
    match url.get_backend_name():
        case "sqlite":
            from storage.engine.sqlite import Sqlite  # noqa: PLC0415 - whoever uses the other database need not load this one

            return Sqlite(url, options)
        case "postgresql" | "postgres":
            return _postgres(url, options)
        case other:
            raise StorageMisconfigured(f"the database kind {other!r} is unknown: {FORMS}")


def _parse(text: str) -> URL:
    try:
        return make_url(text)
    except (ArgumentError, ValueError) as error:
        # The text may hold a password, and an unreadable one cannot be cleaned.
        raise StorageMisconfigured(f"the database URL cannot be read: {FORMS}") from error


def _postgres(url: URL, options: StorageOptions) -> Dialect:
    try:
        from storage.engine.postgres import Postgres  # noqa: PLC0415 - the driver is an optional part
    except ImportError as missing:
        raise StorageMisconfigured("PostgreSQL needs its driver: pip install 'cormorant[postgres]'") from missing
    return Postgres(url, options)
