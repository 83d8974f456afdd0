"""What is new at sources, kept for all apps and processes; and the apps that were added by command."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import BigInteger, Column, Float, Text, text

if TYPE_CHECKING:
    # Loading Alembic takes longer than opening the database, and most starts have nothing to migrate.
    from alembic.operations import Operations

VERSION = 5
NAME = "gate_feeds"
MIN_CODE_VERSION = 1


def upgrade(op: Operations) -> None:
    """Create the tables and their indexes."""
    op.create_table(
        "feed_polls",
        Column("source_id", BigInteger, primary_key=True),
        # When each category was last asked for, and when an app last wanted it.
        Column("fetched", Text, nullable=False, server_default=text("'{}'")),
        Column("wanted", Text, nullable=False, server_default=text("'{}'")),
        Column("taken_until", BigInteger),
    )
    op.create_table(
        "feed_items",
        Column("source_id", BigInteger, primary_key=True),
        Column("key", Text, primary_key=True),
        Column("sort_at", BigInteger, nullable=False),
        Column("rank", BigInteger, nullable=False),
        Column("seen_at", BigInteger, nullable=False),
        Column("categories", Text, nullable=False),
        Column("result", Text, nullable=False),
    )
    op.create_index("feed_items_newest", "feed_items", ["source_id", "sort_at"])
    op.create_index("feed_items_seen", "feed_items", ["seen_at"])
    op.create_table(
        "gate_clients",
        Column("name", Text, primary_key=True),
        Column("priority", Text, nullable=False),
        Column("hold_s", Float, nullable=False),
        Column("share", Float, nullable=False),
        # Only a digest: nobody who reads the database can ask in its name.
        Column("key_digest", Text, nullable=False),
        Column("added_at", BigInteger, nullable=False),
    )
