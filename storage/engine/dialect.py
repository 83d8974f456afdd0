"""What each kind of database must offer, chosen from a URL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import Protocol

from sqlalchemy import URL, Connection, make_url
from sqlalchemy.exc import ArgumentError

from cormorant.rules.errors import StorageMisconfigured
from storage.engine.calls import CallSession
from storage.engine.change_listener import ChangeListener
from storage.engine.options import StorageOptions
from storage.engine.schema import SchemaState
from storage.migrations.runner import Migrated, Migration

FORMS = "use sqlite:///folder/file.db or postgresql://user:password@host/name"


class Dialect(Protocol):
    """One kind of database: how to reach it, prepare it and serve calls with it. Everything here blocks."""

    @property
    def writers(self) -> int:
        """How many sessions may write at the same time."""
        ...

    @property
    def group_max(self) -> int:
        """How many calls a session takes at once."""
        ...

    @property
    def has_reader(self) -> bool:
        """Whether reads get a session of their own, so that they do not wait behind writes."""
        ...

    @property
    def hang_limit_s(self) -> float | None:
        """After how long a silent session is cut. None: its own time-outs always end a call."""
        ...

    @property
    def locks_folder(self) -> Path | None:
        """Where the processes that share the database hold their locks. None: a lock could not show their death."""
        ...

    def prepare(self, migrations: Sequence[Migration], now: Callable[[], datetime]) -> Migrated | None:
        """Reach the database and bring it to our schema. Raises `DatabaseAway` or `StorageMisconfigured`."""
        ...

    def probe(self) -> None:
        """Raise `DatabaseAway` unless a call would be served now."""
        ...

    def open_session(self) -> CallSession:
        """Open a connection. Raises `DatabaseAway`."""
        ...

    def open_listener(self, channel: str) -> ChangeListener | None:
        """Listen to what other processes write. None: there are no others. Raises `DatabaseAway`."""
        ...

    def inspect(self, migrations: Sequence[Migration]) -> SchemaState:
        """Look at the schema without creating or changing anything."""
        ...

    def looking(self) -> AbstractContextManager[Connection]:
        """A connection that changes nothing and sees everything as it is at one moment. Raises `DatabaseAway`."""
        ...

    def filling(self) -> AbstractContextManager[Connection]:
        """One write transaction, however long it takes; what raises in it undoes it. Raises `DatabaseAway`."""
        ...

    def dispose(self) -> None:
        """Let go of what outlives sessions: a database in memory."""
        ...


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
