"""Prices can be left alone for a while, one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Boolean, Column, false

if TYPE_CHECKING:
    # Loading Alembic takes longer than opening the database, and most starts have nothing to migrate.
    from alembic.operations import Operations

VERSION = 10
NAME = "price pauses"
MIN_CODE_VERSION = 1


def upgrade(op: Operations) -> None:
    """Add the column. Code that does not know it goes on asking."""
    op.add_column("intakes", Column("is_paused", Boolean, nullable=False, server_default=false()))
