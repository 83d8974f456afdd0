"""Is this a media file, and what is its ending? What a link promises may be a login page."""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

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
