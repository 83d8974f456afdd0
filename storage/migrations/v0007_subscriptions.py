"""Subscriptions: feeds, what was in them, and how checks of them went."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import BigInteger, Boolean, Column, Float, Identity, Integer, Text, false, text, true

if TYPE_CHECKING:
    # Loading Alembic takes longer than opening the database, and most starts have nothing to migrate.
    from alembic.operations import Operations

VERSION = 7
NAME = "subscriptions"
MIN_CODE_VERSION = 1


def upgrade(op: Operations) -> None:
    """Create the tables and their indexes."""
    op.create_table(
        "subscriptions",
        _id(),
        Column("name", Text, nullable=False, unique=True),
        Column("url", Text, nullable=False),
        Column("has_moved", Boolean, nullable=False, server_default=false()),
        Column("every_s", Float),
        Column("cron", Text),
        Column("zone", Text, nullable=False),
        Column("effective_s", Float),
        Column("is_adaptive", Boolean, nullable=False, server_default=false()),
        Column("auto_import", Boolean, nullable=False, server_default=true()),
        Column("takes_first", Boolean, nullable=False, server_default=false()),
        Column("accept", Text, nullable=False, server_default=text("'[]'")),
        Column("reject", Text, nullable=False, server_default=text("'[]'")),
        Column("targets", Text, nullable=False, server_default=text("'[]'")),
        Column("origin", Text, nullable=False),
        Column("is_paused", Boolean, nullable=False, server_default=false()),
        Column("paused_because", Text),
        Column("next_check_at", BigInteger, nullable=False),
        Column("claimed_until", BigInteger),
        Column("token", BigInteger, nullable=False, server_default=text("0")),
        Column("etag", Text),
        Column("last_modified", Text),
        Column("failures", Integer, nullable=False, server_default=text("0")),
        Column("last_checked", BigInteger),
        Column("last_success", BigInteger),
        Column("last_error", Text),
        Column("added_at", BigInteger, nullable=False),
        sqlite_autoincrement=True,
    )
    running = text("NOT is_paused")
    op.create_index(
        "subscriptions_due",
        "subscriptions",
        ["next_check_at", "id"],
        sqlite_where=running,
        postgresql_where=running,
    )
    op.create_table(
        "subscription_items",
        Column("subscription_id", BigInteger, primary_key=True),
        Column("key", Text, primary_key=True),
        Column("title", Text, nullable=False),
        Column("published_at", BigInteger),
        Column("seen_at", BigInteger, nullable=False),
    )
    op.create_table(
        "subscription_checks",
        _id(),
        Column("subscription_id", BigInteger, nullable=False),
        Column("started_at", BigInteger, nullable=False),
        Column("status", Text, nullable=False),
        Column("items_found", Integer, nullable=False),
        Column("new_items", Integer, nullable=False),
        Column("duration_ms", BigInteger, nullable=False),
        Column("error", Text),
        sqlite_autoincrement=True,
    )
    op.create_index("subscription_checks_of", "subscription_checks", ["subscription_id", "id"])
    op.create_index("subscription_checks_started", "subscription_checks", ["started_at"])


def _id() -> Column[int]:
    return Column("id", BigInteger().with_variant(Integer, "sqlite"), Identity(), primary_key=True)
