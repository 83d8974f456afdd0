"""Whole files, side files and safe file names.

What blocks is called by `Folder.in_thread`. What is half done lies in a hidden folder inside, on the same filesystem.
Several processes and machines may share a folder: a name is only ever given to what has none of it yet.
"""

from __future__ import annotations

import errno
import fcntl
import filecmp
import hashlib
import json
import os
import re
import secrets
import stat
import unicodedata
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from glob import escape
from pathlib import Path, PurePath
from typing import Any, Final, TypeVar

from attrs import frozen

from cormorant.rules.json_documents import parse_json
from cormorant.rules.ports import Offload
from cormorant.rules.watch.handovers import (
    TargetError,
    TargetInDoubt,
    TargetMisconfigured,
    TargetRefused,
    TargetUnavailable,
)

T = TypeVar("T")

SIDE: Final = ".cormorant"
_FULL: Final = {errno.ENOSPC, errno.EDQUOT}
_FORBIDDEN: Final = {errno.EACCES, errno.EPERM, errno.EROFS}
_NO_FOLDER: Final = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}
_NO_LINKS: Final = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EINVAL}
_UNFIT: Final = {errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL, errno.EFBIG}


@frozen
class PlacedFile:
    """Where a file of ours was put, and whether it is still there."""

    path: Path
    is_there: bool


class PartFile:
    """A file that is being written. It is nobody's before it is placed, and locked while its writer lives."""

    def __init__(self, key: str, path: Path) -> None:
        self.key = key
        self.path = path
        self._file = path.open("xb", buffering=0)
        with suppress(OSError):  # not every filesystem has locks
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def write(self, data: bytes) -> None:
        """Append all of it."""
        left = memoryview(data)
        while left:
            left = left[os.write(self._file.fileno(), left) :]

    def finish(self) -> None:
        """Make sure that a power cut does not lose it."""
        os.fsync(self._file.fileno())

    def drop(self) -> None:
        """Leave nothing half done behind."""
        self._file.close()
        self.path.unlink(missing_ok=True)


