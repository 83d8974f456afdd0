"""A database is brought to the schema of the code, whole or not at all, by one process at a time."""

from __future__ import annotations

import signal
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import pytest
import trio
from alembic.operations import Operations
from attrs import frozen
from sqlalchemy import BigInteger, Column, Connection, ForeignKey, Text, inspect, text

from cormorant.rules.errors import DatabaseNeedsNewerCode, MigrationFailed, StorageMisconfigured
from cormorant.rules.events import Event, SchemaMigrated, StorageLost
from storage.database import SCHEMA_VERSION, Database, Mode
from storage.engine.schema import Migration
from storage.migrations import MIGRATIONS
from tests.storage.support import gateway, serving

T = TypeVar("T")


@frozen
class Step:
    """A migration made up for a test."""

    VERSION: int
    upgrade: Callable[[Operations], None]
    MIN_CODE_VERSION: int = 1
    NAME: str = "step"


def create_parents_and_children(op: Operations) -> None:
    op.create_table("parents", Column("id", BigInteger, primary_key=True), Column("name", Text))
    op.create_table(
        "children",
        Column("id", BigInteger, primary_key=True),
        Column("parent", BigInteger, ForeignKey("parents.id", ondelete="CASCADE"), nullable=False),
    )


def rebuild_parents(op: Operations) -> None:
    with op.batch_alter_table("parents", recreate="always") as parents:
        parents.add_column(Column("age", BigInteger, server_default="0"))


def lose_a_parent(op: Operations) -> None:
    op.execute("DELETE FROM parents WHERE id = 1")


def do_nothing(op: Operations) -> None:
    pass


def fail_half_way(op: Operations) -> None:
    op.create_table("half", Column("id", BigInteger, primary_key=True))
    op.execute("INSERT INTO no_such_table VALUES (1)")


FIRST = Step(1, create_parents_and_children, NAME="first")


def populate(connection: Connection) -> None:
    for parent in (1, 2):
        connection.execute(text("INSERT INTO parents (id, name) VALUES (:id, 'p')"), {"id": parent})
        for child in range(3):
            values = {"id": parent * 10 + child, "parent": parent}
            connection.execute(text("INSERT INTO children (id, parent) VALUES (:id, :parent)"), values)


def count_children(connection: Connection) -> int:
    return len(connection.execute(text("SELECT id FROM children")).all())


def tables(connection: Connection) -> set[str]:
    return set(inspect(connection).get_table_names())


def versions(connection: Connection) -> list[int]:
    return list(connection.execute(text("SELECT version FROM migrations ORDER BY version")).scalars())


async def migrate(url: str, *steps: Migration, mode: Mode = Mode.THREADS, **options: Any) -> list[Event]:
    """Start once with this code, and stop. What was told."""
    heard: list[Event] = []
    async with serving(gateway(url, mode, emit=heard.append, migrations=steps, **options), with_notes=False):
        pass
    return heard


async def ask(url: str, function: Callable[[Connection], T], *steps: Migration) -> T:
    async with serving(gateway(url, migrations=steps), with_notes=False) as database:
        return await database.run(function)


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/family.db"


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, sqlite_url: str) -> str:
    name = "sqlite_url" if request.param == "sqlite" else "postgres_url"
    url: str = request.getfixturevalue(name)
    return url


async def test_our_own_migrations_make_a_fresh_database_ready(url: str) -> None:
    heard: list[Event] = []

    async with serving(gateway(url, emit=heard.append), with_notes=False) as database:
        assert {"flags", "migrations"} <= await database.run(tables)

    assert heard == [SchemaMigrated(from_version=0, to_version=SCHEMA_VERSION, backup=None)]


