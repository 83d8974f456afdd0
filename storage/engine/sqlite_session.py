"""Group commit on SQLite with a savepoint per call, and what its errors mean.

Nobody is answered before COMMIT returned. A call that fails is undone alone, by its savepoint. Savepoints cost a fifth of
the throughput, so a group is first run without; when one of it fails, all is undone and run again with a savepoint each.
Some errors destroy the whole transaction; then the innocent, who ran or were about to, run again in a fresh one, and the
guilty gets its error.
"""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import groupby
from typing import Any

import outcome
from outcome import Outcome
from sqlalchemy import Connection, Engine, RootTransaction, event
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import DBAPIError

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
from storage.engine.channel_counters import ChannelCounters
from storage.engine.file_locks import WriteTurn
from storage.engine.options import StorageOptions

DESTROYED_MAX = 3
"""After so many destroyed transactions the rest of a group runs one by one: each could destroy another."""
CAREFUL_GROUPS = 32
"""For so many groups after a failure savepoints are set from the start: failures come in swarms."""
LOOK_EVERY = 200_000
"""Steps of SQLite's machine between two looks at the time: some milliseconds. Each look needs the interpreter's lock."""
COMMIT_NAP_S = 0.005

Run = tuple[Call[Any], Outcome[Any]]


class GuardedSqliteConnection(ConnectionGuard, sqlite3.Connection):
    """A connection that storage functions are given."""

    def note(self, error: BaseException) -> None:
        """Remember an error of a statement if it has destroyed the transaction."""
        if self.is_guarded and not self.in_transaction:
            self.destroyer = self.destroyer or error


def note_destroyers(engine: Engine) -> None:
    """Remember errors that destroy a transaction. Of all events of SQLAlchemy, this one costs nothing per statement."""

    @event.listens_for(engine, "handle_error")
    def note(context: ExceptionContext) -> None:
        driver = context.connection and context.connection.connection.driver_connection
        if isinstance(driver, GuardedSqliteConnection):
            driver.note(context.sqlalchemy_exception or context.original_exception)