class Folder:
    """A folder of the operator. It must be there: what is not mounted is not written to."""

    def __init__(self, root: Path, offload: Offload) -> None:
        self.root = root
        self._offload = offload

    async def in_thread(self, work: Callable[..., T], *args: Any) -> T:
        """Do what blocks. Raises a `TargetError` for what the filesystem says."""
        try:
            return await self._offload(work, *args)
        except OSError as error:
            raise trouble_with(self.root, error) from error

    async def test(self) -> str:
        """Write a file and remove it."""
        await self.in_thread(self._check)
        return f"{self.root} can be written to"

    def _check(self) -> None:
        part = self.begin("cormorant-test")
        try:
            part.write(b"x")
            part.finish()
        finally:
            part.drop()

    def begin(self, key: str) -> PartFile:
        """A fresh part file for the parcel with this key."""
        # Not with its parents: a folder that is not mounted would be made on the disk below it.
        with suppress(FileExistsError):
            self._side.mkdir()
        for ending in ("part", "note"):
            for left in self._side.glob(f"{escape(key)}.*{ending}"):
                self._drop_orphan(key, left)
        # A name of its own: another process may be giving the same.
        return PartFile(key, self._side / f"{key}.{secrets.token_hex(8)}.part")

    def place(self, part: PartFile, names: Sequence[str], ending: str) -> Path:
        """Give the finished part file its name, or find it there. Nothing that is there is ever written over.

        Invariant: once the part file is gone, the note says where it went.
        """
        folder = self.root.joinpath(*names[:-1])
        # Before anything is made: a link would lead the making of folders out of here, too.
        if not folder.resolve().is_relative_to(self.root.resolve()):
            raise TargetRefused(f"a link in {self.root} leads out of it; nothing is written there")
        folder.mkdir(parents=True, exist_ok=True)
        plain, keyed = (folder / _named(names[-1], f"{mark}{ending}") for mark in ("", f" ({part.key})"))
        try:
            # What bears our key is ours, even if it was fetched anew since, with other bytes.
            path = plain if self._is_given(part, plain) or _is_equal(part.path, plain) else keyed
            if path is keyed and not self._is_given(part, keyed):
                self._refuse_mark(keyed)
        except (OSError, TargetUnavailable):
            # While the part is still there: a note without it would say that the parcel was placed, and taken.
            self._forget(part.key, part.path)
            raise
        part.path.unlink(missing_ok=True)
        try:
            _sync(folder)
        except OSError as error:
            raise TargetInDoubt(f"{path.name} was written, but the disk failed: {error.strerror}") from error
        return path

    def find(self, key: str) -> PlacedFile | None:
        """Where the parcel with this key was placed; None when it was not."""
        try:
            note = parse_json(self._note_path(key).read_bytes())
            noted, part = PurePath(note["path"]), self._side / PurePath(note.get("part", f"{key}.part")).name
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, AttributeError):
            return None  # a note that a power cut left empty was never followed by a name
        if noted.is_absolute() or ".." in noted.parts or _is_half_done(part):
            return None
        path = self.root / noted
        return PlacedFile(path, path.exists())

    @property
    def _side(self) -> Path:
        return self.root / SIDE

    def _note_path(self, key: str) -> Path:
        return self._side / f"{key}.json"

    def _is_given(self, part: PartFile, path: Path) -> bool:
        """Whether the part file has this name now. False: something else has it."""
        self._note(part, path)
        try:
            _link(part.path, path, self._side)
        except FileExistsError:
            return False
        return True

    def _note(self, part: PartFile, path: Path) -> None:
        fresh = PartFile(part.key, part.path.with_suffix(".note"))
        try:
            noted = {"path": str(path.relative_to(self.root)), "part": part.path.name}
            fresh.write(json.dumps(noted).encode())
            fresh.finish()
            fresh.path.replace(self._note_path(part.key))
        finally:
            fresh.drop()
        _sync(self._side)

    def _forget(self, key: str, part: Path) -> None:
        """Take the note away that names this part file, and no other."""
        note = self._note_path(key)
        with suppress(FileNotFoundError, ValueError, KeyError, TypeError):
            if parse_json(note.read_bytes())["part"] == part.name:
                note.unlink()

    def _drop_orphan(self, key: str, part: Path) -> None:
        """Remove a part file whose writer is dead: nobody holds its lock. An empty one may be about to be locked."""
        with suppress(OSError), part.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(file.fileno()).st_size:
                if _is_half_done(part):
                    self._forget(key, part)  # first: a note without its part says that the parcel was placed
                    _sync(self._side)
                part.unlink()

    def _refuse_mark(self, path: Path) -> None:
        """A name that only its mark has is had by no file."""
        mark = _mark_of(path, self._side)
        if mark.exists() and not os.path.lexists(path):
            raise TargetUnavailable(
                f"{path.name} cannot be placed: a process that died has left the mark {mark}; remove that file"
            )


