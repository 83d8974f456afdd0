"""In which encoding is a feed? By its mark, its zeros, the header, its own declaration, or what it turns out to be."""

from __future__ import annotations

import codecs
import re
from typing import Final

from cormorant.clients.http.xml_documents import is_encoding_of_text

_MARKS: Final = (
    # The longer first: the mark of UTF-16 begins that of UTF-32.
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    # No mark, but a document begins with "<" or "{", and zeros around that tell the rest.
    (b"<\0\0\0", "utf-32-le"),
    (b"\0\0\0<", "utf-32-be"),
    (b"<\0", "utf-16-le"),
    (b"\0<", "utf-16-be"),
)
_DECLARED: Final = re.compile(rb"<\?xml[^>]{0,200}?encoding\s{0,20}=\s{0,20}[\"']\s{0,20}([A-Za-z0-9._:-]{1,40})")
_CHARSET: Final = re.compile(r"charset\s{0,20}=\s{0,20}[\"']?([A-Za-z0-9._:-]{1,40})", re.IGNORECASE)
# What is called Latin-1 is the code page of Windows wherever the two differ; and the first Chinese set is a part of the last.
_MEANT: Final = {"gb2312": "gb18030", "gbk": "gb18030"}
_LATIN: Final = re.compile(r"(iso[-_]?)?8859[-_]1|latin[-_]?1")


def charset_of(content_type: str) -> str:
    """The encoding that a header states, or nothing.

    >>> charset_of("text/xml; charset = 'Windows-1252'"), charset_of("text/xml")
    ('windows-1252', '')
    """
    found = _CHARSET.search(content_type[:1_000])
    return found[1].lower() if found else ""


def decode_feed(body: bytes, *, charset: str = "") -> str:
    """The text of a document, whatever its bytes are."""
    body = body.lstrip() if body[:1].isspace() else body
    for encoding in _encodings(body, charset):
        try:
            return body.decode(encoding).lstrip("\ufeff")
        except (UnicodeError, LookupError):
            continue
    return body.removeprefix(codecs.BOM_UTF8).decode("cp1252", "replace")


def _encodings(body: bytes, charset: str) -> list[str]:
    for mark, encoding in _MARKS:
        if body.startswith(mark):
            return [encoding, "utf-8"]
    declared = _DECLARED.match(body)
    own = declared[1].decode("ascii").lower() if declared else ""
    if own in {"utf-8", "utf8"}:  # where a document is what it says it is, a header of another opinion is a mistake
        return ["utf-8", *_named(charset)]
    return [*_named(charset), *_named(own), "utf-8"]


def _named(encoding: str) -> list[str]:
    if encoding in {"utf-8", "utf8"}:
        return ["utf-8"]
    if _LATIN.fullmatch(encoding):
        # It is what programs say that do not know; and text in Latin-1 is never by chance valid UTF-8.
        return ["utf-8", "cp1252", "latin-1"]
    # Without a mark these two are told by their zeros; there are none, so it is something else.
    if not is_encoding_of_text(encoding) or encoding.startswith(("utf-16", "utf-32", "utf16", "utf32")):
        return []
    return [_MEANT.get(encoding, encoding)]
