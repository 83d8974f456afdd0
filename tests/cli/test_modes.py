"""Modes of what `cormorant run` creates: keys are for the owner alone, folders of targets are for other programs."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.cli.program import Program, cormorant

pytestmark = pytest.mark.slow("starts the program, which loads everything")


@pytest.fixture(autouse=True)
def mask() -> Iterator[None]:
    """The usual umask, whatever the machine has."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def run_once(folder: Path, **more: Any) -> str:
    """Start the program, stop it when it is ready, and give its output."""
    with Program("-m", "cormorant", "run", cwd=folder, **more) as program:
        program.line_with(" ready in ")
        program.send(signal.SIGTERM)
        return program.end().out


def modes(folder: Path) -> dict[str, str]:
    found = [folder, *folder.rglob("*")]
    return {str(path.relative_to(folder.parent)): f"{stat.S_IMODE(path.stat().st_mode):04o}" for path in found}


@pytest.mark.parametrize(
    ("settings", "folder_mode", "file_mode"), [("", "0700", "0600"), ('data_mode = "0660"\n', "2770", "0660")]
)
def test_everything_in_the_data_folder_has_the_mode_of_the_settings(
    tmp_path: Path, settings: str, folder_mode: str, file_mode: str
) -> None:
    (tmp_path / "config.toml").write_text(f'{settings}[web]\nlisten = "127.0.0.1:0"\n')

    run_once(tmp_path, CORMORANT_WEB__ENABLED="true")

    found = modes(tmp_path / "data")
    folders = {name: mode for name, mode in found.items() if (tmp_path / name).is_dir()}
    assert folders == dict.fromkeys(["data", "data/keys", "data/cormorant.db-workers"], folder_mode)
    assert {"data/cormorant.db", "data/cormorant.db-turn", "data/keys/web.key"} <= found.keys()
    assert {mode for name, mode in found.items() if name not in folders} == {file_mode}


def test_a_folder_that_a_start_has_filled_is_corrected_by_the_next(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("")
    run_once(tmp_path)
    (tmp_path / "data").chmod(0o755)
    (tmp_path / "data" / "cormorant.db-workers").chmod(0o755)

    out = run_once(tmp_path)

    assert "chmod" not in out
    assert set(modes(tmp_path / "data").values()) == {"0700", "0600"}


def test_a_folder_of_others_keeps_its_mode_and_the_start_says_the_command(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("")
    (tmp_path / "data").mkdir(mode=0o755)
    (tmp_path / "data" / "holiday.jpg").touch()

    out = run_once(tmp_path)

    assert f"other users can open data (mode 0755); chmod 700 {tmp_path / 'data'}\n" in out
    assert modes(tmp_path / "data")["data"] == "0755"
    assert modes(tmp_path / "data")["data/cormorant.db"] == "0600"


def test_a_command_before_the_first_start_makes_a_private_database(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("")

    added = cormorant("subscriptions", "add", "blog", "https://example.org/feed.xml?passkey=hunter2", cwd=tmp_path)

    assert added.code == 0, added.err
    assert set(modes(tmp_path / "data").values()) == {"0700", "0600"}


def test_keys_of_the_environment_and_of_files_are_in_no_file_of_the_data_folder(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("of-a-file-4f1c\n")
    (tmp_path / "config.toml").write_text(
        '[sources.attic]\nkind = "torznab"\nurl = "http://127.0.0.1:9/attic"\nkey = { env = "ATTIC_KEY" }\n'
        'proxy = { env = "PROXY_URL" }\n'
        '[sources.cellar]\nkind = "newznab"\nurl = "http://127.0.0.1:9/cellar"\nkey = { file = "secret" }\n'
    )
    given = {"ATTIC_KEY": "of-the-environment-9d2e", "PROXY_URL": "http://me:of-the-proxy-77ab@127.0.0.1:9"}

    run_once(tmp_path, **given)
    listed = cormorant("sources", "list", "--json", cwd=tmp_path, **given)

    with closing(sqlite3.connect(tmp_path / "data" / "cormorant.db")) as connection:
        assert connection.execute("SELECT name FROM sources ORDER BY name").fetchall() == [("attic",), ("cellar",)]
    content = b"".join(path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file())
    assert not [each for each in (b"of-the-environment", b"of-a-file", b"of-the-proxy") if each in content]
    assert listed.out.count('"has_key": true') == 2


def test_keys_that_an_earlier_version_stored_are_deleted(tmp_path: Path) -> None:
    table = '[sources.{0}]\nkind = "torznab"\nurl = "http://127.0.0.1:9/{0}"\nkey = {{ env = "KEY" }}\n'
    config, database = tmp_path / "config.toml", tmp_path / "data" / "cormorant.db"
    config.write_text(table.format("attic") + table.format("gone"))
    run_once(tmp_path, KEY="of-the-environment-9d2e")
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE sources SET key = 'of-an-earlier-version', proxy = 'http://me:old@127.0.0.1:9'")
    config.write_text(table.format("attic"))

    run_once(tmp_path, KEY="of-the-environment-9d2e")

    with closing(sqlite3.connect(database)) as connection:
        rows = connection.execute("SELECT name, key, proxy FROM sources ORDER BY name").fetchall()
    assert rows == [("attic", "", ""), ("gone", "", "")]
