"""A job is known by its uid as long as it waits: beyond that the index costs more than all else about a job on PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

if TYPE_CHECKING:
    # Loading Alembic takes longer than opening the database, and most starts have nothing to migrate.
    from alembic.operations import Operations

VERSION = 9
NAME = "job_uids"
MIN_CODE_VERSION = 1

WAITING = "state IN ('pending', 'retryable')"


def upgrade(op: Operations) -> None:
    """Make the index smaller. SQLite writes to an index only where its columns change, and keeps it."""
    if op.get_context().dialect.name == "postgresql":
        op.drop_constraint("jobs_uid_key", "jobs")
        op.create_index("jobs_uid", "jobs", ["uid"], unique=True, postgresql_where=text(WAITING))