class SqliteSession:
    """One connection to SQLite."""

    def __init__(
        self,
        connection: Connection,
        *,
        turn: WriteTurn | None,
        options: StorageOptions,
        announced: Announced,
        counters: ChannelCounters | None,
    ) -> None:
        driver = connection.connection.driver_connection
        assert isinstance(driver, GuardedSqliteConnection)
        self._connection = connection
        self._driver = driver
        self._cursor = driver.cursor()
        self._announced = announced
        self._counters = counters
        self._channels: dict[str, bool] = {}
        connection.info[ANNOUNCED] = self._channels
        self._file_turn = turn
        self._turn: AbstractContextManager[None] = turn or nullcontext()
        self._limit_s = options.statement_timeout_s
        self._busy_s = options.busy_timeout_s
        self._end_at = math.inf
        self._is_read_only = False
        self._is_usable = True
        self._destroyed = 0
        self._careful = 0
        driver.set_progress_handler(self._is_overdue, LOOK_EVERY)

    @property
    def is_usable(self) -> bool:
        """Whether more calls may be served."""
        return self._is_usable and not self._connection.closed

    def serve(self, calls: Sequence[Call[Any]]) -> None:
        """Give each call its outcome, in order. `DatabaseAway`: those without one surely did not happen."""
        if len(calls) == 1 and not calls[0].reads_only:
            self._set_read_only(to=False)
            self._write_alone(calls[0])
            return
        for reads_only, part in groupby(calls, key=lambda call: call.reads_only):
            self._set_read_only(to=reads_only)
            if reads_only:
                for call in part:
                    self._read(call)
            else:
                self._write(list(part))

    def cut(self) -> None:
        """Never needed: the progress handler ends what takes too long."""

    def close(self) -> None:
        """Let go of connection and locks."""
        if not self._connection.closed:
            self._set_read_only(to=False)
            self._connection.rollback()
            self._driver.set_progress_handler(None, 0)
            self._connection.close()
        if self._file_turn is not None:
            self._file_turn.close()

    def _set_read_only(self, *, to: bool) -> None:
        if to != self._is_read_only:
            self._driver.execute(f"PRAGMA query_only = {int(to)}")
            self._is_read_only = to

    def _is_overdue(self) -> bool:
        return time.monotonic() > self._end_at

    def _begin(self, statement: str) -> RootTransaction:
        # Not from SQLAlchemy's begin event: an engine with events spends a fifth more on every statement.
        try:
            self._driver.execute(statement)
        except sqlite3.OperationalError as error:
            raise DatabaseAway(remedy_for(error)) from error
        self._channels.clear()
        # SQLAlchemy's own view of it is kept from group to group: making one costs as much as a statement.
        return self._connection.get_transaction() or self._connection.begin()

    def _read(self, call: Call[Any]) -> None:
        transaction = self._begin("BEGIN")
        result = self._run(call)
        if self._is_intact(transaction):
            self._driver.commit()
        else:
            result = outcome.Error(self._verdict(call, result))
            self._undo()
        call.outcome = result

    def _write(self, calls: list[Call[Any]]) -> None:
        self._destroyed = 0
        while calls:
            size = len(calls) if self._destroyed < DESTROYED_MAX else 1
            calls = self._run_group(calls[:size]) + calls[size:]
            if calls and not self.is_usable:
                raise DatabaseAway("the connection broke", is_stale=True)

    def _write_alone(self, call: Call[Any]) -> None:
        """As `_run_group` for one: whatever becomes of it, nobody else has to run again."""
        with self._turn:
            transaction = self._begin("BEGIN IMMEDIATE")
            result = self._run(call)
            if not self._is_intact(transaction):
                self._after_destruction([], (call, result))
            else:
                self._finish([(call, result)])

    def _run_group(self, calls: list[Call[Any]]) -> list[Call[Any]]:
        """Run calls in one transaction. Returns those that must run again."""
        is_careful = len(calls) > 1 and self._careful > 0
        self._careful -= is_careful
        run = self._run_in_savepoint if is_careful else self._run
        with self._turn:
            transaction = self._begin("BEGIN IMMEDIATE")
            done: list[Run] = []
            for index, call in enumerate(calls):
                result = run(call)
                if not self._is_intact(transaction):
                    return self._after_destruction(done, (call, result)) + calls[index + 1 :]
                if isinstance(result, outcome.Error) and len(calls) > 1 and not is_careful:
                    return self._again_with_savepoints(calls, (call, result))
                done.append((call, result))
            return self._finish(done)

    def _again_with_savepoints(
        self, calls: list[Call[Any]], failed: tuple[Call[Any], outcome.Error]
    ) -> list[Call[Any]]:
        self._undo()
        self._careful = CAREFUL_GROUPS
        call, result = failed
        if not isinstance(result.error, StatementTooSlow):
            return calls
        # It has had its time. The others need not wait for it twice.
        call.outcome = result
        return [other for other in calls if other is not call]

    def _run_in_savepoint(self, call: Call[Any]) -> Outcome[Any]:
        # SQLAlchemy's begin_nested() does the same and costs more than most statements.
        execute = self._cursor.execute
        execute("SAVEPOINT gateway_call")
        before = self._channels.copy()
        result = self._run(call)
        if self._driver.destroyer is None and self._driver.in_transaction:
            if isinstance(result, outcome.Error):
                execute("ROLLBACK TO gateway_call")
                self._channels.clear()
                self._channels |= before
            execute("RELEASE gateway_call")
        return result

    def _run(self, call: Call[Any]) -> Outcome[Any]:
        self._end_at = time.monotonic() + self._limit_s
        result = self._driver.run_guarded(call.work, self._connection)
        self._end_at = math.inf
        return result if isinstance(result, outcome.Value) else outcome.Error(self._told(call, result.error))

    def _told(self, call: Call[Any], error: BaseException) -> BaseException:
        return told_of(error, meaning_of(error, reads_only=call.reads_only, limit_s=self._limit_s))

    def _is_intact(self, transaction: RootTransaction) -> bool:
        return (
            self._driver.destroyer is None
            and self._driver.in_transaction
            and transaction.is_active
            and self._connection.get_transaction() is transaction
            and self._connection.get_nested_transaction() is None
        )

    def _verdict(self, call: Call[Any], result: Outcome[Any]) -> BaseException:
        """What the one is told whose function destroyed the transaction."""
        if self._driver.destroyer is not None:
            return self._told(call, self._driver.destroyer)
        if isinstance(result, outcome.Error) and code_of(result.error) is not None:
            return result.error
        return TransactionMisused(ENDED)

    def _after_destruction(self, done: list[Run], last: Run) -> list[Call[Any]]:
        """The guilty is told; the innocent run again, unless the guilty may have committed what they did."""
        call, result = last
        verdict = self._verdict(call, result)
        # Otherwise the function said COMMIT or ROLLBACK in its own words, and which of them is not known.
        is_undone = self._driver.destroyer is not None or self._driver.in_transaction
        self._undo()
        self._destroyed += 1
        call.outcome = outcome.Error(verdict)
        if is_undone:
            return [innocent for innocent, _ in done]
        self._doubt(done, "another call of the same transaction ended it")
        return []

    def _undo(self) -> None:
        if not self._connection.closed:
            self._connection.rollback()
            self._driver.rollback()

    def _finish(self, done: list[Run]) -> list[Call[Any]]:
        """Make it last, then answer. Errors too: what a call met may be the work of another that is not yet certain."""
        if not any(isinstance(result, outcome.Value) for _, result in done):
            self._undo()
        elif (error := self._commit()) is not None:
            return self._after_failed_commit(done, error)
        for call, result in done:
            call.outcome = result
        return []

    def _commit(self) -> sqlite3.Error | None:
        if self._channels and self._counters is not None:
            try:
                self._counters.add(self._driver, self._channels, self._announced.others)
            except sqlite3.Error as error:
                return error
        failure = self._try_to_commit()
        if failure is None and self._channels:
            self._announced.note(self._channels)
            if self._counters is not None:
                self._counters.touch_file()
        return failure

    def _try_to_commit(self) -> sqlite3.Error | None:
        give_up_at = time.monotonic() + self._busy_s
        while True:
            try:
                self._driver.commit()
            except sqlite3.Error as error:
                if code_of(error) not in BUSY or time.monotonic() > give_up_at:
                    return error
                time.sleep(COMMIT_NAP_S)
            else:
                return None

    def _after_failed_commit(self, done: list[Run], error: sqlite3.Error) -> list[Call[Any]]:
        """Busy and full surely did not commit, nor did what is still open. Else the disk knows, and does not tell."""
        if self._counters is not None:
            self._counters.undo_added()
        surely_not = self._driver.in_transaction or code_of(error) == sqlite3.SQLITE_FULL
        is_unknown = code_of(error) == sqlite3.SQLITE_IOERR or not surely_not
        self._undo()
        if code_of(error) in BUSY:
            raise DatabaseAway(remedy_for(error)) from error
        if is_unknown:
            self._is_usable = False
            self._doubt(done, remedy_for(error))
            return []
        if len(done) > 1:
            self._destroyed = DESTROYED_MAX
            return [call for call, _ in done]
        call, _ = done[0]
        wrapped = DBAPIError.instance("COMMIT", None, error, sqlite3.Error, dialect=self._connection.dialect)
        call.outcome = outcome.Error(self._told(call, wrapped))
        return []

    def _doubt(self, done: list[Run], why: str) -> None:
        """Whoever would have been told of success is told of the doubt; who failed has surely changed nothing."""
        self._announced.note(self._channels, is_in_doubt=True)
        for call, result in done:
            unknown = CommitUnknown(f"COMMIT did not say whether it happened ({why}): look before repeating")
            call.outcome = outcome.Error(unknown) if isinstance(result, outcome.Value) else result


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
