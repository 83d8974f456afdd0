"""A database of every version so far becomes the same as a new one, and the declared tables are what a new one has."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, Identity, inspect

from storage.engine.schema import MIGRATIONS_TABLE
from storage.migrations import SCHEMA_VERSION
from storage.tables import METADATA
from tests.upgrades.databases import Rows, connected, fill, opened, rows_of, schema_of, versions_of
from tests.upgrades.snapshots import ADDRESSES, VERSIONS, build, snapshot_file

pytestmark = pytest.mark.slow("makes every table, in two databases")

LOST: Final[frozenset[str]] = frozenset()
"""Tables ("wants") and columns ("wants.title") of older versions that a later step drops, renames or changes."""


def kept(before: Rows, after: Rows) -> Rows:
    """What is there after an upgrade of what was there before: the same tables and columns."""
    return {
        table: sorted(({name: row[name] for name in old[0] if name in row} for row in after[table]), key=repr)
        for table, old in before.items()
        if table in after
    }


def without_lost(rows: Rows) -> Rows:
    return {
        table: [{name: value for name, value in row.items() if f"{table}.{name}" not in LOST} for row in found]
        for table, found in rows.items()
        if table not in LOST
    }


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_database_of_every_version_becomes_as_a_new_one_and_keeps_its_rows(
    url: str, new_url: str, version: int
) -> None:
    connected(url, partial(build, version=version))
    connected(url, fill)
    before = connected(url, rows_of)

    await opened(url)
    await opened(new_url)

    assert all(len(rows) == 2 for rows in before.values()), "a table has no rows in this test"
    assert without_lost(kept(before, connected(url, rows_of))) == without_lost(before)
    assert connected(url, versions_of) == connected(new_url, versions_of) == list(range(1, SCHEMA_VERSION + 1))
    assert connected(url, schema_of) == connected(new_url, schema_of)


@pytest.mark.parametrize("version", VERSIONS)
async def test_an_upgrade_adds_no_rows_that_a_new_database_has_not(url: str, new_url: str, version: int) -> None:
    connected(url, partial(build, version=version))

    await opened(url)
    await opened(new_url)

    assert connected(url, rows_of) == connected(new_url, rows_of)


@pytest.mark.parametrize("dialect", ADDRESSES)
def test_the_current_version_has_a_snapshot(dialect: str) -> None:
    assert snapshot_file(SCHEMA_VERSION, dialect).exists(), "run python -m tests.upgrades.snapshots"


async def test_the_tables_are_those_of_the_snapshot_of_the_current_version(url: str, new_url: str) -> None:
    connected(url, partial(build, version=SCHEMA_VERSION))
    await opened(new_url)

    assert connected(new_url, schema_of) == connected(url, schema_of), (
        "storage/tables.py was changed without a new version: see tests/upgrades/__init__.py"
    )


def differences(connection: Connection) -> list[Any]:
    def is_ours(_object: Any, name: str | None, kind: str, *_: Any) -> bool:
        return not (kind == "table" and name == MIGRATIONS_TABLE.name)

    context = MigrationContext.configure(
        connection, opts={"include_object": is_ours, "compare_type": True, "compare_server_default": True}
    )
    found = compare_metadata(context, METADATA)
    # SQLite numbers rows without an identity.
    is_sqlite = connection.dialect.name == "sqlite"
    return [each for each in found if not (is_sqlite and isinstance(each, list) and isinstance(each[0][-1], Identity))]


def columns_of(connection: Connection) -> dict[str, list[str]]:
    seen = inspect(connection)
    return {name: [column["name"] for column in seen.get_columns(name)] for name in seen.get_table_names()}


async def test_a_new_database_has_the_declared_tables_column_by_column(url: str) -> None:
    await opened(url)

    made = connected(url, columns_of)

    del made[MIGRATIONS_TABLE.name]
    assert made == {table.name: [column.name for column in table.columns] for table in METADATA.sorted_tables}
    assert connected(url, differences) == []
