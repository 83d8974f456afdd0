"""How do many jobs get into the table quickly? By one statement for each page, past the API: it is not what is measured."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Protocol

from attrs import frozen
from sqlalchemy import Connection, text

from storage.engine.columns import to_micros

KIND = "noop"
PAGE = 50_000
"""Far within the statement time-out, also on a slow disk."""


@frozen(kw_only=True)
class Batch:
    """Jobs that are alike."""

    count: int
    kind: str = KIND
    priority: int = 5
    due_in: timedelta = timedelta(seconds=-1)
    is_held: bool = False


class Transact(Protocol):
    """Runs a function of a connection in a transaction: a service's or a gateway's."""

    async def __call__(self, function: Callable[..., Any], /) -> Any: ...


async def seed(transact: Transact, batch: Batch, *, now: datetime) -> None:
    """Insert a batch, page by page."""
    for first in range(0, batch.count, PAGE):
        await transact(partial(_insert, batch=batch, first=first, now=now))


def _insert(connection: Connection, *, batch: Batch, first: int, now: datetime) -> None:
    is_postgres = connection.dialect.name == "postgresql"
    connection.execute(
        _INSERT_POSTGRES if is_postgres else _INSERT_SQLITE,
        {
            "kind": batch.kind,
            "priority": batch.priority,
            "run_at": to_micros(now + batch.due_in),
            "held": batch.is_held,
            "now": to_micros(now),
            "opening": '{"n":',
            "first": first,
            "last": min(first + PAGE, batch.count) - 1,
        },
    )


# The time differs from row to row, as it does in life.
_INSERT_POSTGRES = text("""
    INSERT INTO jobs (uid, kind, state, priority, run_at, held, max_attempts, enqueued_at, payload)
    SELECT replace(CAST(gen_random_uuid() AS text), '-', ''), :kind, 'pending', :priority, :run_at + number, :held, 10, :now,
           CAST(:opening AS text) || number || '}'
    FROM generate_series(CAST(:first AS bigint), CAST(:last AS bigint)) AS number
""")
_INSERT_SQLITE = text("""
    WITH RECURSIVE numbers(number) AS (SELECT :first UNION ALL SELECT number + 1 FROM numbers WHERE number < :last)
    INSERT INTO jobs (uid, kind, state, priority, run_at, held, max_attempts, enqueued_at, payload)
    SELECT lower(hex(randomblob(16))), :kind, 'pending', :priority, :run_at + number, :held, 10, :now,
           :opening || number || '}'
    FROM numbers
""")
