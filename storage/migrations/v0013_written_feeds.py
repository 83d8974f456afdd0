"""Subscriptions: the address in the settings file, which stays what it was when the feed has moved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Column, Text

if TYPE_CHECKING:
    # Loading Alembic takes longer than opening the database, and most starts have nothing to migrate.
    from alembic.operations import Operations

VERSION = 13
NAME = "written feeds"
MIN_CODE_VERSION = 1


def upgrade(op: Operations) -> None:
    """Add the column. Code that does not know it goes on taking another feed for the same one."""
    op.add_column("subscriptions", Column("written_url", Text))
