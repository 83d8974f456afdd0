"""How did checks of feeds go? Kept for a while."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, bindparam, text

from cormorant.rules.watch.feeds import CheckStatus, FeedCheck
from storage.engine.columns import from_micros, to_micros

LOOKED_AT = 10
"""For each that may go so many are looked at: some that a clock that ran ahead has dated do not keep the others."""


def recent_new(connection: Connection, number: int, *, limit: int) -> list[int]:
    """How many new items the last successful checks brought, newest first."""
    return list(connection.execute(_RECENT_NEW, {"id": number, "limit": limit}).scalars())


def checks(connection: Connection, number: int, *, limit: int = 20) -> list[FeedCheck]:
    """The last checks, newest first."""
    return [_check(row) for row in connection.execute(_CHECKS, {"id": number, "limit": limit})]


def last_checks(connection: Connection, numbers: Sequence[int]) -> dict[int, FeedCheck]:
    """The last check of each of these subscriptions, as far as there is one."""
    rows = connection.execute(_LAST, {"ids": list(numbers)})
    return {row.subscription_id: _check(row) for row in rows}


def prune_checks(connection: Connection, *, before: datetime, after: datetime, limit: int) -> int:
    """Forget old checks, oldest first: they came in the order of their numbers, but for jumps of the clock.

    Those that a clock that ran ahead has dated after that go as well: thousands of them would keep all others.
    """
    words = {"before": to_micros(before), "after": to_micros(after), "limit": limit, "looked_at": limit * LOOKED_AT}
    return connection.execute(_PRUNE, words).rowcount


def _check(row: Any) -> FeedCheck:
    return FeedCheck(
        subscription_id=row.subscription_id,
        started_at=from_micros(row.started_at),
        status=CheckStatus(row.status),
        items_found=row.items_found,
        new_items=row.new_items,
        duration_ms=row.duration_ms,
        error=row.error,
    )


_RECENT_NEW = text("""
    SELECT new_items FROM subscription_checks WHERE subscription_id = :id AND status = 'success'
    ORDER BY id DESC LIMIT :limit
""")
_CHECKS = text("SELECT * FROM subscription_checks WHERE subscription_id = :id ORDER BY id DESC LIMIT :limit")
_LAST = text("""
    SELECT * FROM subscription_checks WHERE id IN (
        SELECT MAX(id) FROM subscription_checks WHERE subscription_id IN :ids GROUP BY subscription_id)
""").bindparams(bindparam("ids", expanding=True))
_PRUNE = text("""
    DELETE FROM subscription_checks WHERE id IN (
        SELECT id FROM (SELECT id, started_at FROM subscription_checks ORDER BY id LIMIT :looked_at) AS first
        WHERE started_at < :before OR started_at > :after ORDER BY id LIMIT :limit)
""")
