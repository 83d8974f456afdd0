"""Tests of the data folder: who can open what is created in it, and what is corrected."""

from __future__ import annotations

import os
import random
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import trio

from cormorant.rules.ports import ignore
from cormorant.testing import START
from storage import pauses
from storage.database import Database, Mode, StorageOptions
from storage.engine.data_files import DataFolder, WrongMode, create_file, make_folder
from storage.engine.sqlite import back_up


@pytest.fixture(autouse=True, params=[0o022, 0o077, 0o000], ids=lambda mask: f"umask {mask:03o}")
def mask(request: pytest.FixtureRequest) -> Iterator[int]:
    """The umask of the process: modes do not depend on it."""
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def prepare(data: Path, *targets: str, file_mode: int = 0o600) -> list[WrongMode]:
    return DataFolder(path=data, file_mode=file_mode, targets=frozenset(targets)).prepare()


def modes(folder: Path) -> dict[str, str]:
    found = [folder, *folder.rglob("*")]
    return {str(path.relative_to(folder.parent)): f"{stat.S_IMODE(path.stat().st_mode):04o}" for path in found}


async def write_to(file: Path, *, file_mode: int) -> None:
    options = StorageOptions(url=f"sqlite:///{file}", file_mode=file_mode)
    database = Database(options, mode=Mode.THREADS, emit=ignore, chance=random.Random(0))
    async with trio.open_nursery() as nursery:
        await nursery.start(database)
        await database.run(pauses.set_all, is_paused=True, now=START)
        beside = modes(file.parent)
        database.stop()
    assert {beside[f"data/{file.name}{suffix}"] for suffix in ("-wal", "-shm")} == {f"{file_mode:04o}"}


@pytest.mark.slow("a real database in threads")
@pytest.mark.parametrize(("file_mode", "folder_mode"), [(0o600, "0700"), (0o660, "2770")])
async def test_the_database_its_locks_and_its_backups_have_the_mode_of_the_settings(
    tmp_path: Path, file_mode: int, folder_mode: str
) -> None:
    data = tmp_path / "data"

    assert prepare(data, file_mode=file_mode) == []
    await write_to(data / "cormorant.db", file_mode=file_mode)
    back_up(data / "cormorant.db", data / "backups", version=3, file_mode=file_mode)

    found = modes(data)
    folders = {name for name in found if (tmp_path / name).is_dir()}
    assert folders == {"data", "data/backups"}
    assert {found[name] for name in folders} == {folder_mode}
    assert {mode for name, mode in found.items() if name not in folders} == {f"{file_mode:04o}"}
    assert {"data/cormorant.db-queue", "data/cormorant.db-turn"} <= found.keys()


def old_data(folder: Path) -> Path:
    """A data folder as an earlier version left it."""
    (folder / "keys").mkdir(parents=True)
    (folder / "backups").mkdir()
    for name in (
        "cormorant.db",
        "cormorant.db-wal",
        "cormorant.db-shm",
        "cormorant.db-queue",
        "cormorant.db-turn",
        "keys/web.key",
        "backups/cormorant.schema-3.backup.db",
    ):
        (folder / name).touch()
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return folder


def test_existing_files_and_a_folder_with_nothing_else_are_corrected(tmp_path: Path) -> None:
    data = old_data(tmp_path / "data")

    assert prepare(data) == []

    assert set(modes(data).values()) == {"0700", "0600"}
    assert DataFolder(path=data).wrong_modes() == []


def test_a_folder_with_files_of_others_keeps_its_mode_and_is_told(tmp_path: Path) -> None:
    data = old_data(tmp_path / "data")
    (data / "holiday.jpg").touch(mode=0o644)
    (data / "holiday.jpg").chmod(0o644)

    [left] = prepare(data)

    assert (left.path, left.mode, left.wanted) == (data, 0o755, 0o700)
    found = modes(data)
    assert (found.pop("data"), found.pop("data/holiday.jpg")) == ("0755", "0644")
    assert set(found.values()) == {"0700", "0600"}


def test_a_folder_with_the_folder_of_a_target_lets_others_pass_through(tmp_path: Path) -> None:
    data = tmp_path / "data"

    prepare(data, "watch")

    assert modes(data) == {"data": "0711"}


