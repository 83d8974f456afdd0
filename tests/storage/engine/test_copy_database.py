"""Everything goes from one kind of database to the other and back, and nothing is lost."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from sqlalchemy import Boolean, Connection, Float, Integer, select, text

from cormorant.cli import main
from cormorant.rules.errors import DatabaseUnfinished
from storage.engine.copy_database import PAGE, CopiesDiffer, TargetNotEmpty, copy_all, own_tables
from storage.engine.dialect import dialect_for
from storage.engine.options import StorageOptions
from storage.migrations import MIGRATIONS

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ROWS = 3
ROOT = Path(__file__).parents[3]
ODD = ["a", "B", "é", "Z", "ß 漢 😀", "'\"\\\n"]
pytestmark = pytest.mark.slow("each makes and migrates several databases")


@contextmanager
def filling(url: str) -> Iterator[Connection]:
    dialect = dialect_for(StorageOptions(url=url))
    dialect.prepare(MIGRATIONS, lambda: NOW)
    with dialect.filling() as connection:
        yield connection
    dialect.dispose()


TABLES = {table.name: table for table in own_tables()}


def value(column: Any, number: int) -> object:
    """A value that tells databases apart: odd letters, big numbers, fractions."""
    if column.nullable and number == 1:
        return None
    match column.type:
        case Boolean():
            return number % 2 == 0
        case Integer():
            small = column.type.__class__.__name__ == "SMALLINT" or not column.primary_key
            return number + 1 if small or column.name == "id" else 2**53 + number
        case Float():
            return 0.1 + number / 3
        case _:
            return f"{ODD[number % len(ODD)]} {column.name} {number}"


def fill(url: str, *, rows: int = ROWS) -> None:
    """Rows in every table of ours."""
    with filling(url) as connection:
        for table in own_tables():
            many = [{column.name: value(column, number) for column in table.columns} for number in range(rows)]
            connection.execute(table.insert(), many)
        connection.execute(text("UPDATE workers SET kinds = '[]'"))


def contents(url: str) -> dict[str, list[tuple[Any, ...]]]:
    with filling(url) as connection:
        found = {}
        for name, table in TABLES.items():
            columns = [table.c[each] for each in sorted(table.columns.keys())]
            found[name] = sorted((tuple(row) for row in connection.execute(select(*columns))), key=repr)
    return found


def copy(source: str, target: str) -> dict[str, int]:
    done = copy_all(source, target, now=lambda: NOW, tell=lambda *_: None)
    return {each.table: each.rows for each in done}


def test_every_table_goes_there_and_back_and_nothing_is_lost(tmp_path: Path, postgres_url: str) -> None:
    first, last = f"sqlite:///{tmp_path}/first.db", f"sqlite:///{tmp_path}/last.db"
    fill(first)
    with filling(first) as connection:  # the numbers of rows that are gone are not given again
        connection.execute(text("UPDATE sqlite_sequence SET seq = 41 WHERE name = 'jobs'"))

    there = copy(first, postgres_url)
    back = copy(postgres_url, last)

    before = contents(first)
    assert there == back == dict.fromkeys(TABLES, ROWS)
    assert all(before.values()), "a table of ours has no rows in this test"
    assert contents(postgres_url) == before
    assert contents(last) == before
    for url in (postgres_url, last):
        with filling(url) as connection:
            assert [_next_id(connection, "jobs"), _next_id(connection, "wants")] == [42, ROWS + 1]
    with filling(postgres_url) as connection:
        given = {name: _next_of_sequence(connection, name) for name, table in TABLES.items() if "id" in table.c}
    numbered = {name: number for name, number in given.items() if number is not None}
    assert "subscription_checks" in numbered, "one whose numbers SQLite gives without a counter"
    assert {name for name, number in numbered.items() if number <= ROWS} == set()


def _next_id(connection: Connection, name: str) -> int:
    table = TABLES[name]
    words = {column.name: value(column, 0) for column in table.columns if column.name != "id"}
    odd = {column.name: "another" for column in table.columns if column.name in {"uid", "key", "dedupe_key"}}
    number: int = connection.execute(table.insert().returning(table.c.id), words | odd).scalar_one()
    return number


def _next_of_sequence(connection: Connection, name: str) -> int | None:
    asked = text("SELECT nextval(pg_get_serial_sequence(:name, 'id'))")
    number: int | None = connection.execute(asked, {"name": name}).scalar_one()
    return number


def test_a_table_of_many_pages_is_copied_whole(tmp_path: Path) -> None:
    source, target = f"sqlite:///{tmp_path}/a.db", f"sqlite:///{tmp_path}/b.db"
    with filling(source) as connection:
        flags = TABLES["flags"]
        many = [{"name": f"flag {number}", "value": "on", "changed_at": number} for number in range(2 * PAGE + 1)]
        connection.execute(flags.insert(), many)

    copied = copy(source, target)

    assert {name: rows for name, rows in copied.items() if rows} == {"flags": 2 * PAGE + 1}
    assert contents(target) == contents(source)


def test_a_target_that_has_rows_is_left_alone(tmp_path: Path) -> None:
    source, target = f"sqlite:///{tmp_path}/a.db", f"sqlite:///{tmp_path}/b.db"
    fill(source)
    with filling(target) as connection:
        connection.execute(TABLES["flags"].insert(), {"name": "mine", "value": "on", "changed_at": 1})

    with pytest.raises(TargetNotEmpty, match="flags"):
        copy(source, target)

    assert contents(target)["flags"] == [(1, "mine", "on")]
    assert contents(target)["jobs"] == []


def test_what_arrives_changed_is_found_and_nothing_is_kept(tmp_path: Path) -> None:
    source, target = f"sqlite:///{tmp_path}/a.db", f"sqlite:///{tmp_path}/b.db"
    fill(source)
    with filling(target) as connection:
        connection.execute(
            text(
                "CREATE TRIGGER spoil AFTER INSERT ON flags BEGIN UPDATE flags SET value = 'off' WHERE name = new.name; END"
            )
        )

    with pytest.raises(CopiesDiffer, match="flags: 3 rows were read, 3 written"):
        copy(source, target)
    with pytest.raises(DatabaseUnfinished):
        contents(target)

    with sqlite3.connect(tmp_path / "b.db") as looking:
        assert [looking.execute(f"SELECT * FROM {name}").fetchall() for name in TABLES] == [[]] * len(TABLES)  # noqa: S608 - names of our own
        looking.execute("DROP TRIGGER spoil")
    assert copy(source, target) == dict.fromkeys(TABLES, ROWS), "another try ends what one began"
    assert contents(target) == contents(source)


def test_a_copy_that_is_killed_leaves_a_target_that_nobody_works_with_and_can_be_done_again(
    tmp_path: Path, postgres_url: str
) -> None:
    source, targets = f"sqlite:///{tmp_path}/a.db", [f"sqlite:///{tmp_path}/b.db", postgres_url]
    fill(source)
    before = (tmp_path / "a.db").read_bytes()
    command = [sys.executable, "-m", "tests.storage.killed_copier", source, *targets]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in targets]
        process.kill()

    assert (said, (tmp_path / "a.db").read_bytes() == before) == (["half-way\n"] * 2, True)
    for target in targets:
        config = settings_file(tmp_path, target.replace("+psycopg", ""))
        used = CliRunner().invoke(main, ["prices", "list", "--config", config])
        assert (used.exit_code, "begun and not finished" in used.output) == (2, True), used.output
        assert copy(source, target) == dict.fromkeys(TABLES, ROWS)
        assert contents(target) == contents(source)


def settings_file(folder: Path, url: str) -> str:
    config = folder / "config.toml"
    config.write_text(f'[storage]\nurl = "{url}"\n')
    return str(config)


def test_the_command_copies_and_checks_and_leaves_the_source_alone(tmp_path: Path, postgres_url: str) -> None:
    source = f"sqlite:///{tmp_path}/a.db"
    fill(source)
    before = (tmp_path / "a.db").read_bytes()
    words = ["migrate", "--config", settings_file(tmp_path, source)]

    done = CliRunner().invoke(main, [*words, "--to", postgres_url.replace("+psycopg", ""), "--json"])
    again = CliRunner().invoke(main, [*words, "--to", postgres_url.replace("+psycopg", "")])

    assert done.exit_code == 0, done.output
    assert {each["table"]: each["rows"] for each in json.loads(done.stdout)["tables"]} == dict.fromkeys(TABLES, ROWS)
    assert (again.exit_code, "it has rows already" in again.output) == (2, True)
    assert (tmp_path / "a.db").read_bytes() == before


def test_the_command_refuses_while_a_service_works_unless_forced(tmp_path: Path) -> None:
    source = f"sqlite:///{tmp_path}/a.db"
    with filling(source) as connection:
        now = int(datetime.now(UTC).timestamp() * 1e6)
        worker = {"id": "host.7", "beat": 1, "beat_at": now, "kinds": "[]", "version": "1"}
        connection.execute(TABLES["workers"].insert(), worker)
    words = ["migrate", "--config", settings_file(tmp_path, source), "--to", f"sqlite:///{tmp_path}/b.db"]

    refused = CliRunner().invoke(main, words)
    forced = CliRunner().invoke(main, [*words, "--force"])

    assert (refused.exit_code, "host.7 works with the database" in refused.output) == (2, True)
    assert (forced.exit_code, "set storage.url" in forced.output) == (0, True), forced.output


@pytest.mark.parametrize(
    ("to", "why"),
    [
        ("nonsense", "--to"),
        ("postgresql://me:hunter2@127.0.0.1:1/none", "cannot be used"),
        ("sqlite:////nowhere/at/all/b.db", "does not exist"),
    ],
)
def test_a_target_that_cannot_be_used_is_refused_without_its_password(tmp_path: Path, to: str, why: str) -> None:
    source = f"sqlite:///{tmp_path}/a.db"
    with filling(source):
        pass

    ended = CliRunner().invoke(main, ["migrate", "--config", settings_file(tmp_path, source), "--to", to])

    assert (ended.exit_code, why in ended.output) == (2, True), ended.output
    assert "hunter2" not in ended.output
