"""Opens, prepares, inspects and backs up a SQLite file; hears what other processes announce in it."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from datetime import datetime
from pathlib import Path

from attrs import evolve
from sqlalchemy import URL, Connection, NullPool, StaticPool, create_engine
from sqlalchemy.exc import DBAPIError
from typing_extensions import override

from cormorant.rules.errors import MigrationFailed, StorageMisconfigured
from cormorant.rules.events import SchemaMigrated
from storage.engine.calls import Announced, DatabaseAway
from storage.engine.change_listener import LOOK_S
from storage.engine.channel_counters import ChannelCounters
from storage.engine.data_files import FILE_MODE, create_file, folder_mode, make_folder
from storage.engine.dialect import Dialect
from storage.engine.file_locks import WriteTurn
from storage.engine.file_watch import watch
from storage.engine.options import StorageOptions
from storage.engine.schema import Migration, SchemaState, read_state, state_of, with_problem
from storage.engine.sqlite_session import (
    BUSY,
    GuardedSqliteConnection,
    SqliteSession,
    code_of,
    note_destroyers,
    remedy_for,
)

TURN_PATIENCE_S = 1.0
"""How long to wait for a fair turn; then SQLite's own lock is tried without."""
PROBE_BUSY_MS = 500
JOURNAL_NAP_S = 0.005
CACHED_STATEMENTS = 512
BLIND_LOOK_S = 1.0
"""Interval between two looks at a file that cannot be watched."""

_PASSING = BUSY | {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL}
_WRONG = {
    sqlite3.SQLITE_CANTOPEN: "cannot be opened: look at its permissions and those of its folder",
    sqlite3.SQLITE_NOTADB: "is not a SQLite database: name another file",
    sqlite3.SQLITE_CORRUPT: "is damaged: restore a backup",
    sqlite3.SQLITE_READONLY: "cannot be written: look at its permissions and those of its folder",
}