def test_a_target_added_later_can_be_reached_and_its_files_keep_their_mode(tmp_path: Path) -> None:
    data = tmp_path / "data"
    prepare(data)
    (data / "watch").mkdir()
    (data / "watch").chmod(0o755)

    assert prepare(data, "watch") == []

    assert modes(data) == {"data": "0711", "data/watch": "0755"}


def test_a_folder_that_is_too_narrow_for_a_target_and_has_files_of_others_is_told(tmp_path: Path) -> None:
    data = tmp_path / "data"
    prepare(data)
    (data / "holiday.jpg").touch()

    [left] = prepare(data, "watch")

    assert (left.mode, left.wanted, left.is_too_open) == (0o700, 0o711, False)


def test_an_existing_shared_folder_gets_the_bit_that_keeps_its_group(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o770)

    prepare(data, file_mode=0o660)

    assert modes(data) == {"data": "2770"}


def test_a_database_elsewhere_is_corrected_too(tmp_path: Path) -> None:
    file = tmp_path / "elsewhere.db"
    file.touch()
    file.chmod(0o644)

    DataFolder(path=tmp_path / "data", database=file).prepare()

    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_file_in_the_place_of_the_data_folder_is_left_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "important.sh"
    file.touch()
    file.chmod(0o644)

    with pytest.raises(FileExistsError):
        prepare(file)

    assert stat.S_IMODE(file.stat().st_mode) == 0o644


def test_a_folder_of_keys_that_is_a_link_is_left_as_it_is(tmp_path: Path) -> None:
    data, foreign = tmp_path / "data", tmp_path / "ssl"
    prepare(data)
    foreign.mkdir()
    (foreign / "server.key").touch()
    (foreign / "server.key").chmod(0o640)
    (data / "keys").symlink_to(foreign)

    prepare(data)

    assert stat.S_IMODE((foreign / "server.key").stat().st_mode) == 0o640


def test_correcting_the_mode_of_a_database_keeps_the_locks_of_this_process(tmp_path: Path) -> None:
    data = tmp_path / "data"
    prepare(data)
    with closing(sqlite3.connect(data / "cormorant.db", isolation_level=None)) as ours:
        ours.execute("CREATE TABLE t (x)")
        ours.execute("BEGIN IMMEDIATE")
        (data / "cormorant.db").chmod(0o644)

        prepare(data)

        script = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('BEGIN IMMEDIATE')"
        other = subprocess.run([sys.executable, "-c", script, data / "cormorant.db"], capture_output=True, check=False)
    assert b"database is locked" in other.stderr


def test_files_of_another_user_are_left_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = old_data(tmp_path / "data")
    monkeypatch.setattr(os, "geteuid", lambda: 4321)

    left = prepare(data)

    assert len(left) == len(modes(data))
    assert not any(each.is_owned for each in left)
    assert set(modes(data).values()) == {"0755", "0644"}


def test_shared_files_become_private_and_private_ones_shared_as_the_settings_say(tmp_path: Path) -> None:
    data = old_data(tmp_path / "data")

    prepare(data, file_mode=0o660)
    shared = set(modes(data).values())
    prepare(data)

    assert shared == {"2770", "0660"}
    assert {mode[1:] for mode in modes(data).values()} == {"700", "600"}


def test_links_are_not_followed_and_a_linked_data_folder_is_the_one_it_leads_to(tmp_path: Path) -> None:
    data, elsewhere = old_data(tmp_path / "data"), tmp_path / "elsewhere"
    elsewhere.touch()
    elsewhere.chmod(0o644)
    (data / "keys" / "other.key").symlink_to(elsewhere)
    (tmp_path / "link").symlink_to(data)

    prepare(tmp_path / "link")

    assert stat.S_IMODE(elsewhere.stat().st_mode) == 0o644
    assert stat.S_IMODE((data / "cormorant.db").stat().st_mode) == 0o600


def test_missing_folders_above_keep_the_umask_and_existing_files_their_content(tmp_path: Path, mask: int) -> None:
    make_folder(tmp_path / "a" / "b", mode=0o700)
    (tmp_path / "a" / "b" / "file").write_text("kept")

    create_file(tmp_path / "a" / "b" / "file", mode=0o600)

    assert modes(tmp_path / "a")["a"] == f"{0o777 & ~mask:04o}"
    assert modes(tmp_path / "a")["a/b"] == "0700"
    assert (tmp_path / "a" / "b" / "file").read_text() == "kept"
