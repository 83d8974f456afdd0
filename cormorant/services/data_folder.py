"""The data folder of a service: created at the start, with modes that keep other users out."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from cormorant.rules.addresses import sqlite_file
from cormorant.rules.errors import StorageMisconfigured
from cormorant.rules.settings.settings import Settings
from cormorant.rules.settings.watch import NEEDS_FOLDER
from storage.engine.data_files import DataFolder

__all__ = ["data_folder", "prepare_data", "remove_database"]

_PARTS_OF_DATABASE: Final = ("", "-wal", "-shm", "-journal")
"""Without the lock files: another process may hold a lock on them."""


def prepare_data(settings: Settings) -> None:
    """Create the data folder and correct the modes of our files. Raises `StorageMisconfigured`."""
    try:
        data_folder(settings).prepare()
    except OSError as error:
        raise StorageMisconfigured(
            f"data: the folder {settings.data} cannot be created: {error.strerror}; set data to another path"
        ) from error


def remove_database(file: Path) -> None:
    """Remove a SQLite database. Raises `StorageMisconfigured`.

    The file itself goes first: SQLite ignores and deletes what is left of a database that is not there.
    """
    try:
        for suffix in _PARTS_OF_DATABASE:
            file.with_name(f"{file.name}{suffix}").unlink(missing_ok=True)
    except OSError as error:
        raise StorageMisconfigured(f"the database {file} cannot be removed: {error.strerror}; delete it") from error


def data_folder(settings: Settings) -> DataFolder:
    """The data folder as the settings describe it."""
    file, data = sqlite_file(settings.database_url.reveal()), Path(settings.data).resolve()
    folders = [(data / each.folder).resolve() for each in settings.targets.values() if each.kind in NEEDS_FOLDER]
    inside = [folder.relative_to(data) for folder in folders if folder.is_relative_to(data) and folder != data]
    return DataFolder(
        path=data,
        database=None if file is None else Path(file),
        file_mode=settings.data_file_mode,
        targets=frozenset(folder.parts[0] for folder in inside),
    )
