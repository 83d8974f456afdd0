"""The initial schema: all tables as `storage/tables.py` declares them now."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from storage.tables import METADATA

if TYPE_CHECKING:
    from alembic.operations import Operations

VERSION = 1
NAME = "initial"
MIN_CODE_VERSION = 1
TABLES = METADATA
"""A step with tables is the initial one: the runner creates them all at once in a new database."""


def upgrade(op: Operations) -> NoReturn:
    """No database is older than the initial schema."""
    raise AssertionError(f"the initial schema is created and not upgraded to: {op}")