class Sqlite(Dialect):
    """One SQLite file, or one database in memory that lives as long as this object."""

    driver_class: type[GuardedSqliteConnection] = GuardedSqliteConnection

    def __init__(self, url: URL, options: StorageOptions) -> None:
        if url.query or url.host:
            raise StorageMisconfigured("a SQLite URL names a file and nothing else: sqlite:///folder/file.db")
        in_memory = url.database in {None, "", ":memory:"}
        self._path = path = None if in_memory else Path(str(url.database)).absolute()
        # In memory there is one connection, kept; a file is opened anew by whoever needs it.
        pool = StaticPool if in_memory else NullPool
        super().__init__(
            create_engine("sqlite://", creator=self._connect, poolclass=pool, hide_parameters=True), options
        )
        note_destroyers(self._engine)
        self.group_max = options.group_max
        # A second connection would see another database in memory.
        self.has_reader = path is not None
        self.is_shared = path is not None
        self.locks_folder = None if path is None else path.with_name(f"{path.name}-workers")
        self._counters = None if path is None else ChannelCounters(path)

    @override
    def prepare(self, migrations: Sequence[Migration], now: Callable[[], datetime]) -> SchemaMigrated | None:
        self._check_path()
        if self._path is not None and not self._was_ready:
            with suppress(OSError):  # SQLite fails for the same reason, and names it
                create_file(self._path, mode=self._options.file_mode)
        return super().prepare(migrations, now)

    @override
    def probe(self) -> None:
        with self._opened() as connection:
            driver = _driver_of(connection)
            driver.execute(f"PRAGMA busy_timeout = {PROBE_BUSY_MS}")
            driver.execute("BEGIN IMMEDIATE")
            driver.rollback()

    @override
    def open_session(self, announced: Announced) -> SqliteSession:
        try:
            connection = self._engine.connect()
        except DBAPIError as error:
            raise DatabaseAway(remedy_for(error)) from error
        return SqliteSession(
            connection, turn=self._turn(), options=self._options, announced=announced, counters=self._counters
        )

    @override
    def open_changes(self) -> SqliteChanges | None:
        if self._counters is None:
            return None
        try:
            return SqliteChanges(self._connect, self._counters)
        except (sqlite3.Error, OSError) as error:
            raise DatabaseAway(remedy_for(error)) from error

    @override
    def inspect(self, migrations: Sequence[Migration]) -> SchemaState:
        path = self._path
        if path is None:
            return state_of((), migrations)
        if not path.exists():
            return SchemaState(is_reachable=False, problem=f"{path} does not exist yet: the first start creates it")
        try:
            with self.looking() as connection:
                return with_problem(read_state(connection, migrations))
        except (DatabaseAway, DBAPIError) as error:
            return SchemaState(is_reachable=False, problem=f"{path}: {remedy_for(error)}")

    @override
    @contextmanager
    def looking(self) -> Iterator[Connection]:
        path = self._path
        assert path is not None, "a database in memory has one connection"
        engine = create_engine(
            "sqlite://", creator=lambda: _open_read_only(path), poolclass=NullPool, hide_parameters=True
        )
        try:
            connection = engine.connect()
        except DBAPIError as error:
            raise DatabaseAway(remedy_for(error)) from error
        with connection:
            driver = _driver_of(connection)
            driver.isolation_level = None
            driver.execute("BEGIN")
            yield connection

    @override
    @contextmanager
    def filling(self) -> Iterator[Connection]:
        with self._opened() as connection, _locked(connection):
            yield connection

    def _connect(self) -> sqlite3.Connection:
        # Once it was there, a missing file is a disk that is gone: an empty one in its place would only hide that.
        mode = "rw" if self._was_ready else "rwc"
        target = ":memory:" if self._path is None else f"{self._path.as_uri()}?mode={mode}"
        driver = sqlite3.connect(
            target,
            uri=True,
            timeout=self._options.busy_timeout_s,
            isolation_level=None,  # else the driver begins transactions of its own, too late and of the wrong kind
            check_same_thread=False,
            cached_statements=CACHED_STATEMENTS,
            factory=self.driver_class,
        )
        with ExitStack() as undo:
            undo.callback(driver.close)
            driver.execute("PRAGMA synchronous = FULL")
            driver.execute("PRAGMA foreign_keys = ON")
            undo.pop_all()
        return driver

    def _turn(self) -> WriteTurn | None:
        if self._path is None:
            return None
        try:
            patience_s = min(TURN_PATIENCE_S, self._options.busy_timeout_s)
            return WriteTurn(self._path, patience_s=patience_s, file_mode=self._options.file_mode)
        except OSError:
            # A lock file that belongs to somebody else: unfair is better than not at all.
            return None

    def _check_path(self) -> None:
        if self._path is None:
            return
        if self._path.is_dir():
            raise StorageMisconfigured(f"{self._path} is a folder: name a file in it")
        if not self._path.parent.is_dir():
            why = f"the folder {self._path.parent} does not exist: create it, or name another"
            raise DatabaseAway(why) if self._was_ready else StorageMisconfigured(why)

    @override
    @contextmanager
    def _opened(self) -> Iterator[Connection]:
        try:
            with self._engine.connect() as connection:
                yield connection
        except (sqlite3.Error, DBAPIError) as error:
            code = code_of(error)
            if code in _PASSING or (code in _WRONG and self._was_ready):
                raise DatabaseAway(remedy_for(error)) from error
            if code in _WRONG:
                raise StorageMisconfigured(f"{self._path} {_WRONG[code]} ({error})") from error
            raise

    @override
    def _set_up(self, connection: Connection) -> None:
        """Write-ahead, so that readers and the writer do not wait for each other."""
        if self._path is None:
            return
        driver = _driver_of(connection)
        (pages,) = driver.execute("PRAGMA page_count").fetchone()
        if pages == 0:
            # Only before the first table; later it would take a VACUUM of everything.
            driver.execute("PRAGMA auto_vacuum = INCREMENTAL")
        if self._write_ahead(driver) != "wal":
            raise StorageMisconfigured(
                f"the file system of {self._path} cannot hold a shared database: use a local disk"
            )

    def _write_ahead(self, driver: sqlite3.Connection) -> str:
        give_up_at = time.monotonic() + self._options.busy_timeout_s
        while True:
            try:
                return str(driver.execute("PRAGMA journal_mode = WAL").fetchone()[0])
            except sqlite3.OperationalError as error:
                # SQLite does not wait by itself when two processes create the file at the same time.
                if code_of(error) not in BUSY or time.monotonic() > give_up_at:
                    raise
            time.sleep(JOURNAL_NAP_S)

    @override
    def _migrating(self, connection: Connection) -> AbstractContextManager[None]:
        return _locked(connection)

    @override
    def _upgrade(self, connection: Connection, state: SchemaState, now: datetime) -> SchemaMigrated:
        backup = self._back_up(connection, state.schema_version)
        done = super()._upgrade(connection, state, now)
        _check_foreign_keys(connection, state.steps[-1])
        return evolve(done, backup=backup)

    def _back_up(self, connection: Connection, version: int) -> str | None:
        (tables,) = _driver_of(connection).execute("SELECT count(*) FROM sqlite_master").fetchone()
        if self._path is None or not tables:
            return None
        folder = self._options.backup_folder or self._path.parent
        try:
            return str(back_up(self._path, folder, version=version, file_mode=self._options.file_mode))
        except OSError as error:
            raise StorageMisconfigured(
                f"no backup could be made in {folder}, so nothing was migrated: {error}"
            ) from error


