"""Subscriptions: what is no longer in a feed, folders, and one index less to keep at the end of each check."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import BigInteger, Column, Integer, Text, text

if TYPE_CHECKING:
    # Loading Alembic takes longer than opening the database, and most starts have nothing to migrate.
    from alembic.operations import Operations

VERSION = 12
NAME = "feed_memory"
MIN_CODE_VERSION = 1


def upgrade(op: Operations) -> None:
    """Add the columns, and change the indexes."""
    op.add_column("subscriptions", Column("folder", Text, nullable=False, server_default=text("'[]'")))
    op.add_column("subscription_items", Column("gone_at", BigInteger))
    # What is still there by subscription, and what is gone by time.
    op.create_index("subscription_items_gone", "subscription_items", ["gone_at", "subscription_id"])
    # Records are forgotten in the order of their numbers, which is that of time.
    op.drop_index("subscription_checks_started", "subscription_checks")
    if op.get_context().dialect.name == "sqlite":
        _number_plainly(op)


def _number_plainly(op: Operations) -> None:
    """Nobody names a record by its number: to never use one again is a second write to each, for nothing."""
    op.drop_index("subscription_checks_of", "subscription_checks")
    op.rename_table("subscription_checks", "subscription_checks_before")
    op.create_table(
        "subscription_checks",
        Column("id", Integer, primary_key=True),
        Column("subscription_id", BigInteger, nullable=False),
        Column("started_at", BigInteger, nullable=False),
        Column("status", Text, nullable=False),
        Column("items_found", Integer, nullable=False),
        Column("new_items", Integer, nullable=False),
        Column("duration_ms", BigInteger, nullable=False),
        Column("error", Text),
    )
    op.execute("INSERT INTO subscription_checks SELECT * FROM subscription_checks_before ORDER BY id")
    op.drop_table("subscription_checks_before")
    op.create_index("subscription_checks_of", "subscription_checks", ["subscription_id", "id"])
