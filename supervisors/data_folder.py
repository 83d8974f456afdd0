"""The data folder of a service: created at the start, with modes that keep other users out."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from cormorant.rules.addresses import sqlite_file
from cormorant.rules.errors import StorageMisconfigured
from cormorant.rules.settings import Settings
from storage.data_files import WrongMode, find_wrong_modes, prepare

__all__ = ["prepare_data", "wrong_modes"]

_FOLDER_TARGETS: Final = frozenset({"blackhole", "download"})


def prepare_data(settings: Settings) -> list[WrongMode]:
    """Create the data folder and correct the modes of our files. Returns those that only a person can correct."""
    try:
        return prepare(Path(settings.data), **_of(settings))
    except OSError as error:
        raise StorageMisconfigured(
            f"data: the folder {settings.data} cannot be created: {error.strerror}; set data to another path"
        ) from error


def wrong_modes(settings: Settings) -> list[WrongMode]:
    """What has another mode than it should. Changes nothing."""
    return find_wrong_modes(Path(settings.data), **_of(settings))


def _of(settings: Settings) -> dict[str, Any]:
    file, data = sqlite_file(settings.database_url.reveal()), Path(settings.data)
    folders = [data / each.folder for each in settings.targets.values() if each.kind in _FOLDER_TARGETS]
    return {
        "database": None if file is None else Path(file),
        "file_mode": settings.data_file_mode,
        "has_targets": any(folder.is_relative_to(data) for folder in folders),
    }