def _link(part: Path, path: Path, side: Path) -> None:
    """Give a file a name that nobody has, or raise `FileExistsError`."""
    try:
        os.link(part, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
    else:
        return
    # A filesystem without hard links: whoever makes the mark of a name may rename. A mark that a crash left stays taken.
    mark = _mark_of(path, side)
    mark.open("xb").close()
    try:
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        part.rename(path)
    finally:
        mark.unlink()


def _mark_of(path: Path, side: Path) -> Path:
    return side / f"{hashlib.sha256(os.fsencode(path)).hexdigest()[:32]}.name"


def _is_half_done(part: Path) -> bool:
    """Whether a part file is still there alone: with a second name it was placed, and its process died right after."""
    try:
        return part.lstat().st_nlink == 1
    except FileNotFoundError:
        return False


def _is_equal(part: Path, path: Path) -> bool:
    with suppress(OSError):
        return stat.S_ISREG(path.lstat().st_mode) and filecmp.cmp(part, path, shallow=False)
    return False


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


NAME_BYTES_MAX = 255
TITLE_BYTES_MAX = 200
"""Of the 255 bytes of a name, the rest is for what is added: an ending, a key."""
FALLBACK = "untitled"

# Two dots in a row are no more than one: a name is never "..", nor looks like it.
_FORBIDDEN_CHARACTERS = re.compile(
    r'[/\\:*?"<>|\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]+|\.{2,}'
)
_SPACES = re.compile(r"\s+")
_EDGES = " .-~"
_RESERVED = re.compile(r"(?:con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(?=\.|$)", re.IGNORECASE)
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_JOINERS = "\u200d\ufe0f"


def clean_name(title: str, *, bytes_max: int = TITLE_BYTES_MAX) -> str:
    """A title as a name that every filesystem takes: one part, never empty, at most so many bytes of UTF-8.

    >>> clean_name("../../etc/passwd"), clean_name("AC/DC: Live?"), clean_name(" ... "), clean_name("nul.txt")
    ('etc passwd', 'AC DC Live', 'untitled', '_nul.txt')
    >>> clean_name("🎸 Sigur Rós"), len(clean_name("é" * 300).encode())
    ('🎸 Sigur Rós', 200)
    """
    text = _FORBIDDEN_CHARACTERS.sub(" ", unicodedata.normalize("NFC", title))
    text = _SPACES.sub(" ", text).strip(_EDGES)
    if _RESERVED.match(text):
        text = f"_{text}"
    return cut_to(text, bytes_max).strip(_EDGES) or FALLBACK


def cut_to(text: str, bytes_max: int) -> str:
    r"""The beginning of a text that fits; no character is cut apart, nor one from what is joined to it.

    >>> cut_to("aé", 2), cut_to("e\u0301x", 2)
    ('a', '')
    """
    whole = text.encode("utf-8", "replace")
    if len(whole) <= bytes_max:
        return text
    kept = whole[:bytes_max].decode("utf-8", "ignore")
    rest = text[len(kept) : len(kept) + 1]
    while kept and (_is_joined(rest) or kept[-1] == _JOINERS[0]):
        kept, rest = kept[:-1], kept[-1]
    return kept


def _is_joined(letter: str) -> bool:
    return letter != "" and (letter in _JOINERS or unicodedata.combining(letter) != 0)


def template_problem(template: str, *, known: Collection[str]) -> str | None:
    """Why text is no template of names in a folder.

    >>> template_problem("podcasts/{feed}/{title}", known=["feed", "title"])
    >>> template_problem("/srv/{feed}", known=["feed"])
    'it begins with /; names are those inside the folder of the target'
    >>> template_problem("{fed}", known=["feed"])
    'there is no {fed}; there is {feed}'
    """
    if template.startswith(("/", "\\")):
        return "it begins with /; names are those inside the folder of the target"
    if ".." in template.split("/"):
        return "it holds .., which would lead out of the folder of the target"
    for name in _PLACEHOLDER.findall(template):
        if name not in known:
            return f"there is no {{{name}}}; there is {', '.join(f'{{{each}}}' for each in known)}"
    if not template.strip("/ ") or set(_PLACEHOLDER.sub("", template)) & set("{}\\"):
        return "it is no path; write names and words in braces, such as {feed}/{title}"
    return None


def fill_template(template: str, parts: Mapping[str, str]) -> tuple[str, ...]:
    """The folders and the name, each clean: what is filled in never adds or leaves a folder.

    >>> fill_template("podcasts/{feed}/{title}", {"feed": "../x", "title": "a/b"})
    ('podcasts', 'x', 'a b')
    >>> fill_template("{feed}/{title}", {"title": "One"})
    ('untitled', 'One')
    """
    filled = (_PLACEHOLDER.sub(lambda found: parts.get(found[1], ""), part) for part in template.split("/") if part)
    return tuple(clean_name(part) for part in filled)
