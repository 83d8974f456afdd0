"""Sources: which there are, what was spent at each, what was asked, and what they answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import BigInteger, Boolean, Column, Float, Identity, Integer, SmallInteger, Text, false, text, true

if TYPE_CHECKING:
    # Loading Alembic takes longer than opening the database, and most starts have nothing to migrate.
    from alembic.operations import Operations

VERSION = 3
NAME = "sources"
MIN_CODE_VERSION = 1


def upgrade(op: Operations) -> None:
    """Create the tables and their indexes."""
    _create_sources(op)
    _create_state(op)
    _create_answers(op)


def _create_sources(op: Operations) -> None:
    op.create_table(
        "sources",
        Column("id", BigInteger().with_variant(Integer, "sqlite"), Identity(), primary_key=True),
        # One account at one site, whatever it is called: re-adding it must find what was spent.
        Column("identity", Text, nullable=False, unique=True),
        Column("name", Text, nullable=False),
        Column("kind", Text, nullable=False),
        Column("url", Text, nullable=False),
        Column("key", Text, nullable=False, server_default=text("''")),
        Column("proxy", Text, nullable=False, server_default=text("''")),
        Column("limits", Text, nullable=False, server_default=text("'{}'")),
        Column("origin", Text, nullable=False),
        Column("is_removed", Boolean, nullable=False, server_default=false()),
        Column("caps", Text),
        Column("caps_at", BigInteger),
        Column("changed_at", BigInteger, nullable=False),
        sqlite_autoincrement=True,
    )
    unremoved = text("NOT is_removed")
    op.create_index(
        "sources_name", "sources", ["name"], unique=True, sqlite_where=unremoved, postgresql_where=unremoved
    )


def _create_state(op: Operations) -> None:
    op.create_table(
        "source_state",
        Column("source_id", BigInteger, primary_key=True),
        Column("is_enabled", Boolean, nullable=False, server_default=true()),
        Column("is_paused", Boolean, nullable=False, server_default=false()),
        Column("paused_until", BigInteger),
        Column("stopped_because", Text),
        Column("cooldown_until", BigInteger),
        Column("cooldown_level", Integer, nullable=False, server_default=text("0")),
        Column("breaker_state", Text, nullable=False, server_default=text("'closed'")),
        Column("breaker_failures", Integer, nullable=False, server_default=text("0")),
        Column("breaker_open_until", BigInteger),
        Column("breaker_probes", Text, nullable=False, server_default=text("'[]'")),
        Column("generation", BigInteger, nullable=False, server_default=text("0")),
        Column("failure_streak", Integer, nullable=False, server_default=text("0")),
        Column("last_success_at", BigInteger),
        Column("last_failure_at", BigInteger),
        *(column for lane in ("query", "grab") for column in _lane_columns(lane)),
        Column("learned", Text, nullable=False, server_default=text("'{}'")),
        # Rises with every change, so that one statement can both ask whether a copy is up to date and write.
        Column("version", BigInteger, nullable=False, server_default=text("1")),
    )
    op.create_table(
        "source_requests",
        Column("source_id", BigInteger, primary_key=True),
        Column("lane", Text, primary_key=True),
        Column("seq", BigInteger, primary_key=True),
        Column("at", BigInteger, nullable=False),
        Column("expires_at", BigInteger, nullable=False),
        Column("consumer", Text, nullable=False),
    )
    op.create_index("source_requests_at", "source_requests", ["at"])


def _lane_columns(lane: str) -> list[Column[object]]:
    return [
        Column(f"{lane}_last_seq", BigInteger, nullable=False, server_default=text("0")),
        Column(f"{lane}_last_at", BigInteger),
        Column(f"{lane}_last_end_at", BigInteger),
        Column(f"{lane}_tokens", Float),
        Column(f"{lane}_tokens_at", BigInteger),
        Column(f"{lane}_in_flight", Text, nullable=False, server_default=text("'[]'")),
    ]


def _create_answers(op: Operations) -> None:
    op.create_table(
        "search_history",
        Column("id", BigInteger().with_variant(Integer, "sqlite"), Identity(), primary_key=True),
        Column("search_id", BigInteger, nullable=False),
        Column("task", BigInteger, nullable=False),
        Column("source", Text, nullable=False),
        Column("query", Text, nullable=False),
        Column("priority", SmallInteger, nullable=False),
        Column("consumer", Text, nullable=False),
        Column("status", Text, nullable=False),
        Column("results", Integer, nullable=False),
        Column("started_at", BigInteger, nullable=False),
        Column("took_s", Float, nullable=False),
        Column("waited_s", Float, nullable=False),
        Column("error", Text),
        sqlite_autoincrement=True,
    )
    op.create_index("search_history_started", "search_history", ["started_at"])
    op.create_table(
        "search_cache",
        Column("source_id", BigInteger, primary_key=True),
        Column("key", Text, primary_key=True),
        Column("stored_at", BigInteger, nullable=False),
        Column("expires_at", BigInteger, nullable=False),
        Column("results", Text, nullable=False),
    )
    op.create_index("search_cache_expires", "search_cache", ["expires_at"])
    op.create_table(
        "search_ledger",
        Column("job_id", BigInteger, primary_key=True),
        Column("source", Text, primary_key=True),
        Column("status", Text, nullable=False),
        Column("answered_at", BigInteger, nullable=False),
        Column("results", Text, nullable=False, server_default=text("'[]'")),
        Column("error", Text),
    )
