"""Files and folders of the data folder: their modes, their creation, and the correction of existing ones."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from attrs import frozen

__all__ = ["FILE_MODE", "WrongMode", "create_file", "find_wrong_modes", "folder_mode", "make_folder", "prepare"]

FILE_MODE: Final = 0o600
"""Only the owner reads and writes: the database has the keys of sites."""

_PERMISSIONS: Final = 0o777
_PASS_THROUGH: Final = 0o011
_BESIDE_DATABASE: Final = ("", "-wal", "-shm", "-journal", "-queue", "-turn")
_OURS: Final = {"keys": ("*.key", ".*.key.*"), "backups": ("*.schema-*.backup*",)}
"""Patterns of our files in each folder of ours."""
_PLAYGROUND: Final = "playground"
"""A data folder inside the data folder."""


@frozen(kw_only=True)
class WrongMode:
    """A file or folder with another mode than it should have. `is_ours`: the next start corrects it."""

    path: Path
    mode: int
    wanted: int
    is_ours: bool


def folder_mode(file_mode: int) -> int:
    """The mode of a folder for files of this mode. In a shared folder new files belong to its group.

    >>> [f"{folder_mode(mode):04o}" for mode in (0o600, 0o660)]
    ['0700', '2770']
    """
    search = (file_mode & 0o444) >> 2
    shared = stat.S_ISGID if file_mode & 0o040 else 0
    return file_mode | search | shared


def create_file(path: Path, *, mode: int) -> None:
    """Create an empty file with exactly this mode, unless it exists."""
    with suppress(FileExistsError):
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            os.fchmod(opened, mode)  # the umask may have taken the rights of a group
        finally:
            os.close(opened)


def make_folder(path: Path, *, mode: int) -> None:
    """Create a folder and those above it that are missing, each with exactly this mode."""
    if path.is_dir():
        return
    if path.parent != path:
        make_folder(path.parent, mode=mode)
    with suppress(FileExistsError):
        path.mkdir(mode=mode)
        path.chmod(mode)


def prepare(data: Path, *, database: Path | None, file_mode: int, has_targets: bool) -> list[WrongMode]:
    """Create the data folder and correct the modes of our files in it. Returns what only a person can correct.

    `has_targets`: a folder of a target is in it, so that programs of other users must be able to pass through.
    """
    make_folder(data, mode=_data_mode(file_mode, has_targets=has_targets))
    left = []
    for each in find_wrong_modes(data, database=database, file_mode=file_mode, has_targets=has_targets):
        try:
            if each.is_ours:
                each.path.chmod(each.wanted)
                continue
        except OSError:  # a file system without modes, or one that is read-only
            pass
        left.append(each)
    return left


def find_wrong_modes(data: Path, *, database: Path | None, file_mode: int, has_targets: bool) -> list[WrongMode]:
    """Files and folders of ours that have another mode than they should. Changes nothing."""
    data, database = data.resolve(), database.resolve() if database else None
    wanted = _data_mode(file_mode, has_targets=has_targets)
    found = [_checked(data, wanted, is_ours=_has_only_ours(data, database))]
    names = {data / "cormorant.db", *([database] if database else [])}
    files = [name.with_name(f"{name.name}{suffix}") for name in sorted(names) for suffix in _BESIDE_DATABASE]
    found += [_checked(file, file_mode, is_ours=True) for file in files]
    for folder, patterns in _OURS.items():
        found.append(_checked(data / folder, folder_mode(file_mode), is_ours=True))
        found += [
            _checked(file, file_mode, is_ours=True)
            for file in _entries(data / folder)
            if any(fnmatchcase(file.name, pattern) for pattern in patterns)
        ]
    return [each for each in found if each is not None]


def _data_mode(file_mode: int, *, has_targets: bool) -> int:
    return folder_mode(file_mode) | (_PASS_THROUGH if has_targets else 0)


def _checked(path: Path, wanted: int, *, is_ours: bool) -> WrongMode | None:
    try:
        found = path.lstat()
    except OSError:
        return None
    mode = stat.S_IMODE(found.st_mode)
    if stat.S_ISLNK(found.st_mode) or mode & _PERMISSIONS == wanted & _PERMISSIONS:
        return None
    is_ours = is_ours and found.st_uid == os.geteuid()
    # One that is too narrow and not ours endangers nothing.
    is_told = is_ours or bool(mode & ~wanted & _PERMISSIONS)
    return WrongMode(path=path, mode=mode, wanted=wanted, is_ours=is_ours) if is_told else None


def _has_only_ours(data: Path, database: Path | None) -> bool:
    """Whether nothing in the folder could belong to another program."""
    names = {"cormorant.db", *([database.name] if database and database.parent == data else [])}
    files = {f"{name}{suffix}" for name in names for suffix in _BESIDE_DATABASE}
    for entry in _entries(data):
        if entry.name in _OURS and entry.is_dir() and not entry.is_symlink():
            patterns = _OURS[entry.name]
            if not all(any(fnmatchcase(file.name, each) for each in patterns) for file in _entries(entry)):
                return False
        elif entry.name == _PLAYGROUND and entry.is_dir():
            if not _has_only_ours(entry, None):
                return False
        elif entry.name not in files:
            return False
    return True


def _entries(folder: Path) -> Iterator[Path]:
    try:
        yield from sorted(folder.iterdir())
    except OSError:
        return
