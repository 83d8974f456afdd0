"""One call, one transaction on PostgreSQL, and what its errors mean.

Before COMMIT was sent, a lost connection means that nothing happened. Once it was sent and no answer came, nobody knows.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import outcome
import psycopg
from outcome import Outcome
from psycopg import errors
from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus, TransactionStatus
from psycopg.pq.abc import PGresult
from sqlalchemy import Connection, RootTransaction
from sqlalchemy.exc import DBAPIError
from typing_extensions import override

from cormorant.rules.errors import (
    CommitUnknown,
    CormorantError,
    StatementTooSlow,
    StorageUnavailable,
    TransactionMisused,
)
from storage.engine.calls import (
    ANNOUNCED,
    ENDED,
    WRITES_IN_READ,
    Announced,
    Call,
    ConnectionGuard,
    DatabaseAway,
    cause_of,
    told_of,
)
from storage.engine.options import StorageOptions

RERUNS_MAX = 5
"""How often a call that lost a race against another is run again."""

CHANNEL = "cormorant"
"""The one channel of the server that all our processes notify. A payload names its sender and our channel."""

SWALLOWED = "a storage function caught an error and went on, but its transaction is lost: use begin_nested() around it"


class GuardedPostgresConnection(ConnectionGuard, psycopg.Connection[Any]):
    """A connection that storage functions are given."""

    @override
    def _refuse_if_guarded(self) -> None:
        # A broken connection may be closed by whoever notices: SQLAlchemy does, inside the function.
        if self.pgconn.status == ConnStatus.OK:
            super()._refuse_if_guarded()


class PostgresSession:
    """One connection to PostgreSQL."""

    def __init__(self, connection: Connection, options: StorageOptions, *, announced: Announced, sender: str) -> None:
        driver = connection.connection.driver_connection
        assert isinstance(driver, GuardedPostgresConnection)
        self._connection = connection
        self._driver = driver
        self._pgconn = driver.pgconn
        self._options = options
        self._announced = announced
        self._sender = sender
        self._channels: dict[str, bool] = {}
        connection.info[ANNOUNCED] = self._channels
        self._was_cut = False
        self._is_lost = False
        """Whether a command could not be sent, whatever the driver makes of it."""

    @property
    def is_usable(self) -> bool:
        """Whether more calls may be served."""
        return not (self._connection.closed or self._connection.invalidated) and self._is_connected

    @property
    def _is_connected(self) -> bool:
        return self._pgconn.status == ConnStatus.OK and not self._is_lost

    def serve(self, calls: Sequence[Call[Any]]) -> None:
        """Give each call its outcome. `DatabaseAway`: those without one surely did not happen."""
        for call in calls:
            call.outcome = self._serve(call)

    def cut(self) -> None:
        """End the connection from another thread: the server takes longer than its own time-outs allow."""
        self._was_cut = True
        with suppress(OSError, psycopg.OperationalError), socket.socket(fileno=os.dup(self._pgconn.socket)) as copy:
            copy.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Let go of the connection."""
        if not self.is_usable and not self._connection.closed:
            self._connection.invalidate()
        self._connection.close()

    def _serve(self, call: Call[Any]) -> Outcome[Any]:
        reruns = 0
        while isinstance(result := self._attempt(call), outcome.Error):
            if not isinstance(cause_of(result.error), LOST_RACE) or reruns == RERUNS_MAX:
                meaning = meaning_of(result.error, reads_only=call.reads_only, options=self._options)
                return outcome.Error(told_of(result.error, meaning))
            reruns += 1
        return result

    def _attempt(self, call: Call[Any]) -> Outcome[Any]:
        transaction = self._begin(reads_only=call.reads_only)
        result = self._driver.run_guarded(call.work, self._connection)
        if self._driver.destroyer is not None:
            return self._undo(outcome.Error(self._driver.destroyer))
        if not self._is_connected:
            return self._after_loss(result)
        if isinstance(result, outcome.Value) and self._is_intact(transaction):
            return self._commit(transaction, result, reads_only=call.reads_only)
        return self._undo(result)

    def _begin(self, *, reads_only: bool) -> RootTransaction:
        self._channels.clear()
        # Straight to libpq, as COMMIT below: the driver's own way costs as much again as the round trip.
        answer = self._tell(b"BEGIN READ ONLY" if reads_only else b"BEGIN")
        if answer is None or answer.status != ExecStatus.COMMAND_OK:
            raise DatabaseAway(self._last_output(), is_stale=True)
        return self._connection.begin()

    def _tell(self, command: bytes) -> PGresult | None:
        """Send a command and wait. None: the connection is gone."""
        try:
            answer = self._pgconn.exec_(command)
        except psycopg.OperationalError:
            return None
        # An error without a severity is not the server's: the driver could not send, and may not know yet what that means.
        self._is_lost = answer.status == ExecStatus.FATAL_ERROR and _severity(answer) is None
        return answer if self._is_connected else None

    def _last_output(self) -> str:
        return self._pgconn.get_error_message().strip() or "the connection was closed"

    def _is_intact(self, transaction: RootTransaction) -> bool:
        return (
            self._pgconn.transaction_status == TransactionStatus.INTRANS
            and transaction.is_active
            and self._connection.get_transaction() is transaction
            and self._connection.get_nested_transaction() is None
        )

    def _after_loss(self, result: Outcome[Any]) -> Outcome[Any]:
        """COMMIT was not sent, so nothing happened. If the call itself took too long, it must not be tried again."""
        cause = cause_of(result.error) if isinstance(result, outcome.Error) else None
        if self._was_cut or isinstance(cause, errors.IdleInTransactionSessionTimeout):
            return outcome.Error(StatementTooSlow(self._options.statement_timeout_s))
        raise DatabaseAway(self._last_output() if cause is None else str(cause), is_stale=True)

    def _undo(self, result: Outcome[Any]) -> Outcome[Any]:
        status = self._pgconn.transaction_status
        # Not the driver's rollback(): it forgets every prepared statement.
        if self._tell(b"ROLLBACK") is None and _is_of_the_database(result):
            return self._after_loss(result)
        if self.is_usable:
            self._connection.rollback()
        if isinstance(result, outcome.Error):
            if is_outdated_plan(result.error):
                raise DatabaseAway(str(cause_of(result.error)), is_stale=True)
            if status != TransactionStatus.IDLE or isinstance(result.error, TransactionMisused):
                return result
        return outcome.Error(TransactionMisused(SWALLOWED if status == TransactionStatus.INERROR else ENDED))

    def _commit(self, transaction: RootTransaction, result: Outcome[Any], *, reads_only: bool) -> Outcome[Any]:
        answer = self._tell(self._notices() + b"COMMIT")
        # A server that says farewell is as good as gone, and may have committed before.
        if answer is None or _severity(answer) in {b"FATAL", b"PANIC"}:
            unknown = CommitUnknown(
                f"the connection was lost at COMMIT ({self._last_output()}): it may have happened, look before repeating"
            )
            self._announced.note(self._channels, is_in_doubt=True)
            return result if reads_only else outcome.Error(unknown)
        if answer.status == ExecStatus.COMMAND_OK:
            transaction.commit()
            self._announced.note(self._channels)
            return result
        # The server said no and is still there: it did not happen. Told as any other error of a statement.
        self._connection.rollback()
        error = errors.error_from_result(answer)
        return outcome.Error(
            DBAPIError.instance("COMMIT", None, error, psycopg.Error, dialect=self._connection.dialect)
        )

    def _notices(self) -> bytes:
        """The statements that let other processes look when the transaction commits. They travel with COMMIT."""
        return "".join(f"NOTIFY {CHANNEL}, '{self._sender} {channel}';" for channel in self._channels).encode()


def _severity(answer: PGresult) -> bytes | None:
    return answer.error_field(DiagnosticField.SEVERITY_NONLOCALIZED)


def _is_of_the_database(result: Outcome[Any]) -> bool:
    return isinstance(result, outcome.Error) and isinstance(cause_of(result.error), psycopg.Error)


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


def meaning_of(error: BaseException, *, reads_only: bool, options: StorageOptions) -> CormorantError | None:
    """What an error of the driver means. None: nothing that is known."""
    match cause_of(error):
        case errors.QueryCanceled() | errors.IdleInTransactionSessionTimeout():
            return StatementTooSlow(options.statement_timeout_s)
        case errors.ReadOnlySqlTransaction() if reads_only:
            return TransactionMisused(WRITES_IN_READ)
        case errors.InFailedSqlTransaction():
            return TransactionMisused("a storage function went on after an error: run what may fail in begin_nested()")
        case errors.SerializationFailure() | errors.DeadlockDetected() as lost:
            return StorageUnavailable(f"others changed the same rows at the same time, again and again: {lost}")
        case psycopg.Error() as passing if isinstance(passing, _PASSING):
            return StorageUnavailable(f"the database cannot do it now: {passing}")
        case _:
            return None
