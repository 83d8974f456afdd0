"""Files and folders of the data folder: their modes, their creation, and the correction of existing ones."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from attrs import field, frozen

__all__ = ["FILE_MODE", "DataFolder", "WrongMode", "create_file", "folder_mode", "make_folder"]

FILE_MODE: Final = 0o600
"""Only the owner reads and writes: the database has the keys of sites."""

_COMPARED: Final = 0o777 | stat.S_ISGID
_PASS_THROUGH: Final = 0o011
_BESIDE_DATABASE: Final = ("", "-wal", "-shm", "-journal", "-queue", "-turn")
_OURS: Final = {"keys": ("*.key", ".*.key.*"), "backups": ("*.schema-*.backup*",)}
"""Patterns of our files in each folder of ours."""
_LOCKS: Final = ("*.lock",)
"""Patterns of the files in the folder of worker locks beside a database."""
_DATABASE: Final = "cormorant.db"
_PLAYGROUND: Final = "playground"
"""A data folder inside the data folder."""


@frozen(kw_only=True)
class WrongMode:
    """A file or folder with another mode than it should have. `is_corrected`: a start corrects it."""

    path: Path
    mode: int
    wanted: int
    is_owned: bool
    is_corrected: bool

    @property
    def is_too_open(self) -> bool:
        """Whether users can open it who should not. Otherwise users cannot who should."""
        return bool(self.mode & ~self.wanted & 0o777)


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
    """Create a folder with exactly this mode, unless it exists. Missing folders above it get the usual mode."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.mkdir(mode=mode)
    except FileExistsError:
        if not path.is_dir():
            raise
    else:
        path.chmod(mode)


def _resolved(path: Path) -> Path:
    return path.resolve()


@frozen(kw_only=True)
class DataFolder:
    """A data folder and the modes of what is in it."""

    path: Path = field(converter=_resolved)
    database: Path | None = None
    """A SQLite file, wherever it is."""
    file_mode: int = FILE_MODE
    targets: frozenset[str] = frozenset()
    """Names of folders in it that belong to targets. Programs of other users pass through to them."""

    @property
    def mode(self) -> int:
        """The mode of the data folder itself."""
        return folder_mode(self.file_mode) | (_PASS_THROUGH if self.targets else 0)

    def prepare(self) -> list[WrongMode]:
        """Create the folder and correct the modes of our files in it. Returns what only a person can correct."""
        make_folder(self.path, mode=self.mode)
        return [each for each in self.wrong_modes() if not (each.is_corrected and _corrected(each))]

    def wrong_modes(self) -> list[WrongMode]:
        """What has another mode than it should. Changes nothing."""
        found = [_checked(self.path, self.mode, may_correct=self._has_only_ours(self.path))]
        databases = {self.path / _DATABASE, *([self.database.resolve()] if self.database else [])}
        files = [name.with_name(f"{name.name}{suffix}") for name in sorted(databases) for suffix in _BESIDE_DATABASE]
        found += [_checked(file, self.file_mode) for file in files]
        ours = {self.path / name: patterns for name, patterns in _OURS.items()}
        ours |= {name.with_name(f"{name.name}-workers"): _LOCKS for name in sorted(databases)}
        for folder, patterns in ours.items():
            if not folder.is_symlink():
                found.append(_checked(folder, folder_mode(self.file_mode)))
                found += [_checked(file, self.file_mode) for file in _entries(folder) if _is_like(file, patterns)]
        return [each for each in found if each is not None]

    def _has_only_ours(self, folder: Path) -> bool:
        """Whether nothing in a folder could belong to another program, except the folders of targets."""
        own = self.database.resolve().name if self.database and self.database.resolve().parent == folder else _DATABASE
        files = {f"{name}{suffix}" for name in (_DATABASE, own) for suffix in _BESIDE_DATABASE}
        ours = _OURS | {f"{name}-workers": _LOCKS for name in (_DATABASE, own)}
        for entry in _entries(folder):
            if entry.is_symlink():
                return False
            if entry.name in ours and entry.is_dir():
                if not all(_is_like(file, ours[entry.name]) for file in _entries(entry)):
                    return False
            elif entry.name == _PLAYGROUND and entry.is_dir():
                if not self._has_only_ours(entry):
                    return False
            elif entry.name not in files | self.targets:
                return False
        return True


def _checked(path: Path, wanted: int, *, may_correct: bool = True) -> WrongMode | None:
    try:
        found = path.lstat()
    except OSError:
        return None
    mode = stat.S_IMODE(found.st_mode)
    if stat.S_ISLNK(found.st_mode) or mode & _COMPARED == wanted & _COMPARED:
        return None
    is_owned = found.st_uid == os.geteuid()
    return WrongMode(path=path, mode=mode, wanted=wanted, is_owned=is_owned, is_corrected=is_owned and may_correct)


def _corrected(wrong: WrongMode) -> bool:
    """Set the mode of what was checked, and of nothing that has taken its place."""
    # O_PATH: closing an ordinary descriptor of a database would release the locks that this process holds on it.
    flags = os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", 0)
    try:
        opened = os.open(wrong.path, flags)
    except OSError:  # it is gone
        return False
    try:
        found = os.fstat(opened)
        if found.st_uid != os.geteuid() or stat.S_ISLNK(found.st_mode):
            return False
        Path(f"/proc/self/fd/{opened}").chmod(wrong.wanted)
    except OSError:  # a file system that is read-only or has no modes
        return False
    finally:
        os.close(opened)
    return True


def _is_like(file: Path, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(file.name, pattern) for pattern in patterns)


def _entries(folder: Path) -> Iterator[Path]:
    try:
        yield from sorted(folder.iterdir())
    except OSError:
        return
