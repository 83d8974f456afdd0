"""Fetches an enclosure into a folder and checks that it is a media file."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import httpx2
import trio
from attrs import define, field

from cormorant.clients.http.transport import Answer, AnswerTooLarge, FetchLimits, Transport
from cormorant.clients.targets.folders import Folder, PartFile, fill_template, template_problem
from cormorant.clients.targets.target import refuse_false
from cormorant.rules.ports import Ports
from cormorant.rules.search.outcomes import SourceError, SourceRefused
from cormorant.rules.watch.handovers import (
    Parcel,
    ParcelKind,
    ParcelState,
    ParcelStatus,
    TargetError,
    TargetMisconfigured,
    TargetRefused,
    TargetUnavailable,
)

NAMES: Final = ("watch", "feed", "artist", "album", "title", "date", "key")
"""What a template may name."""
_FINAL: Final = range(400, 500)
_PASSING: Final = {408, 425, 429}
_WRITE_BYTES: Final = 1_000_000
_CLEAN_UP_S: Final = 10.0


class DownloadFolder:
    """A folder that enclosures are fetched into. Links come from feeds: give it a transport for which nothing is written."""

    takes: Final = frozenset({ParcelKind.URL})
    can_be_asked: Final = True
    TIMEOUT_S: Final = 3600.0
    IDLE_S = 60.0

    def __init__(
        self, folder: Path, template: str, transport: Transport, environment: Ports, *, size_max_bytes: int
    ) -> None:
        problem = template_problem(template, known=NAMES)
        if problem is not None:
            raise TargetMisconfigured(f"the template {template!r} cannot be used: {problem}")
        self._template = template
        self._size_max_bytes = size_max_bytes
        self._folder = Folder(folder, environment.offload)
        self._transport = transport
        self._environment = environment

    async def submit(self, parcel: Parcel) -> ParcelStatus:
        """Fetch it. When this returns it is done; when it raises, or is cancelled, nothing is left of it."""
        await refuse_false(parcel, self.takes, name="a download folder", offload=self._environment.offload)
        found = await self.status(parcel, None)
        if found.standing is not ParcelState.ABSENT:
            return found
        part = await self._folder.in_thread(self._folder.begin, parcel.key)
        try:
            return await self._fetch(parcel, part)
        finally:
            # Nothing is left of what was given up; after success there is nothing to drop.
            with trio.move_on_after(_CLEAN_UP_S, shield=True):
                await self._folder.in_thread(part.drop)

    async def status(self, parcel: Parcel, receipt: ParcelStatus | None) -> ParcelStatus:  # noqa: ARG002 - the note holds all
        """Whether it was fetched. A file that was moved away since was."""
        placed = await self._folder.in_thread(self._folder.find, parcel.key)
        if placed is None:
            return ParcelStatus(standing=ParcelState.ABSENT)
        return ParcelStatus(target_id=str(placed.path.relative_to(self._folder.root)), standing=ParcelState.DONE)

    async def test(self) -> str:
        """Write a file and remove it."""
        return await self._folder.test()

    async def _fetch(self, parcel: Parcel, part: PartFile) -> ParcelStatus:
        link = parcel.link or ""
        limits = FetchLimits(timeout_s=self.TIMEOUT_S, body_max_bytes=self._size_max_bytes, idle_s=self.IDLE_S)
        sink = _FileSink(part, link, self._folder.in_thread)
        try:
            answer = await self._transport.fetch_into(link, sink, limits=limits)
            self._refuse_status(answer)
            await sink.finish()
        except SourceError as error:
            raise _translated(error, self._size_max_bytes) from error
        parts = {"title": parcel.title, "key": parcel.key, **parcel.folder_parts}
        names = fill_template(self._template, parts)
        path = await self._folder.in_thread(self._folder.place, part, names, sink.ending)
        return ParcelStatus(target_id=str(path.relative_to(self._folder.root)), standing=ParcelState.DONE)

    def _refuse_status(self, answer: Answer) -> None:
        if answer.is_good:
            return
        host = httpx2.URL(answer.url).host
        if answer.magnet is not None or (answer.status in _FINAL and answer.status not in _PASSING):
            raise TargetRefused(f"{host} does not give the file (HTTP {answer.status})")
        wait_s = answer.retry_after_s(self._environment.clock.now())
        raise TargetUnavailable(f"{host} does not give the file now (HTTP {answer.status})", retry_after_s=wait_s)


@define(eq=False)
class _FileSink:
    """Looks at the beginning, then writes in large pieces."""

    _part: PartFile
    _link: str
    _in_thread: Callable[..., Any]
    _kept: bytearray = field(init=False, factory=bytearray)
    _content_type: str = field(init=False, default="")
    _is_checked: bool = field(init=False, default=False)
    ending: str = field(init=False, default="")

    async def begin(self, headers: httpx2.Headers) -> None:
        """The type is said here."""
        self._content_type = headers.get("Content-Type", "")

    async def take(self, piece: bytes) -> None:
        """Keep it until there is enough to be worth a thread."""
        self._kept += piece
        if len(self._kept) >= START_BYTES:
            self._check()
        if len(self._kept) >= _WRITE_BYTES:
            await self._write()

    async def finish(self) -> None:
        """Write the rest and make sure of it."""
        self._check()
        await self._write()
        await self._in_thread(self._part.finish)

    async def _write(self) -> None:
        kept, self._kept = bytes(self._kept), bytearray()
        await self._in_thread(self._part.write, kept)

    def _check(self) -> None:
        if self._is_checked:
            return
        start = bytes(self._kept[:START_BYTES])
        problem = media_problem(start, content_type=self._content_type, link=self._link)
        if problem is not None:
            raise TargetRefused(f"what the link leads to is not kept: {problem}")
        self.ending = media_ending(start, content_type=self._content_type, link=self._link)
        self._is_checked = True


def _translated(error: SourceError, size_max_bytes: int) -> TargetError:
    if isinstance(error, AnswerTooLarge):
        return TargetRefused(f"the file has more than {size_max_bytes:,} bytes; allow larger ones, or leave it out")
    if isinstance(error, SourceRefused):
        return TargetRefused(f"the file cannot be fetched: {error}")
    return TargetUnavailable(f"the file could not be fetched: {error}", retry_after_s=error.retry_after_s)


START_BYTES = 512
"""So much of a file is looked at."""

_ENDINGS = {
    "audio/mpeg": ".mp3",
    "audio/mp3": ".mp3",
    "audio/mp4": ".m4a",
    "audio/x-m4a": ".m4a",
    "audio/aac": ".aac",
    "audio/ogg": ".ogg",
    "audio/opus": ".opus",
    "audio/flac": ".flac",
    "audio/x-flac": ".flac",
    "audio/wav": ".wav",
    "audio/x-wav": ".wav",
    "audio/webm": ".webm",
    "video/mp4": ".mp4",
    "video/x-m4v": ".m4v",
    "video/quicktime": ".mov",
    "video/webm": ".webm",
    "video/x-matroska": ".mkv",
    "image/jpeg": ".jpg",
    "image/png": ".png",
    "application/pdf": ".pdf",
    "application/epub+zip": ".epub",
    "application/zip": ".zip",
}
_KNOWN_ENDINGS = frozenset(_ENDINGS.values()) | {
    ".oga",
    ".ogv",
    ".avi",
    ".mpg",
    ".ts",
    ".wma",
    ".wmv",
    ".aiff",
    ".m4b",
    ".cbz",
}
_MAGIC = (
    (0, b"ID3", ".mp3"),
    (4, b"ftypM4A", ".m4a"),
    (4, b"ftyp", ".mp4"),
    (0, b"OggS", ".ogg"),
    (0, b"fLaC", ".flac"),
    (0, b"RIFF", ".wav"),
    (0, b"\x1aE\xdf\xa3", ".mkv"),
    (0, b"FORM", ".aiff"),
    (0, b"\x30\x26\xb2\x75\x8e\x66\xcf\x11", ".wma"),
    (0, b"\x00\x00\x01\xba", ".mpg"),
    (0, b"\xff\xd8\xff", ".jpg"),
    (0, b"\x89PNG\r\n", ".png"),
    (0, b"GIF8", ".gif"),
    (0, b"%PDF-", ".pdf"),
    (0, b"PK\x03\x04", ".zip"),
)
_TEXT = re.compile(rb"[\t\r\n\x20-\x7e]+")
_MPEG_AUDIO = re.compile(rb"\xff[\xe2-\xff]")
_MEDIA_TYPE = re.compile(r"(?:audio|video|image)/[a-z0-9.+-]{1,60}")
# Text of any encoding that pages come in; a NUL in every second byte is UTF-16.
_BLANK = b"\xef\xbb\xbf\xff\xfe \t\r\n\x00"
_MARKUP = (b"<", b"{", b"[", b"%!")


def media_problem(start: bytes, *, content_type: str, link: str) -> str | None:
    r"""Why a file that begins like this is not kept. What looks like a page never is, whatever is said of it.

    >>> media_problem(b"ID3\x03", content_type="text/plain", link="")
    >>> media_problem(b"  <!DOCTYPE html>", content_type="audio/mpeg", link="https://x.org/a.mp3")
    'it is a page or a document and no media file'
    >>> media_problem(b"\x01\x02\x03\x04", content_type="application/octet-stream", link="https://x.org/get")
    'it is no media file that is known here'
    """
    if not start:
        return "it is empty"
    if _magic_ending(start) is not None:
        return None
    if start.lstrip(_BLANK).startswith(_MARKUP) or _kind(content_type).startswith(("text/", "application/xhtml")):
        return "it is a page or a document and no media file"
    if _is_text(start):
        return "it is text and no media file"
    if _MEDIA_TYPE.fullmatch(_kind(content_type)) or _link_ending(link) is not None:
        return None
    return "it is no media file that is known here"


def media_ending(start: bytes, *, content_type: str, link: str) -> str:
    """The ending of its name: as the link has it, else as it is said to be, else as it looks.

    >>> media_ending(b"ID3", content_type="audio/mpeg", link="https://x.org/Episode%201.M4B?token=1")
    '.m4b'
    >>> media_ending(b"ID3", content_type="", link="https://x.org/play.php")
    '.mp3'
    """
    return _link_ending(link) or _ENDINGS.get(_kind(content_type)) or _magic_ending(start) or ".bin"


def _kind(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def _link_ending(link: str) -> str | None:
    try:
        path = unquote(urlsplit(link).path).lower()
    except ValueError:
        return None
    return next((ending for ending in _KNOWN_ENDINGS if path.endswith(ending)), None)


def _magic_ending(start: bytes) -> str | None:
    if _MPEG_AUDIO.match(start):
        # A mark of UTF-16 begins like a frame of MPEG audio.
        return None if start.startswith(b"\xff\xfe") and _is_text(start[2:].replace(b"\x00", b"")) else ".mp3"
    return next((ending for at, magic, ending in _MAGIC if start[at:].startswith(magic)), None)


def _is_text(start: bytes) -> bool:
    return _TEXT.fullmatch(start) is not None
