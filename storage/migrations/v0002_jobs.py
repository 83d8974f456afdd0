"""Durable jobs, the processes that work on them, and the kinds that are paused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import BigInteger, Boolean, Column, Identity, Integer, SmallInteger, Text, false, text

if TYPE_CHECKING:
    # Loading Alembic takes longer than opening the database, and most starts have nothing to migrate.
    from alembic.operations import Operations

VERSION = 2
NAME = "jobs"
MIN_CODE_VERSION = 1

WAITING = "state IN ('pending', 'retryable')"
LIVE = "state IN ('pending', 'retryable', 'running')"
FINISHED = "state IN ('succeeded', 'failed', 'cancelled')"

# A job table is rewritten all day: vacuum by count, not by share, and without naps.
AUTOVACUUM = (
    "ALTER TABLE jobs SET (fillfactor = 85, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, "
    "autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 20000)"
)


def upgrade(op: Operations) -> None:
    """Create the tables and their indexes."""
    op.create_table(
        "jobs",
        # Ids are never used again: a stale worker must not complete another job that got the number of its own.
        Column("id", BigInteger().with_variant(Integer, "sqlite"), Identity(), primary_key=True),
        Column("uid", Text, nullable=False, unique=True),
        Column("kind", Text, nullable=False),
        Column("state", Text, nullable=False),
        Column("priority", SmallInteger, nullable=False),
        Column("run_at", BigInteger, nullable=False),
        Column("held", Boolean, nullable=False, server_default=false()),
        Column("attempts", Integer, nullable=False, server_default=text("0")),
        Column("max_attempts", Integer, nullable=False),
        Column("reclaims", Integer, nullable=False, server_default=text("0")),
        Column("token", Integer, nullable=False, server_default=text("0")),
        Column("owner", Text),
        Column("enqueued_at", BigInteger, nullable=False),
        Column("claimed_at", BigInteger),
        Column("finished_at", BigInteger),
        Column("dedupe_key", Text),
        Column("payload", Text, nullable=False),
        Column("rerun_payload", Text),
        Column("correlation_id", Text),
        Column("last_errors", Text),
        sqlite_autoincrement=True,
    )
    _index(op, "jobs_claim", ["priority", "run_at", "id"], where=f"{WAITING} AND NOT held")
    _index(op, "jobs_owner", ["owner", "id"], where="state = 'running'")
    _index(op, "jobs_live", ["kind", "dedupe_key"], where=f"dedupe_key IS NOT NULL AND {LIVE}", unique=True)
    _index(op, "jobs_finished", ["finished_at", "id"], where=FINISHED)
    op.create_table(
        "workers",
        Column("id", Text, primary_key=True),
        Column("beat", BigInteger, nullable=False, server_default=text("0")),
        Column("beat_at", BigInteger, nullable=False),
        Column("dead_at", BigInteger),
        Column("kinds", Text, nullable=False),
        Column("version", Text, nullable=False),
    )
    op.create_table(
        "paused_kinds", Column("kind", Text, primary_key=True), Column("paused_at", BigInteger, nullable=False)
    )
    if op.get_context().dialect.name == "postgresql":
        op.execute(AUTOVACUUM)


def _index(op: Operations, name: str, columns: list[str], *, where: str, unique: bool = False) -> None:
    op.create_index(name, "jobs", columns, unique=unique, sqlite_where=text(where), postgresql_where=text(where))
