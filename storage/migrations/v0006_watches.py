"""Watches: artists and saved searches, what they want, what was found for it, and to whom it was handed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import BigInteger, Boolean, Column, Float, Identity, Integer, Text, false, text

if TYPE_CHECKING:
    # Loading Alembic takes longer than opening the database, and most starts have nothing to migrate.
    from alembic.operations import Operations

VERSION = 6
NAME = "watches"
MIN_CODE_VERSION = 1


def upgrade(op: Operations) -> None:
    """Create the tables and their indexes."""
    _create_artists(op)
    _create_saved_searches(op)
    _create_wants(op)
    _create_handovers(op)


def _id() -> Column[int]:
    return Column("id", BigInteger().with_variant(Integer, "sqlite"), Identity(), primary_key=True)


def _due_columns() -> list[Column[object]]:
    """What several processes share a schedule by: when it is due, and who has it in hand until when."""
    return [
        Column("is_paused", Boolean, nullable=False, server_default=false()),
        Column("next_attempt_at", BigInteger, nullable=False),
        Column("claimed_until", BigInteger),
        Column("token", BigInteger, nullable=False, server_default=text("0")),
        Column("failures", Integer, nullable=False, server_default=text("0")),
        Column("last_checked", BigInteger),
        Column("last_error", Text),
    ]


def _choice_columns() -> list[Column[object]]:
    return [
        Column("sources", Text, nullable=False, server_default=text("'[]'")),
        Column("profile", Text, nullable=False, server_default=text("''")),
        Column("targets", Text, nullable=False, server_default=text("'[]'")),
    ]


def _create_artists(op: Operations) -> None:
    op.create_table(
        "watchlist_artists",
        _id(),
        Column("source", Text, nullable=False),
        Column("artist_id", Text, nullable=False),
        Column("name", Text, nullable=False),
        Column("start", Text, nullable=False),
        Column("start_on", Text),
        Column("every_s", Float),
        *_choice_columns(),
        Column("origin", Text, nullable=False),
        Column("watermark", BigInteger),
        Column("retry_block_until", BigInteger),
        Column("added_at", BigInteger, nullable=False),
        *_due_columns(),
        sqlite_autoincrement=True,
    )
    op.create_index("watchlist_artists_artist", "watchlist_artists", ["source", "artist_id"], unique=True)
    _due_index(op, "watchlist_artists")


def _create_saved_searches(op: Operations) -> None:
    op.create_table(
        "saved_searches",
        _id(),
        Column("name", Text, nullable=False, unique=True),
        Column("request", Text, nullable=False),
        Column("every_s", Float, nullable=False),
        *_choice_columns(),
        Column("origin", Text, nullable=False),
        Column("first_check", Text, nullable=False),
        Column("added_at", BigInteger, nullable=False),
        *_due_columns(),
        sqlite_autoincrement=True,
    )
    _due_index(op, "saved_searches")


def _due_index(op: Operations, table: str) -> None:
    running = text("NOT is_paused")
    op.create_index(f"{table}_due", table, ["next_attempt_at", "id"], sqlite_where=running, postgresql_where=running)


def _create_wants(op: Operations) -> None:
    op.create_table(
        "wants",
        _id(),
        # Whatever finds it: it is wanted once.
        Column("key", Text, nullable=False, unique=True),
        Column("kind", Text, nullable=False),
        Column("title", Text, nullable=False),
        Column("artist", Text, nullable=False),
        Column("watch", Text, nullable=False),
        Column("state", Text, nullable=False),
        Column("reason", Text, nullable=False),
        *_choice_columns(),
        Column("facts", Text, nullable=False, server_default=text("'{}'")),
        Column("looks", Integer, nullable=False, server_default=text("0")),
        Column("chosen_ref", Text),
        Column("found_at", BigInteger, nullable=False),
        Column("changed_at", BigInteger, nullable=False),
        Column("next_at", BigInteger),
        sqlite_autoincrement=True,
    )
    op.create_index("wants_state", "wants", ["state", "id"])
    op.create_table(
        "candidates",
        Column("want_id", BigInteger, primary_key=True),
        Column("ref", Text, primary_key=True),
        Column("source", Text, nullable=False),
        Column("result", Text, nullable=False),
        Column("position", Integer),
        Column("reasons", Text, nullable=False),
        Column("merits", Text, nullable=False),
        Column("failed_because", Text),
        Column("found_at", BigInteger, nullable=False),
    )


def _create_handovers(op: Operations) -> None:
    op.create_table(
        "downloads",
        _id(),
        Column("want_id", BigInteger, nullable=False),
        Column("ref", Text, nullable=False),
        Column("target", Text, nullable=False),
        Column("key", Text, nullable=False, unique=True),
        Column("title", Text, nullable=False),
        Column("state", Text, nullable=False),
        Column("reason", Text, nullable=False),
        Column("asked", Integer, nullable=False, server_default=text("0")),
        Column("sent", Integer, nullable=False, server_default=text("0")),
        Column("facts", Text, nullable=False, server_default=text("'{}'")),
        Column("target_id", Text),
        Column("created_at", BigInteger, nullable=False),
        Column("changed_at", BigInteger, nullable=False),
        Column("next_at", BigInteger),
        sqlite_autoincrement=True,
    )
    # A want has one handover that counts: whatever goes wrong, nothing is fetched twice.
    counts = text("state <> 'failed'")
    op.create_index(
        "downloads_want", "downloads", ["want_id"], unique=True, sqlite_where=counts, postgresql_where=counts
    )
    followed = text("state = 'handed over'")
    op.create_index(
        "downloads_followed", "downloads", ["next_at", "id"], sqlite_where=followed, postgresql_where=followed
    )
