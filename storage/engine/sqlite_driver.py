"""What may a storage function not do to its connection on SQLite, and what destroyed its transaction?"""

from __future__ import annotations

import sqlite3
from typing import NoReturn

from sqlalchemy import Engine, event
from sqlalchemy.engine import ExceptionContext
from typing_extensions import override

from cormorant.rules.errors import TransactionMisused

ENDED = "a storage function ended its transaction or connection itself: leave that to the gateway, use begin_nested()"


class GuardedSqliteConnection(sqlite3.Connection):
    """A driver's connection that a storage function cannot commit, roll back or close."""

    is_guarded = False
    destroyer: BaseException | None = None
    """What ended the transaction as a whole, even if the function caught it."""

    @override
    def commit(self) -> None:
        if self.is_guarded:
            self._refuse()
        super().commit()

    @override
    def rollback(self) -> None:
        if not self.is_guarded:
            super().rollback()
        elif self.destroyer is None:
            self._refuse()

    @override
    def close(self) -> None:
        # The first time it is refused. SQLAlchemy comes again, to clean up after the refusal, and must find peace.
        if self.is_guarded and self.destroyer is None:
            self._refuse()
        super().close()

    def _refuse(self) -> NoReturn:
        self.destroyer = TransactionMisused(ENDED)
        raise self.destroyer


def note_destroyers(engine: Engine) -> None:
    """Remember errors that destroy a transaction. Of all events of SQLAlchemy, this one costs nothing per statement."""

    @event.listens_for(engine, "handle_error")
    def note(context: ExceptionContext) -> None:
        driver = context.connection and context.connection.connection.driver_connection
        if isinstance(driver, GuardedSqliteConnection) and driver.is_guarded and not driver.in_transaction:
            driver.destroyer = driver.destroyer or context.sqlalchemy_exception or context.original_exception
