"""Prices: things whose price is watched, what sources state of them, what they are worth, and alerts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import BigInteger, Column, Float, Identity, Integer, Text

if TYPE_CHECKING:
    # Loading Alembic takes longer than opening the database, and most starts have nothing to migrate.
    from alembic.operations import Operations

VERSION = 8
NAME = "prices"
MIN_CODE_VERSION = 1


def upgrade(op: Operations) -> None:
    """Create the tables and their indexes."""
    _create_intakes(op)
    _create_points(op)
    _create_valuations(op)


def _id() -> Column[int]:
    return Column("id", BigInteger().with_variant(Integer, "sqlite"), Identity(), primary_key=True)


def _create_intakes(op: Operations) -> None:
    op.create_table(
        "intakes",
        _id(),
        Column("name", Text, nullable=False, unique=True),
        Column("title", Text, nullable=False),
        Column("year", Text, nullable=False),
        Column("mintmark", Text, nullable=False),
        Column("denomination", Text, nullable=False),
        Column("series", Text, nullable=False),
        Column("sources", Text, nullable=False),
        Column("every_s", Float, nullable=False),
        Column("currency", Text, nullable=False),
        Column("below_cents", BigInteger),
        Column("above_cents", BigInteger),
        Column("origin", Text, nullable=False),
        Column("next_attempt_at", BigInteger, nullable=False),
        Column("added_at", BigInteger, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("intakes_due", "intakes", ["next_attempt_at", "id"])


def _create_points(op: Operations) -> None:
    op.create_table(
        "price_points",
        # Together: the same point is there once, however often it is stated.
        Column("intake_id", BigInteger, primary_key=True),
        Column("source", Text, primary_key=True),
        Column("dedupe_key", Text, primary_key=True),
        Column("title", Text, nullable=False),
        Column("url", Text, nullable=False),
        Column("cents", BigInteger, nullable=False),
        Column("currency", Text, nullable=False),
        Column("type", Text, nullable=False),
        Column("day", Text, nullable=False),
        Column("external_id", Text),
        Column("match_strength", Integer, nullable=False),
        Column("seen_at", BigInteger, nullable=False),
    )
    op.create_index("price_points_newest", "price_points", ["intake_id", "day", "seen_at"])


def _value_columns() -> list[Column[object]]:
    return [
        Column("cents", BigInteger, nullable=False),
        Column("currency", Text, nullable=False),
        Column("points", Integer, nullable=False),
        Column("match_strength", Integer, nullable=False),
        Column("others", Integer, nullable=False),
        Column("valued_at", BigInteger, nullable=False),
        Column("side", Text, nullable=False),
    ]


def _create_valuations(op: Operations) -> None:
    op.create_table(
        "valuations", Column("intake_id", BigInteger, primary_key=True, autoincrement=False), *_value_columns()
    )
    op.create_table(
        "valuation_history",
        _id(),
        Column("intake_id", BigInteger, nullable=False),
        *_value_columns(),
        sqlite_autoincrement=True,
    )
    op.create_index("valuation_history_of", "valuation_history", ["intake_id", "id"])
    op.create_table(
        "price_alerts",
        _id(),
        Column("intake_id", BigInteger, nullable=False),
        Column("side", Text, nullable=False),
        Column("limit_cents", BigInteger, nullable=False),
        Column("cents", BigInteger, nullable=False),
        Column("currency", Text, nullable=False),
        Column("raised_at", BigInteger, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("price_alerts_of", "price_alerts", ["intake_id", "id"])
