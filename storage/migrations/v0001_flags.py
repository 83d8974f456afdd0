"""Switches that survive a restart, such as `paused`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import BigInteger, Column, Text

if TYPE_CHECKING:
    # Loading Alembic takes longer than opening the database, and most starts have nothing to migrate.
    from alembic.operations import Operations

VERSION = 1
NAME = "flags"
MIN_CODE_VERSION = 1


def upgrade(op: Operations) -> None:
    """Create the table of switches."""
    op.create_table(
        "flags",
        Column("name", Text, primary_key=True),
        Column("value", Text),
        Column("changed_at", BigInteger, nullable=False),
    )
