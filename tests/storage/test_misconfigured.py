"""What waiting does not cure ends the start with a remedy, and nothing is created; looking creates and changes nothing."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import make_url

from cormorant.rules.errors import StorageMisconfigured
from storage.database import SCHEMA_VERSION, Mode, SchemaState, StorageOptions, inspect
from tests.storage.support import add_note, gateway, serving
from tests.storage.test_migrations import FIRST, Step, do_nothing, migrate

CLOCKS_APART = timedelta(minutes=1)
"""How far the clock of a given server may be off."""


@pytest.mark.parametrize(
    ("url", "remedy"),
    [
        ("mysql://me@host/name", "the database kind 'mysql' is unknown: use sqlite:///"),
        ("not a url", "the database URL cannot be read: use sqlite:///"),
        ("postgresql://host:port/name", "the database URL cannot be read"),
        ("sqlite:///file.db?mode=ro", "names a file and nothing else"),
        ("sqlite:///{folder}", "is a folder: name a file in it"),
        ("sqlite:///{folder}/missing/file.db", "the folder {folder}/missing does not exist: create it"),
        ("sqlite:///{folder}/no-database.txt", "is not a SQLite database: name another file"),
    ],
)
@pytest.mark.parametrize("mode", Mode)
async def test_a_wrong_url_ends_the_start_with_a_remedy(tmp_path: Path, url: str, remedy: str, mode: Mode) -> None:
    (tmp_path / "no-database.txt").write_text("some words of mine " * 100)
    before = sorted(os.walk(tmp_path))

    with pytest.raises(StorageMisconfigured, match=re.escape(remedy.format(folder=tmp_path))):
        await gateway(url.format(folder=tmp_path), mode)()

    assert sorted(os.walk(tmp_path)) == before


def test_options_do_not_show_the_password_and_have_limits() -> None:
    assert "hunter2" not in repr(StorageOptions(url="postgresql://me:hunter2@host/name"))
    with pytest.raises(ValueError, match="queue_max"):
        StorageOptions(url="sqlite://", queue_max=0)


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    in_postgres: bool = request.param == "postgres"
    return str(request.getfixturevalue("postgres_url")) if in_postgres else f"sqlite:///{tmp_path}/notes.db"


async def test_looking_at_a_database_that_is_up_to_date(url: str) -> None:
    async with serving(gateway(url)):
        while_it_runs = inspect(url)
    after = inspect(url)

    for state in (while_it_runs, after):
        assert state.is_reachable
        assert state.problem is None
        assert (state.schema_version, state.code_version, state.pending) == (SCHEMA_VERSION, SCHEMA_VERSION, ())


async def test_looking_names_what_a_start_would_do(url: str) -> None:
    await migrate(url, FIRST)

    state = inspect(url, migrations=[FIRST, Step(3, do_nothing, NAME="later"), Step(2, do_nothing, NAME="next")])

    assert (state.schema_version, state.code_version) == (1, 3)
    assert state.pending == ("0002 next", "0003 later")


async def test_looking_at_a_database_that_needs_newer_code_says_so(url: str) -> None:
    await migrate(url, FIRST, Step(2, do_nothing, MIN_CODE_VERSION=2))

    state = inspect(url, migrations=[FIRST])

    assert state.is_reachable
    assert state.problem is not None
    assert "upgrade Cormorant" in state.problem


def test_looking_at_a_file_that_is_not_there_does_not_make_it(tmp_path: Path) -> None:
    state = inspect(f"sqlite:///{tmp_path}/notes.db")

    assert state == SchemaState(
        is_reachable=False, problem=f"{tmp_path}/notes.db does not exist yet: the first start creates it"
    )
    assert list(tmp_path.iterdir()) == []


async def test_looking_leaves_the_folder_as_it_was(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/notes.db"
    async with serving(gateway(url)) as database:
        await database.run(add_note, 1)
    before = listing(tmp_path)

    inspect(url)

    assert listing(tmp_path) == before


def listing(folder: Path) -> list[tuple[str, int, bytes]]:
    return sorted((path.name, path.stat().st_mtime_ns, path.read_bytes()) for path in folder.iterdir())


def test_looking_at_postgres_tells_its_time(postgres_url: str) -> None:
    before = datetime.now(UTC)
    state = inspect(postgres_url)
    after = datetime.now(UTC)

    assert state.server_time is not None
    assert before - CLOCKS_APART <= state.server_time <= after + CLOCKS_APART
    assert state.schema_version == 0
    assert len(state.pending) == len({*state.pending}) > 0


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("postgresql://me:hunter2@127.0.0.1:1/name", "refused"),
        ("mysql://me:hunter2@host/name", "unknown"),
        ("sqlite:///{folder}/no-database.txt", "not a database"),
    ],
)
def test_looking_at_what_cannot_be_reached_says_why(tmp_path: Path, url: str, problem: str) -> None:
    (tmp_path / "no-database.txt").write_text("some words of mine " * 100)

    state = inspect(url.format(folder=tmp_path))

    assert not state.is_reachable
    assert state.problem is not None
    assert problem in state.problem
    assert "hunter2" not in state.problem


def test_looking_at_a_database_that_does_not_exist_makes_none(postgres_url: str) -> None:
    url = make_url(postgres_url).set(database="no_such_database").render_as_string(hide_password=False)

    state = inspect(url)

    assert not state.is_reachable
    assert 'database "no_such_database" does not exist' in (state.problem or "")