@pytest.mark.parametrize("mode", Mode)
async def test_only_what_is_missing_runs_in_order_and_once(url: str, mode: Mode) -> None:
    order: list[int] = []

    def step(version: int) -> Step:
        return Step(version, lambda _: order.append(version))

    first = await migrate(url, step(1), mode=mode)
    second = await migrate(url, step(3), step(1), step(2), mode=mode)
    third = await migrate(url, step(1), step(2), step(3), mode=mode)

    assert order == [1, 2, 3]
    assert [type(event) for event in first] == [SchemaMigrated]
    assert [(event.from_version, event.to_version) for event in second if isinstance(event, SchemaMigrated)] == [(1, 3)]
    assert third == []


async def test_a_table_that_is_rebuilt_keeps_its_children_and_was_saved_before(sqlite_url: str, tmp_path: Path) -> None:
    await ask(sqlite_url, populate, FIRST)

    (told,) = await migrate(sqlite_url, FIRST, Step(2, rebuild_parents), backup_folder=tmp_path / "saved")

    assert await ask(sqlite_url, count_children, FIRST, Step(2, rebuild_parents)) == 6
    backup = tmp_path / "saved" / "family.schema-1.backup.db"
    assert told == SchemaMigrated(from_version=1, to_version=2, backup=str(backup))
    with closing(sqlite3.connect(backup)) as saved:
        assert saved.execute("SELECT count(*) FROM children").fetchone() == (6,)
        assert saved.execute("SELECT max(version) FROM migrations").fetchone() == (1,)
        assert saved.execute("PRAGMA integrity_check").fetchone() == ("ok",)


async def test_foreign_keys_hold_again_after_a_migration(sqlite_url: str) -> None:
    def delete_a_parent(connection: Connection) -> int:
        connection.execute(text("DELETE FROM parents WHERE id = 1"))
        return count_children(connection)

    await ask(sqlite_url, populate, FIRST)

    assert await ask(sqlite_url, delete_a_parent, FIRST, Step(2, rebuild_parents)) == 3


async def test_a_migration_that_orphans_children_changes_nothing(sqlite_url: str) -> None:
    await ask(sqlite_url, populate, FIRST)

    with pytest.raises(MigrationFailed, match="row 1 of children has lost its parents"):
        await gateway(sqlite_url, migrations=[FIRST, Step(2, lose_a_parent)])()

    assert await ask(sqlite_url, count_children, FIRST) == 6
    assert await ask(sqlite_url, versions, FIRST) == [1]


async def test_a_migration_that_fails_half_way_changes_nothing(url: str) -> None:
    await migrate(url, FIRST)

    with pytest.raises(MigrationFailed, match=r"migration 3 \(step\) failed and changed nothing"):
        await gateway(url, migrations=[FIRST, Step(2, do_nothing), Step(3, fail_half_way)])()

    assert await ask(url, versions, FIRST) == [1]
    assert "half" not in await ask(url, tables, FIRST)


async def test_nothing_is_migrated_without_its_backup(sqlite_url: str, tmp_path: Path) -> None:
    await migrate(sqlite_url, FIRST)

    with pytest.raises(StorageMisconfigured, match="no backup could be made"):
        await gateway(sqlite_url, migrations=[FIRST, Step(2, do_nothing)], backup_folder=tmp_path / "family.db")()

    assert await ask(sqlite_url, versions, FIRST) == [1]


async def test_old_code_works_with_a_newer_database_that_allows_it(url: str) -> None:
    await migrate(url, FIRST, Step(2, do_nothing, MIN_CODE_VERSION=1))

    assert await migrate(url, FIRST) == []
    assert await ask(url, versions, FIRST) == [1, 2]


@pytest.mark.parametrize("mode", Mode)
async def test_old_code_refuses_a_database_that_needs_newer_code(url: str, mode: Mode) -> None:
    newer = [FIRST, Step(2, do_nothing), Step(3, do_nothing, MIN_CODE_VERSION=2), Step(4, do_nothing)]
    await migrate(url, *newer)

    with pytest.raises(DatabaseNeedsNewerCode, match="needs code of schema version 2, this Cormorant has 1"):
        await gateway(url, mode, migrations=[FIRST])()

    assert await migrate(url, *newer[:2]) == []


