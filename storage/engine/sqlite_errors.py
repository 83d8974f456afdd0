"""What does an error of SQLite mean for the call that met it?"""

from __future__ import annotations

import sqlite3

from sqlalchemy.exc import DBAPIError, StatementError

from cormorant.rules.errors import CormorantError, StatementTooSlow, StorageUnavailable, TransactionMisused

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
    cause = error.orig if isinstance(error, DBAPIError) else error
    code = getattr(cause, "sqlite_errorcode", None)
    return code & _PRIMARY if isinstance(code, int) else None


def remedy_for(error: BaseException) -> str:
    """What is wrong and what helps, in a sentence."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    known = _REMEDIES.get(code_of(error) or 0)
    return f"{known} ({cause})" if known else str(cause)


def translate(error: BaseException, *, reads_only: bool, limit_s: float) -> BaseException:
    """What the caller is told, when its function raised `error` and its changes are undone."""
    if isinstance(error, StatementError) and isinstance(error.orig, CormorantError):
        return error.orig
    told: BaseException
    match code_of(error):
        case sqlite3.SQLITE_INTERRUPT:
            told = StatementTooSlow(limit_s)
        case sqlite3.SQLITE_READONLY if reads_only:
            told = TransactionMisused("a function that writes was given to read(): give it to run()")
        case code if code in _REMEDIES:
            told = StorageUnavailable(remedy_for(error))
        case _:
            return error
    told.__cause__ = error
    return told
