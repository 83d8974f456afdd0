"""How does a file get into a folder that others watch? Whole, under its name at once, and with a note by which we know it again.

Everything here blocks: it is called in a thread. What is half done lies in a hidden folder inside, on the same filesystem.
"""

from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path, PurePath
from typing import Final

from attrs import frozen

from cormorant.rules.file_names import NAME_BYTES_MAX, cut_to
from cormorant.rules.target_errors import (
    TargetError,
    TargetInDoubt,
    TargetMisconfigured,
    TargetRefused,
    TargetUnavailable,
)

SIDE: Final = ".cormorant"
# Two threads that find a name free at once would put one file over the other.
_NAMING: Final = threading.Lock()
_FULL: Final = {errno.ENOSPC, errno.EDQUOT}
_FORBIDDEN: Final = {errno.EACCES, errno.EPERM, errno.EROFS}
_NO_FOLDER: Final = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}
_UNFIT: Final = {errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL, errno.EFBIG}


@frozen
class Placed:
    """Where a file of ours was put, and whether it is still there."""

    path: Path
    is_there: bool


class PartFile:
    """A file that is being written. It is nobody's before it is placed."""

    def __init__(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        self._file = path.open("xb", buffering=0)

    def write(self, data: bytes) -> None:
        """Append all of it."""
        left = memoryview(data)
        while left:
            left = left[os.write(self._file.fileno(), left) :]

    def finish(self) -> None:
        """Make sure that a power cut does not lose it."""
        os.fsync(self._file.fileno())
        self._file.close()

    def close(self) -> None:
        """Write no more."""
        self._file.close()


class Folder:
    """A folder of the operator. It must be there: what is not mounted is not written to."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def check(self) -> None:
        """Find out whether files can be placed here."""
        probe = "cormorant-test"
        try:
            part = self.begin(probe)
            part.write(b"x")
            part.finish()
        finally:
            self.drop(probe)

    def begin(self, key: str) -> PartFile:
        """A fresh part file for the parcel with this key."""
        # Not with its parents: a folder that is not mounted would be made on the disk below it.
        with suppress(FileExistsError):
            self._side.mkdir()
        return PartFile(self._part(key))

    def drop(self, key: str) -> None:
        """Leave nothing half done behind."""
        for path in (self._part(key), self._fresh_note(key)):
            path.unlink(missing_ok=True)

    def place(self, key: str, names: Sequence[str], ending: str) -> Path:
        """Give the finished part file its name. Invariant: once the part file is gone, the note says where it went."""
        folder = self.root.joinpath(*names[:-1])
        # Before anything is made: a link would lead the making of folders out of here, too.
        if not folder.resolve().is_relative_to(self.root.resolve()):
            raise TargetRefused(f"a link in {self.root} leads out of it; nothing is written there")
        folder.mkdir(parents=True, exist_ok=True)
        with _NAMING:
            path = folder / _named(names[-1], ending)
            if os.path.lexists(path):
                path = folder / _named(names[-1], f" ({key}){ending}")
            try:
                self._note(key, path)
                self._part(key).replace(path)
            except OSError:
                # While the part is still there: a note without it would say that the parcel was placed, and taken.
                self._note_path(key).unlink(missing_ok=True)
                raise
        try:
            _sync(folder)
        except OSError as error:
            raise TargetInDoubt(f"{path.name} was written, but the disk failed: {error.strerror}") from error
        return path

    def find(self, key: str) -> Placed | None:
        """Where the parcel with this key was placed; None when it was not."""
        try:
            noted = PurePath(json.loads(self._note_path(key).read_bytes())["path"])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError):
            return None  # a note that a power cut left empty was never followed by a name
        if noted.is_absolute() or ".." in noted.parts or self._part(key).exists():
            return None
        path = self.root / noted
        return Placed(path, path.exists())

    @property
    def _side(self) -> Path:
        return self.root / SIDE

    def _part(self, key: str) -> Path:
        return self._side / f"{key}.part"

    def _note_path(self, key: str) -> Path:
        return self._side / f"{key}.json"

    def _fresh_note(self, key: str) -> Path:
        return self._side / f"{key}.note"

    def _note(self, key: str, path: Path) -> None:
        fresh = PartFile(self._fresh_note(key))
        try:
            fresh.write(json.dumps({"path": str(path.relative_to(self.root))}).encode())
            fresh.finish()
        finally:
            fresh.close()
        self._fresh_note(key).replace(self._note_path(key))
        _sync(self._side)


def _named(name: str, ending: str) -> str:
    has_it = name.lower().endswith(ending.lower())
    return name if has_it else f"{cut_to(name, NAME_BYTES_MAX - len(ending.encode()))}{ending}"


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def trouble_with(folder: Path, error: OSError) -> TargetError:
    """What an error of the filesystem means for a parcel. Nothing of it was placed."""
    why = error.strerror or type(error).__name__
    if error.errno in _FULL:
        return TargetUnavailable(f"the disk of {folder} is full ({why}); make room there")
    if error.errno in _FORBIDDEN:
        return TargetMisconfigured(
            f"{folder} cannot be written to ({why}); give Cormorant the right to, or choose another"
        )
    if error.errno in _NO_FOLDER:
        return TargetMisconfigured(f"{folder} is no folder ({why}); make it, or mount what belongs there")
    if error.errno == errno.EXDEV:
        return TargetMisconfigured(f"a folder in {folder} is another filesystem ({why}); make it a target of its own")
    if error.errno in _UNFIT:
        return TargetRefused(f"{folder} cannot hold a file of that name or size ({why})")
    return TargetUnavailable(f"{folder} cannot be used now ({why})")
