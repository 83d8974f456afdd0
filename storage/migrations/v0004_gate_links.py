"""Links that other apps were given for their downloads: ours stands for the site's, which may hold a key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import BigInteger, Column, Text

if TYPE_CHECKING:
    # Loading Alembic takes longer than opening the database, and most starts have nothing to migrate.
    from alembic.operations import Operations

VERSION = 4
NAME = "gate_links"
MIN_CODE_VERSION = 1


def upgrade(op: Operations) -> None:
    """Create the table and its index."""
    op.create_table(
        "gate_links",
        Column("ref", Text, primary_key=True),
        Column("source_id", BigInteger, nullable=False),
        Column("link", Text, nullable=False),
        Column("first_seen_at", BigInteger, nullable=False),
        Column("seen_at", BigInteger, nullable=False),
    )
    op.create_index("gate_links_seen", "gate_links", ["seen_at"])
