"""A database as pre-release versions of Cormorant made it: the record of its steps, and two of its tables."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection

STEPS: Final = (
    "flags",
    "jobs",
    "sources",
    "gate_links",
    "gate_feeds",
    "watches",
    "subscriptions",
    "prices",
    "job_uids",
    "price pauses",
    "catalogue_walks",
    "feed_memory",
    "written feeds",
)
"""The names of its steps, in order."""
_RECORD: Final = """
CREATE TABLE migrations (
    version INTEGER NOT NULL, name TEXT NOT NULL, min_code_version INTEGER NOT NULL, applied_at BIGINT NOT NULL,
    PRIMARY KEY (version)
)
"""
_FLAGS: Final = (
    "CREATE TABLE flags (name TEXT NOT NULL, value TEXT, changed_at BIGINT NOT NULL, PRIMARY KEY (name))",
    "INSERT INTO flags (name, value, changed_at) VALUES ('jobs.paused', 'true', 1767225600000000)",
)
_WORKERS: Final = (
    """
    CREATE TABLE workers (
        id TEXT NOT NULL, beat BIGINT DEFAULT 0 NOT NULL, beat_at BIGINT NOT NULL, dead_at BIGINT, kinds TEXT NOT NULL,
        version TEXT NOT NULL, PRIMARY KEY (id)
    )
    """,
    "INSERT INTO workers (id, beat, beat_at, kinds, version) VALUES ('attic.1', 3, 1767225600000000, '[]', '0.1.0')",
)


def make_pre_release(connection: Connection, steps: int = len(STEPS)) -> None:
    """Make such a database, by its first steps."""
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("PRAGMA auto_vacuum = INCREMENTAL")
        connection.exec_driver_sql("PRAGMA journal_mode = WAL")
    rows = ", ".join(f"({number}, '{name}', 1, 1767225600000000)" for number, name in enumerate(STEPS[:steps], 1))
    record = f"INSERT INTO migrations (version, name, min_code_version, applied_at) VALUES {rows}"  # noqa: S608 - written above
    for statement in (_RECORD, *_FLAGS, *(_WORKERS if steps > 1 else ()), record):
        connection.exec_driver_sql(statement)
