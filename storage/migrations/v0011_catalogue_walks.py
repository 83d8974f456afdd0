"""How far the list of an artist's releases was read, kept between ticks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import BigInteger, Column, Text

if TYPE_CHECKING:
    # Loading Alembic takes longer than opening the database, and most starts have nothing to migrate.
    from alembic.operations import Operations

VERSION = 11
NAME = "catalogue_walks"
MIN_CODE_VERSION = 1


def upgrade(op: Operations) -> None:
    """Create the table."""
    op.create_table(
        "catalogue_walks",
        Column("source", Text, primary_key=True),
        Column("artist_id", Text, primary_key=True),
        Column("began_at", BigInteger, nullable=False),
        Column("walk", Text, nullable=False),
    )
