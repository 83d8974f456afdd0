"""Watched prices: add, remove, pause, and find due ones."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from attrs import evolve
from sqlalchemy import Connection, text

from cormorant.rules.errors import CormorantError
from cormorant.rules.watch.prices import TAKEN_OUT, PriceWatch
from storage.engine.columns import check_text
from storage.tables import PRICES, RowCodec, excluded
from storage.watch import watches
from storage.watch.watches import WatchKind

CONFIGURED = "configured"
PRICE = RowCodec(PRICES, PriceWatch)


KIND = WatchKind(what="price", command="prices", section="prices")


class IntakeTakenOut(CormorantError):
    """It was one of the settings file, which has it no more: it can be looked at and removed, nothing else."""

    http_status = 409
    exit_code = 1

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name!r} was taken out of the settings file; write [prices.{name}] into it again and start anew, "
            f"or forget what was collected: cormorant prices remove {name}"
        )


def add(connection: Connection, intake: PriceWatch) -> PriceWatch:
    """Watch a price, or `AlreadyExists`."""
    found: int | None = connection.execute(_ADD, PRICE.to_row(intake)).scalar_one_or_none()
    if found is None:
        raise KIND.already_exists(intake.name)
    return evolve(intake, id=found)


def set_configured(connection: Connection, wanted: Sequence[PriceWatch]) -> None:
    """Make those of the settings file what it says now. One that it has no more stays with all that was collected, idle."""
    names = {each.name for each in wanted}
    for there in all_intakes(connection):
        if there.origin == CONFIGURED and there.name not in names:
            connection.execute(_TAKE_OUT, {"id": there.id, "origin": TAKEN_OUT})
    for intake in sorted(wanted, key=lambda each: each.name):
        connection.execute(_CONFIGURE, PRICE.to_row(evolve(intake, origin=CONFIGURED)))


def remove(connection: Connection, name: str) -> None:
    """Watch it no more, and forget all of it."""
    intake_id: int | None = connection.execute(_REMOVE, {"name": check_text(name)}).scalar_one_or_none()
    if intake_id is None:
        raise KIND.not_found(name)
    for forget in _FORGET:
        connection.execute(forget, {"id": intake_id})


def set_paused(connection: Connection, name: str, *, is_paused: bool) -> PriceWatch:
    """Ask nobody about it, or go on: at its time, and at once if that has passed."""
    intake = find(connection, name)
    if intake.origin == TAKEN_OUT:
        raise IntakeTakenOut(name)
    connection.execute(_PAUSE, {"id": intake.id, "is_paused": is_paused})
    return evolve(intake, is_paused=is_paused)


def all_intakes(connection: Connection) -> list[PriceWatch]:
    """All of them, by name."""
    return [PRICE.from_row(row) for row in connection.execute(_ALL)]


def find(connection: Connection, name: str) -> PriceWatch:
    """One of them, or `NotFound`."""
    row = connection.execute(_FIND, {"name": check_text(name)}).one_or_none()
    if row is None:
        raise KIND.not_found(name)
    return PRICE.from_row(row)


def by_id(connection: Connection, intake_id: int, *, lock: bool = False) -> PriceWatch | None:
    """One of them; None when it is gone. With `lock` nobody else values or removes it before this transaction ends."""
    is_locked = lock and connection.dialect.name == "postgresql"
    row = connection.execute(_LOCKED if is_locked else _BY_ID, {"id": intake_id}).one_or_none()
    return None if row is None else PRICE.from_row(row)


def due(connection: Connection, *, now: datetime, limit: int) -> list[PriceWatch]:
    """Prices that are due, the longest due first."""
    return [PRICE.from_row(row) for row in watches.due_for_jobs(connection, PRICE, now=now, limit=limit)]


_ADD = text(f"{PRICE.insert()} ON CONFLICT (name) DO NOTHING RETURNING id")
_WRITTEN = (
    "title",
    "year",
    "mintmark",
    "denomination",
    "series",
    "sources",
    "every_s",
    "currency",
    "below_cents",
    "above_cents",
    "origin",
)
_CONFIGURE = text(f"{PRICE.insert()} ON CONFLICT (name) DO UPDATE SET {excluded(_WRITTEN)}")
_TAKE_OUT = text("UPDATE intakes SET origin = :origin WHERE id = :id")
_PAUSE = text("UPDATE intakes SET is_paused = :is_paused WHERE id = :id")
_REMOVE = text("DELETE FROM intakes WHERE name = :name RETURNING id")
_FORGET = tuple(
    text(f"DELETE FROM {table} WHERE intake_id = :id")
    for table in ("price_points", "valuations", "valuation_history", "price_alerts")
)
_ALL = text(f"SELECT {PRICE.columns} FROM intakes ORDER BY name")
_FIND = text(f"SELECT {PRICE.columns} FROM intakes WHERE name = :name")
_BY_ID = text(f"SELECT {PRICE.columns} FROM intakes WHERE id = :id")
_LOCKED = text(f"SELECT {PRICE.columns} FROM intakes WHERE id = :id FOR UPDATE")
