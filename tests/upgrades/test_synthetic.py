"""A made-up version after the last real one: the upgrade, its backup, failures half-way, and older code."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest
import trio
from alembic.operations import Operations
from sqlalchemy import Connection, text

from cormorant.rules.errors import DatabaseNeedsNewerCode, MigrationFailed
from cormorant.rules.events import SchemaMigrated
from storage.database import inspect
from storage.migrations import SCHEMA_VERSION
from tests.storage.support import gateway, serving
from tests.upgrades.databases import (
    ADDED,
    NEXT,
    Rows,
    add_label,
    connected,
    fill,
    next_with,
    opened,
    rows_of,
    schema_of,
    versions_of,
)

pytestmark = pytest.mark.slow("makes every table, and upgrades them")


@pytest.fixture
async def old(url: str) -> Rows:
    """The rows of a database of the current version, with rows in every table."""
    await opened(url)
    connected(url, fill)
    return connected(url, rows_of)


def labelled(rows: Rows) -> Rows:
    """The rows as the made-up version leaves them."""
    return rows | {"wants": [row | {"label": f"{row['title']}!"} for row in rows["wants"]]}


def add_a_want(connection: Connection) -> None:
    connection.execute(
        text("""
            INSERT INTO wants (key, kind, title, artist, watch, state, reason, found_at, changed_at)
            VALUES ('new', 'k', 't', 'a', 'w', 's', 'r', 1, 1)
        """)
    )


async def test_an_upgrade_changes_the_tables_and_keeps_every_row(url: str, old: Rows) -> None:
    (told,) = await opened(url, NEXT)

    assert isinstance(told, SchemaMigrated)
    assert (told.from_version, told.to_version) == (SCHEMA_VERSION, ADDED.VERSION)
    assert connected(url, rows_of) == labelled(old)
    assert connected(url, versions_of) == [step.VERSION for step in NEXT]
    assert await opened(url, NEXT) == [], "a second start has nothing to do"


async def test_an_upgraded_database_has_the_schema_of_a_new_one(url: str, new_url: str, old: Rows) -> None:
    before = connected(url, schema_of)

    await opened(url, NEXT)
    (told,) = await opened(new_url, NEXT)

    assert told == SchemaMigrated(from_version=0, to_version=ADDED.VERSION, backup=None)
    assert connected(url, schema_of) == connected(new_url, schema_of)
    assert connected(url, schema_of).keys() - before.keys() == {"wants.label", "wants index wants_label"}
    assert connected(new_url, versions_of) == connected(url, versions_of)


async def test_a_sqlite_file_is_saved_before_an_upgrade(sqlite_url: str, tmp_path: Path) -> None:
    await opened(sqlite_url)
    connected(sqlite_url, fill)
    rows, schema = connected(sqlite_url, rows_of), connected(sqlite_url, schema_of)

    (told,) = await opened(sqlite_url, NEXT, backup_folder=tmp_path / "saved")

    backup = tmp_path / "saved" / f"old.schema-{SCHEMA_VERSION}.backup.db"
    assert isinstance(told, SchemaMigrated)
    assert told.backup == str(backup)
    assert (connected(f"sqlite:///{backup}", rows_of), connected(f"sqlite:///{backup}", schema_of)) == (rows, schema)
    assert await opened(f"sqlite:///{backup}") == [], "the older code opens it"


def fail_half_way(op: Operations) -> None:
    add_label(op)
    op.execute("DELETE FROM flags")
    op.execute("INSERT INTO no_such_table VALUES (1)")


async def test_an_upgrade_that_fails_half_way_leaves_the_old_version_usable(url: str, old: Rows) -> None:
    before = connected(url, schema_of)

    with pytest.raises(MigrationFailed, match=r"\(synthetic\) failed and changed nothing"):
        await gateway(url, migrations=next_with(fail_half_way))()

    assert (connected(url, schema_of), connected(url, rows_of)) == (before, old)
    async with serving(gateway(url), with_notes=False) as database:
        await database.run(add_a_want)
    await opened(url, NEXT)
    assert len(connected(url, rows_of)["wants"]) == 3


KILLED = """
import os, signal, sys, trio
from tests.storage.support import gateway
from tests.upgrades.databases import add_label, next_with

def die(op):
    add_label(op)
    op.execute("DELETE FROM flags")
    os.kill(os.getpid(), signal.SIGKILL)

trio.run(gateway(sys.argv[1], migrations=next_with(die)))
"""


async def test_an_upgrade_that_is_killed_half_way_leaves_the_old_version_usable(url: str, old: Rows) -> None:
    before = connected(url, schema_of)

    died = await trio.run_process([sys.executable, "-c", KILLED, url], check=False)

    assert died.returncode == -signal.SIGKILL
    async with serving(gateway(url), with_notes=False) as database:
        assert await database.run(versions_of) == [*range(1, SCHEMA_VERSION + 1)]
    assert (connected(url, schema_of), connected(url, rows_of)) == (before, old)
    await opened(url, NEXT)
    assert connected(url, rows_of) == labelled(old)


async def test_older_code_works_with_a_newer_database_that_allows_it(url: str, old: Rows) -> None:
    await opened(url, NEXT)

    async with serving(gateway(url), with_notes=False) as database:
        await database.run(add_a_want)

    assert connected(url, versions_of) == [step.VERSION for step in NEXT]
    assert [row["label"] for row in connected(url, rows_of)["wants"] if row["key"] == "new"] == [""]


async def test_older_code_refuses_a_newer_database_that_does_not_allow_it(url: str, old: Rows) -> None:
    await opened(url, next_with(add_label, min_code_version=ADDED.VERSION))
    before = connected(url, schema_of)

    with pytest.raises(DatabaseNeedsNewerCode, match=f"needs code of schema version {ADDED.VERSION}"):
        await gateway(url)()

    assert "upgrade Cormorant" in (inspect(url).problem or "")
    assert (connected(url, schema_of), connected(url, rows_of)) == (before, labelled(old))
