"""Tests of the data folder: who can open what is created in it, and what is corrected."""

from __future__ import annotations

import os
import random
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from cormorant.rules.ports import ignore
from cormorant.testing import START
from storage import flags
from storage.data_files import create_file, find_wrong_modes, make_folder, prepare
from storage.database import Database, Mode, StorageOptions
from storage.sqlite_backup import back_up


@pytest.fixture(autouse=True, params=[0o022, 0o077, 0o000], ids=lambda mask: f"umask {mask:03o}")
def mask(request: pytest.FixtureRequest) -> Iterator[int]:
    """The umask of the process: modes do not depend on it."""
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def modes(folder: Path) -> dict[str, str]:
    found = [folder, *folder.rglob("*")]
    return {str(path.relative_to(folder.parent)): f"{stat.S_IMODE(path.stat().st_mode):04o}" for path in found}


async def write_to(file: Path, *, file_mode: int) -> None:
    options = StorageOptions(url=f"sqlite:///{file}", file_mode=file_mode)
    database = Database(options, mode=Mode.THREADS, emit=ignore, chance=random.Random(0))
    async with trio.open_nursery() as nursery:
        await nursery.start(database)
        await database.run(flags.set_flag, "one", is_on=True, now=START)
        beside = modes(file.parent)
        database.stop()
    assert {beside[f"data/{file.name}{suffix}"] for suffix in ("-wal", "-shm")} == {f"{file_mode:04o}"}


@pytest.mark.slow("a real database in threads")
@pytest.mark.parametrize(("file_mode", "folder_mode"), [(0o600, "0700"), (0o660, "2770")])
async def test_the_database_its_locks_and_its_backups_have_the_mode_of_the_settings(
    tmp_path: Path, file_mode: int, folder_mode: str
) -> None:
    data = tmp_path / "data"

    assert prepare(data, database=None, file_mode=file_mode, has_targets=False) == []
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

    assert prepare(data, database=data / "cormorant.db", file_mode=0o600, has_targets=False) == []

    assert set(modes(data).values()) == {"0700", "0600"}
    assert find_wrong_modes(data, database=None, file_mode=0o600, has_targets=False) == []


def test_a_folder_with_files_of_others_keeps_its_mode_and_is_told(tmp_path: Path) -> None:
    data = old_data(tmp_path / "data")
    (data / "holiday.jpg").touch(mode=0o644)
    (data / "holiday.jpg").chmod(0o644)

    [left] = prepare(data, database=data / "cormorant.db", file_mode=0o600, has_targets=False)

    assert (left.path, left.mode, left.wanted) == (data, 0o755, 0o700)
    found = modes(data)
    assert (found.pop("data"), found.pop("data/holiday.jpg")) == ("0755", "0644")
    assert set(found.values()) == {"0700", "0600"}


def test_a_folder_with_the_folder_of_a_target_lets_others_pass_through(tmp_path: Path) -> None:
    data = tmp_path / "data"

    prepare(data, database=None, file_mode=0o600, has_targets=True)

    assert modes(data) == {"data": "0711"}


def test_files_of_another_user_are_left_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = old_data(tmp_path / "data")
    monkeypatch.setattr(os, "geteuid", lambda: 4321)

    left = prepare(data, database=data / "cormorant.db", file_mode=0o600, has_targets=False)

    assert len(left) == len(modes(data))
    assert set(modes(data).values()) == {"0755", "0644"}


def test_shared_files_become_private_and_private_ones_shared_as_the_settings_say(tmp_path: Path) -> None:
    data = old_data(tmp_path / "data")

    prepare(data, database=None, file_mode=0o660, has_targets=False)
    shared = set(modes(data).values())
    prepare(data, database=None, file_mode=0o600, has_targets=False)

    assert shared == {"2770", "0660"}
    assert {mode[1:] for mode in modes(data).values()} == {"700", "600"}


def test_links_are_not_followed_and_a_linked_data_folder_is_the_one_it_leads_to(tmp_path: Path) -> None:
    data, elsewhere = old_data(tmp_path / "data"), tmp_path / "elsewhere"
    elsewhere.touch()
    elsewhere.chmod(0o644)
    (data / "keys" / "other.key").symlink_to(elsewhere)
    (tmp_path / "link").symlink_to(data)

    prepare(tmp_path / "link", database=None, file_mode=0o600, has_targets=False)

    assert stat.S_IMODE(elsewhere.stat().st_mode) == 0o644
    assert stat.S_IMODE((data / "cormorant.db").stat().st_mode) == 0o600


def test_missing_folders_above_are_made_as_private_and_existing_files_keep_their_content(tmp_path: Path) -> None:
    make_folder(tmp_path / "a" / "b", mode=0o700)
    (tmp_path / "a" / "b" / "file").write_text("kept")

    create_file(tmp_path / "a" / "b" / "file", mode=0o600)

    assert modes(tmp_path / "a")["a"] == modes(tmp_path / "a")["a/b"] == "0700"
    assert (tmp_path / "a" / "b" / "file").read_text() == "kept"
