"""How do several processes share a table of what is due? Each takes what no other has locked."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, TextClause, text

__all__ = ["SKIP_LOCKED", "passing_locked"]

SKIP_LOCKED: Final = "FOR UPDATE SKIP LOCKED"


def passing_locked(connection: Connection, sql: str) -> TextClause:
    """A statement that goes past rows which another holds, where its text says `{lock}`. SQLite has one writer, and no need."""
    return text(sql.format(lock=SKIP_LOCKED if connection.dialect.name == "postgresql" else ""))
