"""Watched prices: add, remove, pause, and claim due ones."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from attrs import evolve
from sqlalchemy import Connection, text

from cormorant.rules.errors import CormorantError
from cormorant.rules.watch.prices import TAKEN_OUT, PriceWatch
from cormorant.rules.watch.watches import next_check
from storage.engine.columns import check_text, from_micros, to_micros

CONFIGURED = "configured"


class UnknownPriceWatch(CormorantError):
    """No price is watched under this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no price is watched as {name!r}; `cormorant prices list` shows them")


class PriceWatchExists(CormorantError):
    """A price is watched under this name already."""

    def __init__(self, name: str) -> None:
        super().__init__(f"a price is watched as {name!r} already; choose another name, or remove it first")


class PriceWatchConfigured(CormorantError):
    """It stands in the settings file, and is changed there."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name!r} is one of the settings file; take [prices.{name}] out of it")


class IntakeTakenOut(CormorantError):
    """It was one of the settings file, which has it no more: it can be looked at and removed, nothing else."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name!r} was taken out of the settings file; write [prices.{name}] into it again and start anew, "
            f"or forget what was collected: cormorant prices remove {name}"
        )


def add(connection: Connection, intake: PriceWatch) -> PriceWatch:
    """Watch a price, or `PriceWatchExists`."""
    found: int | None = connection.execute(_ADD, _plain(intake)).scalar_one_or_none()
    if found is None:
        raise PriceWatchExists(intake.name)
    return evolve(intake, id=found)


def set_configured(connection: Connection, wanted: Sequence[PriceWatch]) -> None:
    """Make those of the settings file what it says now. One that it has no more stays with all that was collected, idle."""
    names = {each.name for each in wanted}
    for there in all_intakes(connection):
        if there.origin == CONFIGURED and there.name not in names:
            connection.execute(_TAKE_OUT, {"id": there.id, "origin": TAKEN_OUT})
    for intake in sorted(wanted, key=lambda each: each.name):
        connection.execute(_CONFIGURE, _plain(evolve(intake, origin=CONFIGURED)))


def remove(connection: Connection, name: str) -> None:
    """Watch it no more, and forget all of it."""
    intake_id: int | None = connection.execute(_REMOVE, {"name": check_text(name)}).scalar_one_or_none()
    if intake_id is None:
        raise UnknownPriceWatch(name)
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
    return [_intake(row) for row in connection.execute(_ALL)]


def find(connection: Connection, name: str) -> PriceWatch:
    """One of them, or `UnknownPriceWatch`."""
    row = connection.execute(_FIND, {"name": check_text(name)}).one_or_none()
    if row is None:
        raise UnknownPriceWatch(name)
    return _intake(row)


def by_id(connection: Connection, intake_id: int, *, lock: bool = False) -> PriceWatch | None:
    """One of them; None when it is gone. With `lock` nobody else values or removes it before this transaction ends."""
    is_locked = lock and connection.dialect.name == "postgresql"
    row = connection.execute(_LOCKED if is_locked else _BY_ID, {"id": intake_id}).one_or_none()
    return None if row is None else _intake(row)


def due(connection: Connection, *, now: datetime, limit: int) -> list[PriceWatch]:
    """Intakes that are due, oldest first."""
    words = {"now": to_micros(now), "limit": limit, "taken_out": TAKEN_OUT}
    return [_intake(row) for row in connection.execute(_DUE, words)]


def take(connection: Connection, intake: PriceWatch, *, now: datetime) -> bool:
    """Take a due intake and set its next time. False: another process took it, or it was paused or removed."""
    words = {
        "id": intake.id,
        "due": to_micros(intake.next_attempt_at),
        "next": _next_us(intake, now),
        "taken_out": TAKEN_OUT,
    }
    return connection.execute(_TAKE, words).rowcount == 1


def postpone(connection: Connection, intake: PriceWatch, *, now: datetime) -> None:
    """It was taken in hand, and is due again after its time."""
    connection.execute(_PUT_OFF, {"id": intake.id, "next": _next_us(intake, now)})


def _next_us(intake: PriceWatch, now: datetime) -> int:
    return to_micros(next_check(due=intake.next_attempt_at, every_s=intake.every_s, now=now))


def _plain(intake: PriceWatch) -> dict[str, Any]:
    return {
        "name": check_text(intake.name),
        "title": check_text(intake.title),
        "year": check_text(intake.year),
        "mintmark": check_text(intake.mintmark),
        "denomination": check_text(intake.denomination),
        "series": check_text(intake.series),
        "sources": json.dumps(intake.sources),
        "every_s": intake.every_s,
        "currency": intake.currency,
        "below": intake.below_cents,
        "above": intake.above_cents,
        "origin": intake.origin,
        "next": to_micros(intake.next_attempt_at),
        "now": to_micros(intake.added_at),
    }


def _intake(row: Any) -> PriceWatch:
    return PriceWatch(
        id=row.id,
        name=row.name,
        title=row.title,
        year=row.year,
        mintmark=row.mintmark,
        denomination=row.denomination,
        series=row.series,
        sources=tuple(json.loads(row.sources)),
        every_s=row.every_s,
        currency=row.currency,
        below_cents=row.below_cents,
        above_cents=row.above_cents,
        origin=row.origin,
        is_paused=bool(row.is_paused),
        next_attempt_at=from_micros(row.next_attempt_at),
        added_at=from_micros(row.added_at),
    )


_INSERT = """
    INSERT INTO intakes (name, title, year, mintmark, denomination, series, sources, every_s, currency, below_cents,
                         above_cents, origin, next_attempt_at, added_at)
    VALUES (:name, :title, :year, :mintmark, :denomination, :series, :sources, :every_s, :currency, :below, :above, :origin,
            :next, :now)
"""
_ADD = text(f"{_INSERT} ON CONFLICT (name) DO NOTHING RETURNING id")
_CONFIGURE = text(f"""
    {_INSERT} ON CONFLICT (name) DO UPDATE SET title = excluded.title, year = excluded.year, mintmark = excluded.mintmark,
        denomination = excluded.denomination, series = excluded.series, sources = excluded.sources,
        every_s = excluded.every_s, currency = excluded.currency, below_cents = excluded.below_cents,
        above_cents = excluded.above_cents, origin = excluded.origin
""")
_TAKE_OUT = text("UPDATE intakes SET origin = :origin WHERE id = :id")
_PAUSE = text("UPDATE intakes SET is_paused = :is_paused WHERE id = :id")
_REMOVE = text("DELETE FROM intakes WHERE name = :name RETURNING id")
_FORGET = tuple(
    text(f"DELETE FROM {table} WHERE intake_id = :id")  # noqa: S608 - names of our own
    for table in ("price_points", "valuations", "valuation_history", "price_alerts")
)
_ALL = text("SELECT * FROM intakes ORDER BY name")
_FIND = text("SELECT * FROM intakes WHERE name = :name")
_BY_ID = text("SELECT * FROM intakes WHERE id = :id")
_LOCKED = text("SELECT * FROM intakes WHERE id = :id FOR UPDATE")
# What is due after more than twice its time was put off by a clock that ran ahead.
_DUE = text("""
    SELECT * FROM intakes
    WHERE NOT is_paused AND origin <> :taken_out
        AND (next_attempt_at <= :now OR next_attempt_at > :now + 2000000 * every_s)
    ORDER BY next_attempt_at, id LIMIT :limit
""")
_TAKE = text("""
    UPDATE intakes SET next_attempt_at = :next
    WHERE id = :id AND next_attempt_at = :due AND NOT is_paused AND origin <> :taken_out
""")
_PUT_OFF = text("UPDATE intakes SET next_attempt_at = :next WHERE id = :id")
