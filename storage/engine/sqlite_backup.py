"""How is a SQLite file saved while it is in use?"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from storage.engine.data_files import FILE_MODE, create_file, folder_mode, make_folder


def back_up(database: Path, folder: Path, *, version: int, file_mode: int = FILE_MODE) -> Path:
    """Save the committed state of `database` into `folder` and return the copy, which is complete or not there at all.

    A copy of the same version is replaced: a start that fails again and again must not fill the disk.
    """
    make_folder(folder, mode=folder_mode(file_mode))
    copy = folder / f"{database.stem}.schema-{version}.backup{database.suffix}"
    partial = copy.with_name(f"{copy.name}.partial")
    partial.unlink(missing_ok=True)
    create_file(partial, mode=file_mode)  # SQLite writes into an empty file
    with closing(sqlite3.connect(f"{database.as_uri()}?mode=rw", uri=True, isolation_level=None)) as reader:
        reader.execute("VACUUM INTO ?", (str(partial),))
    _sync(partial)
    partial.replace(copy)
    _sync(folder)
    return copy


def _sync(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