async def test_old_and_new_code_share_a_database_during_an_upgrade(url: str) -> None:
    def add_age(op: Operations) -> None:
        op.add_column("parents", Column("age", BigInteger, server_default="0"))

    new = [FIRST, Step(2, add_age)]
    async with serving(gateway(url, migrations=[FIRST]), with_notes=False) as old_code:
        await old_code.run(populate)
        async with serving(gateway(url, migrations=new), with_notes=False) as new_code:
            await new_code.run(lambda connection: connection.execute(text("UPDATE parents SET age = 7")))
            await old_code.run(lambda connection: connection.execute(text("INSERT INTO parents (id) VALUES (9)")))

            assert await new_code.read(ages) == [7, 7, 0]


def ages(connection: Connection) -> list[int]:
    return list(connection.execute(text("SELECT age FROM parents ORDER BY id")).scalars())


async def test_of_two_that_start_at_once_one_migrates_and_the_other_finds_it_done(url: str) -> None:
    heard: list[Event] = []

    async def start_and_use(database: Database) -> None:
        async with serving(database, with_notes=False):
            assert await database.run(versions) == [1]

    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(start_and_use, gateway(url, emit=heard.append, migrations=[FIRST]))

    assert [type(event) for event in heard if not isinstance(event, StorageLost)].count(SchemaMigrated) == 1


INTERRUPTED = """
import os, signal, sys, trio
from tests.storage.support import gateway
from tests.storage.test_migrations import FIRST, Step

def die(op):
    op.execute("CREATE TABLE half (id INTEGER)")
    os.kill(os.getpid(), signal.SIGKILL)

trio.run(gateway(sys.argv[1], migrations=[FIRST, Step(2, die)]))
"""


@pytest.mark.slow("starts a process that dies")
async def test_a_migration_that_is_killed_changes_nothing(url: str) -> None:
    await ask(url, populate, FIRST)

    died = await trio.run_process([sys.executable, "-c", INTERRUPTED, url], check=False)

    assert died.returncode == -signal.SIGKILL
    assert await ask(url, versions, FIRST) == [1]
    assert await ask(url, count_children, FIRST) == 6
    assert "half" not in await ask(url, tables, FIRST)


async def test_a_database_that_is_locked_is_migrated_when_it_is_free(sqlite_url: str, tmp_path: Path) -> None:
    await migrate(sqlite_url, FIRST)
    heard: list[Event] = []
    newer = gateway(sqlite_url, emit=heard.append, migrations=[FIRST, Step(2, do_nothing)], busy_timeout_s=0.01)

    with closing(sqlite3.connect(tmp_path / "family.db", isolation_level=None)) as neighbour:
        neighbour.execute("BEGIN IMMEDIATE")
        async with trio.open_nursery() as nursery:
            await nursery.start(newer)
            assert [type(event) for event in heard] == [StorageLost]
            neighbour.rollback()

            assert await newer.run(versions) == [1, 2]
            newer.stop()


NOTHING_TO_DO = """
import sys, trio
from storage.database import *
from tests.storage import support
for name in [name for name in sys.modules if name.startswith("alembic")]:
    del sys.modules[name]

async def main():
    async with support.serving(support.gateway(sys.argv[1]), with_notes=False):
        print(sum(name.startswith("alembic") for name in sys.modules))

trio.run(main)
"""


@pytest.mark.slow("starts a process, because here everything is loaded already")
async def test_a_start_with_nothing_to_migrate_does_not_load_alembic(sqlite_url: str) -> None:
    await migrate(sqlite_url, *MIGRATIONS)

    done = await trio.run_process([sys.executable, "-c", NOTHING_TO_DO, sqlite_url], capture_stdout=True)

    assert done.stdout == b"0\n"
