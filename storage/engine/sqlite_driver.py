"""The guarded driver connection and what a SQLite error means."""

from __future__ import annotations

import sqlite3

from sqlalchemy import Engine, event
from sqlalchemy.engine import ExceptionContext

from cormorant.rules.errors import CormorantError, StatementTooSlow, StorageUnavailable, TransactionMisused
from storage.engine.calls import WRITES_IN_READ, ConnectionGuard, cause_of


class GuardedSqliteConnection(ConnectionGuard, sqlite3.Connection):
    """A connection that storage functions are given."""


def note_destroyers(engine: Engine) -> None:
    """Remember errors that destroy a transaction. Of all events of SQLAlchemy, this one costs nothing per statement."""

    @event.listens_for(engine, "handle_error")
    def note(context: ExceptionContext) -> None:
        driver = context.connection and context.connection.connection.driver_connection
        if isinstance(driver, GuardedSqliteConnection) and driver.is_guarded and not driver.in_transaction:
            driver.destroyer = driver.destroyer or context.sqlalchemy_exception or context.original_exception


_PRIMARY = 0xFF  # the extended codes of SQLite keep the kind of error in their lowest byte

BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})

_REMEDIES = {
    sqlite3.SQLITE_FULL: "the disk or the database is full: make room",
    sqlite3.SQLITE_IOERR: "the disk reported an error: look at the disk and the system's log",
    sqlite3.SQLITE_BUSY: "another program keeps the database locked: close it",
    sqlite3.SQLITE_LOCKED: "another program keeps the database locked: close it",
    sqlite3.SQLITE_CANTOPEN: "the database file cannot be opened: look at the folder and its permissions",
}


def code_of(error: BaseException) -> int | None:
    """SQLite's kind of error. None: it is not SQLite's."""
    code = getattr(cause_of(error), "sqlite_errorcode", None)
    return code & _PRIMARY if isinstance(code, int) else None


def remedy_for(error: BaseException) -> str:
    """What is wrong and what helps, in a sentence."""
    known = _REMEDIES.get(code_of(error) or 0)
    return f"{known} ({cause_of(error)})" if known else str(cause_of(error))


def meaning_of(error: BaseException, *, reads_only: bool, limit_s: float) -> CormorantError | None:
    """What an error of the driver means. None: nothing that is known."""
    match code_of(error):
        case sqlite3.SQLITE_INTERRUPT:
            return StatementTooSlow(limit_s)
        case sqlite3.SQLITE_READONLY if reads_only:
            return TransactionMisused(WRITES_IN_READ)
        case code if code in _REMEDIES:
            return StorageUnavailable(remedy_for(error))
        case _:
            return None