@contextmanager
def _locked(connection: Connection) -> Iterator[None]:
    """One write transaction without foreign keys, which otherwise delete the children of a table that is rebuilt."""
    driver = _driver_of(connection)
    # Inside a transaction this is ignored without a word.
    driver.execute("PRAGMA foreign_keys = OFF")
    try:
        driver.execute("BEGIN IMMEDIATE")
        with connection.begin():
            yield
    finally:
        driver.rollback()
        driver.execute("PRAGMA foreign_keys = ON")


def _check_foreign_keys(connection: Connection, last: Migration) -> None:
    orphans = _driver_of(connection).execute("PRAGMA foreign_key_check").fetchmany(3)
    if orphans:
        why = "; ".join(f"row {row} of {table} has lost its {parent}" for table, row, parent, _ in orphans)
        raise MigrationFailed(version=last.VERSION, name=last.NAME, why=why)


def _driver_of(connection: Connection) -> sqlite3.Connection:
    driver = connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    return driver


def _open_read_only(path: Path) -> sqlite3.Connection:
    # Without a log beside it the file is complete, and reading it as unchangeable creates no log either.
    has_log = path.with_name(f"{path.name}-wal").exists()
    return sqlite3.connect(f"{path.as_uri()}?{'mode=ro' if has_log else 'immutable=1'}", uri=True)


def back_up(database: Path, folder: Path, *, version: int, file_mode: int = FILE_MODE) -> Path:
    """Save the committed state of `database` into `folder` and return the copy, which is complete or not there at all.

    A copy of the same version is replaced: a start that fails again and again must not fill the disk.
    """
    make_folder(folder, mode=folder_mode(file_mode))
    copy = folder / f"{database.stem}.schema-{version}.backup{database.suffix}"
    partial = copy.with_name(f"{copy.name}.partial")
    partial.unlink(missing_ok=True)
    create_file(partial, mode=file_mode)  # SQLite writes into an empty file
    with closing(sqlite3.connect(f"{database.as_uri()}?mode=rw", uri=True, isolation_level=None)) as reader:
        reader.execute("VACUUM INTO ?", (str(partial),))
    _sync(partial)
    partial.replace(copy)
    _sync(folder)
    return copy


def _sync(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


class SqliteChanges:
    """A connection of its own that reads the counters when the file was touched. A look takes 10 to 50 us."""

    def __init__(self, connect: Callable[[], sqlite3.Connection], counters: ChannelCounters) -> None:
        self._counters = counters
        self._version: int | None = None
        with ExitStack() as undo:
            # In this order, so that a file that is replaced meanwhile is noticed.
            self._file = _identity(counters.path)
            self._watch = watch(counters.path)
            if self._watch is not None:
                undo.callback(self._watch.close)
            self._connection = undo.enter_context(closing(connect()))
            self._connection.execute("PRAGMA busy_timeout = 0")  # it looks again instead of waiting in the loop
            counters.forget()
            self.look()
            self._close = undo.pop_all().close
        self.pause_s = BLIND_LOOK_S if self._watch is None else LOOK_S

    def fileno(self) -> int | None:
        """Its watch. None: the file cannot be watched."""
        return None if self._watch is None else self._watch.fileno()

    def look(self) -> set[str] | None:
        """The channels that others have announced; None while the file is locked."""
        if self._watch is not None:
            self._watch.clear()
        try:
            self._check_file()
            version: int = self._connection.execute("PRAGMA data_version").fetchone()[0]
            others = set() if version == self._version else self._counters.look(self._connection)
        except (sqlite3.Error, OSError) as error:
            if code_of(error) in BUSY:
                return None
            raise DatabaseAway(str(error)) from error
        self._version = version
        return others

    def close(self) -> None:
        """Close the connection and the watch."""
        self._close()

    def _check_file(self) -> None:
        if _identity(self._counters.path) != self._file:
            raise DatabaseAway(f"{self._counters.path} was replaced")


def _identity(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino
