"""Switches that survive a restart and hold for every process that shares the database."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, text

from storage.engine.columns import check_text, to_micros


def is_set(connection: Connection, name: str) -> bool:
    """Whether a switch is on. One that was never set is off."""
    return connection.execute(_GET, {"name": name}).scalar() == "on"


def set_flag(connection: Connection, name: str, *, is_on: bool, now: datetime) -> None:
    """Turn a switch on or off."""
    words = {"name": check_text(name), "value": "on" if is_on else "off", "now": to_micros(now)}
    connection.execute(_SET, words)


_GET = text("SELECT value FROM flags WHERE name = :name")
_SET = text("""
    INSERT INTO flags (name, value, changed_at) VALUES (:name, :value, :now)
    ON CONFLICT (name) DO UPDATE SET value = excluded.value, changed_at = excluded.changed_at
""")
