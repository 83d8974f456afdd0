"""What does an error of PostgreSQL mean for the call that met it?"""

from __future__ import annotations

import psycopg
from psycopg import errors
from sqlalchemy.exc import DBAPIError, StatementError

from cormorant.rules.errors import CormorantError, StatementTooSlow, StorageUnavailable, TransactionMisused
from storage.engine.options import StorageOptions

# A refused connection carries no error code, only the server's words. In another language they are not recognised;
# then the start is acknowledged and the words are in the event, instead of ending it.
_REFUSALS = (
    "password authentication failed",
    "no password supplied",
    "no pg_hba.conf entry",
    "authentication failed for user",
    "permission denied for database",
    "is not permitted to log in",
)
_MISSING = ('role "', 'database "')

LOST_RACE = (errors.SerializationFailure, errors.DeadlockDetected)
"""The server undid the transaction for another's sake; the same call may succeed at once."""

_PASSING = (
    errors.InsufficientResources,
    errors.LockNotAvailable,
    errors.ReadOnlySqlTransaction,
    errors.OperatorIntervention,
    errors.SystemError,
)


def cause_of(error: BaseException) -> BaseException:
    """The driver's own error, if there is one."""
    return error.orig if isinstance(error, DBAPIError) and error.orig is not None else error


def is_outdated_plan(error: BaseException) -> bool:
    """Whether a prepared statement no longer fits its table, because a newer process changed that. A new connection does."""
    cause = cause_of(error)
    return isinstance(cause, errors.FeatureNotSupported) and "cached plan" in str(cause)


def is_refusal(error: BaseException) -> bool:
    """Whether a connection failed for a reason that waiting does not cure."""
    text = str(error)
    is_missing = "does not exist" in text and any(what in text for what in _MISSING)
    is_unreadable = isinstance(error, psycopg.ProgrammingError)
    return is_missing or is_unreadable or any(refusal in text for refusal in _REFUSALS)


def translate(error: BaseException, *, reads_only: bool, options: StorageOptions) -> BaseException:
    """What the caller is told, when its function raised `error` and its changes are undone."""
    if isinstance(error, StatementError) and isinstance(error.orig, CormorantError):
        return error.orig
    told: BaseException
    match cause_of(error):
        case errors.QueryCanceled() | errors.IdleInTransactionSessionTimeout():
            told = StatementTooSlow(options.statement_timeout_s)
        case errors.ReadOnlySqlTransaction() if reads_only:
            told = TransactionMisused("a function that writes was given to read(): give it to run()")
        case errors.InFailedSqlTransaction():
            told = TransactionMisused("a storage function went on after an error: run what may fail in begin_nested()")
        case errors.SerializationFailure() | errors.DeadlockDetected() as lost:
            told = StorageUnavailable(f"others changed the same rows at the same time, again and again: {lost}")
        case psycopg.Error() as passing if isinstance(passing, _PASSING):
            told = StorageUnavailable(f"the database cannot do it now: {passing}")
        case _:
            return error
    told.__cause__ = error
    return told
