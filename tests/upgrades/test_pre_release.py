"""A database made before the initial schema is refused in one sentence and not changed. A playground replaces its own."""

from __future__ import annotations

import signal
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
from attrs import frozen

from cormorant.rules.errors import DatabasePreRelease
from storage.database import Mode, inspect
from storage.engine.copy_database import copy_all
from storage.engine.dialect import dialect_for
from storage.engine.options import StorageOptions
from storage.engine.schema import mark_unfinished
from storage.migrations import MIGRATIONS
from tests.cli.program import Ended, Program, cormorant
from tests.cli.test_playing import free_address
from tests.storage.support import gateway
from tests.upgrades.databases import connected, rows_of, schema_of, versions_of
from tests.upgrades.pre_release import STEPS, make_pre_release

SENTENCE = (
    "the database was made by a pre-release version of Cormorant and is not changed: set data to a new folder, or "
    "storage.url to an empty database"
)


@frozen
class State:
    """All that is in a folder and in a database."""

    files: dict[str, bytes]
    content: tuple[object, ...]

    @classmethod
    def of(cls, folder: Path, url: str) -> State:
        """What is there now."""
        content = tuple(connected(url, look) for look in (schema_of, rows_of, versions_of))
        files = {str(path): path.read_bytes() if path.is_file() else b"" for path in sorted(folder.rglob("*"))}
        return cls(files, content)


@pytest.mark.parametrize("steps", [1, len(STEPS)])
@pytest.mark.parametrize("mode", Mode)
async def test_a_pre_release_database_is_refused_and_not_changed(
    url: str, tmp_path: Path, mode: Mode, steps: int
) -> None:
    connected(url, partial(make_pre_release, steps=steps))
    before = State.of(tmp_path, url)

    with pytest.raises(DatabasePreRelease) as refused:
        await gateway(url, mode)()
    seen = inspect(url)

    assert str(refused.value) == SENTENCE
    assert (seen.is_pre_release, seen.problem) == (True, SENTENCE)
    assert State.of(tmp_path, url) == before


@pytest.mark.slow("starts the program")
@pytest.mark.parametrize(
    "command", [("run",), ("jobs", "stats"), ("subscriptions", "add", "blog", "https://example.org/feed.xml")]
)
def test_a_command_refuses_a_pre_release_database_with_the_remedy(
    url: str, tmp_path: Path, command: tuple[str, ...]
) -> None:
    connected(url, make_pre_release)
    (tmp_path / "config.toml").write_text("")
    before = State.of(tmp_path, url)

    ended = cormorant(*command, cwd=tmp_path, CORMORANT_STORAGE__URL=url.replace("+psycopg", ""))

    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1), ended.err
    assert SENTENCE in ended.err
    assert State.of(tmp_path, url) == before


@pytest.mark.slow("starts the program")
def test_doctor_and_migrate_refuse_a_pre_release_database(url: str, tmp_path: Path) -> None:
    connected(url, make_pre_release)
    (tmp_path / "config.toml").write_text("")
    before = State.of(tmp_path, url)
    address, other = url.replace("+psycopg", ""), f"sqlite:///{tmp_path}/other.db"

    looked = cormorant("doctor", cwd=tmp_path, CORMORANT_STORAGE__URL=address)
    copied = cormorant("migrate", cwd=tmp_path, CORMORANT_STORAGE__URL=address, MIGRATE_TO=other)

    assert (looked.code, SENTENCE in looked.out) == (1, True), looked.out
    assert (copied.code, SENTENCE in copied.err) == (2, True), copied.err
    assert State.of(tmp_path, url) == before


def play(folder: Path) -> Ended:
    with Program("-m", "cormorant", "run", cwd=folder, CORMORANT_PLAYGROUND__LISTEN=free_address()) as program:
        program.line_with(" ready in ")
        program.send(signal.SIGTERM)
        return program.end()


@pytest.fixture
def playground(tmp_path: Path) -> Path:
    """The folder of a playground that a pre-release version has made. Returns its database."""
    (tmp_path / "config.toml").write_text("[playground]\nenabled = true\n")
    database = tmp_path / "data" / "playground" / "cormorant.db"
    database.parent.mkdir(parents=True)
    connected(f"sqlite:///{database}", make_pre_release)
    return database


@pytest.mark.slow("starts the program")
def test_the_playground_replaces_its_own_pre_release_database(playground: Path, tmp_path: Path) -> None:
    playground.with_name("cormorant.db-wal").write_bytes(b"left by a kill")

    ended = play(tmp_path)

    assert ended.code == 0, ended.err
    assert "pre-release" not in ended.out + ended.err
    with closing(sqlite3.connect(playground)) as made:
        assert made.execute("SELECT name FROM migrations WHERE version = 1").fetchall() == [("initial",)]
        assert made.execute("SELECT count(*) FROM workers WHERE id = 'attic.1'").fetchone() == (0,)


@pytest.mark.slow("starts the program")
def test_a_playground_leaves_the_database_of_the_service_alone(playground: Path, tmp_path: Path) -> None:
    own = tmp_path / "data" / "cormorant.db"
    connected(f"sqlite:///{own}", make_pre_release)
    before = own.read_bytes()

    assert play(tmp_path).code == 0

    assert own.read_bytes() == before


@pytest.mark.slow("starts the program")
def test_looking_at_a_playground_does_not_replace_its_database(playground: Path, tmp_path: Path) -> None:
    before = playground.read_bytes()

    looked = cormorant("doctor", cwd=tmp_path)
    asked = cormorant("jobs", "stats", cwd=tmp_path)

    assert "will be made at the first start" in looked.out
    assert (asked.code, "`cormorant run` makes it at its first start" in asked.err) == (2, True), asked.err
    assert playground.read_bytes() == before


def test_a_copy_into_a_pre_release_database_is_refused_and_an_unfinished_mark_stays(url: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    connected(url, make_pre_release)
    connected(url, partial(mark_unfinished, now=datetime(2026, 1, 1, tzinfo=UTC)))
    before = connected(url, versions_of)

    with pytest.raises(DatabasePreRelease):
        copy_all(_initial(source), url, now=lambda: datetime.now(UTC), tell=lambda *_: None)

    assert connected(url, versions_of) == before


def _initial(folder: Path) -> str:
    url = f"sqlite:///{folder}/cormorant.db"
    dialect = dialect_for(StorageOptions(url=url))
    dialect.prepare(MIGRATIONS, lambda: datetime.now(UTC))
    dialect.dispose()
    return url
