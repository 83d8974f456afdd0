"""Safe XML."""

from __future__ import annotations

import codecs
import re
import sys
from html.entities import html5
from typing import Final

from lxml import etree

from cormorant.rules.search.outcomes import SourceUnavailable

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
_UTF_8: Final = frozenset({"utf-8", "utf8"})
# What is called Latin-1 is the code page of Windows wherever the two differ; and the first Chinese set is a part of the last.
_MEANT: Final = {"gb2312": "gb18030", "gbk": "gb18030"}
_LATIN: Final = re.compile(r"(iso[-_]?)?8859[-_]1|latin[-_]?1")
_DECLARATION: Final = re.compile(r"\A\s*+<\?xml[^>]{0,300}\?>")
# A section of CDATA is kept as it is: what looks like an entity there is text. One that never ends does so where the
# document does: otherwise each of many would be looked for up to there, which takes the square of the length.
_ENTITY: Final = re.compile(
    r"(<!\[CDATA\[.*?(?:\]\]>|\Z))|&([A-Za-z][A-Za-z0-9]{1,31};)|&#0*([0-9]{1,9});|&#[xX]0*([0-9A-Fa-f]{1,8});|&(?!#)",
    re.DOTALL,
)
_ILLEGAL: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_SPACES: Final = (9, 10, 13)
_SIGNS_MAX: Final = 1_000_000
"""So many entities are looked at. Ten million take ten seconds and a gigabyte, and no honest document has a tenth of it."""
_OWN: Final = frozenset({"amp;", "lt;", "gt;", "quot;", "apos;"})
# Encodings of text, and no other of Python's codecs: some of those take the square of the length.
_KNOWN: Final = re.compile(
    r"(utf[-_]?(16|32)([-_]?[lb]e)?|(iso[-_]?)?8859[-_]\d{1,2}|iso[-_]8859[-_]\d{1,2}|latin[-_]?\d|(windows[-_]|cp)\d{3,4}"
    r"|koi8[-_][rtu]|gbk?|gb2312|gb18030|big5|euc[-_](jp|kr)|shift[-_]jis|mac(intosh|[-_]?roman))"
)


def read_xml(body: bytes, *, charset: str = "") -> etree._Element:
    """The root of a document. Raises `SourceUnavailable` when there is none, or when it declares entities."""
    body = body.lstrip() if body[:1].isspace() else body
    if not body:
        raise SourceUnavailable("the answer is empty")
    refuse_entities(body)
    root = parse_xml(body, recover=False)
    if root is None:
        root = parse_xml(repaired(decode_xml(body, charset=charset)), recover=True, encoding="utf-8")
    if root is None:
        raise SourceUnavailable("the answer is no XML")
    return root


def parse_xml(body: bytes, *, recover: bool, encoding: str | None = None) -> etree._Element | None:
    """The root, or None when it cannot be had. Entities are left as they stand."""
    parser = etree.XMLParser(
        recover=recover,
        encoding=encoding,
        resolve_entities=False,
        no_network=True,
        huge_tree=False,
        load_dtd=False,
        collect_ids=False,
        remove_comments=True,
        remove_pis=True,
        remove_blank_text=True,  # what stands between elements is half of all nodes, and nobody reads it
    )
    try:
        return etree.fromstring(body, parser)
    except (etree.XMLSyntaxError, ValueError, LookupError):
        # A ValueError or LookupError comes from an encoding that nobody knows.
        return None


def declares_entities(body: bytes) -> bool:
    """Whether a document wants entities expanded. Honest ones have a DOCTYPE at most."""
    plain = body.replace(b"\0", b"") if b"\0" in body[:8] else body
    # The one character first: it is found, or not, in a tenth of the time.
    return b"!" in plain and b"<!DOCTYPE" in plain and b"<!ENTITY" in plain


def refuse_entities(body: bytes) -> None:
    """Raise `SourceUnavailable` for an answer that declares entities."""
    if declares_entities(body):
        raise SourceUnavailable("the answer declares XML entities, which may be an attack, and was not read")


def repaired(text: str) -> bytes:
    """A decoded document in UTF-8, without characters that XML forbids, and with the entities of HTML replaced."""
    declaration = _DECLARATION.match(text)
    text = text[declaration.end() :] if declaration else text
    if text.count("&") > _SIGNS_MAX:
        text = text.replace("&", " ")
    return _ENTITY.sub(_character, _ILLEGAL.sub("", text)).encode("utf-8", "replace")


def _character(found: re.Match[str]) -> str:
    if found[3] or found[4]:
        # With mercy, half of a pair would be taken as it is, and could not be read as text.
        return found[0] if _is_legal(int(found[3]) if found[3] else int(found[4], 16)) else ""
    if found[1] is not None or found[2] in _OWN:
        return found[0]
    # A sign that begins nothing known stands for itself.
    meant = html5.get(found[2] or "")
    return f"&amp;{found[0][1:]}" if meant is None else "".join(f"&#{ord(character)};" for character in meant)


def _is_legal(number: int) -> bool:
    return (number >= ord(" ") or number in _SPACES) and number <= sys.maxunicode and not _ILLEGAL.match(chr(number))


def decode_xml(body: bytes, *, charset: str = "", trusts_header: bool = False) -> str:
    """The text of a document, whatever its bytes are. `charset` is what the header states."""
    body = body.lstrip() if body[:1].isspace() else body
    for encoding in _encodings(body, charset.strip().lower(), trusts_header=trusts_header):
        try:
            return body.decode(encoding).lstrip("\ufeff")
        except (UnicodeError, LookupError):
            continue
    return body.removeprefix(codecs.BOM_UTF8).decode("cp1252", "replace")


def _encodings(body: bytes, charset: str, *, trusts_header: bool) -> list[str]:
    for mark, encoding in _MARKS:
        if body.startswith(mark):
            return [encoding, "utf-8"]
    declared = _DECLARED.match(body)
    own = declared[1].decode("ascii").lower() if declared else ""
    # Where a document is in UTF-8 as it says, a header of another opinion is a mistake.
    if trusts_header and own not in _UTF_8:
        return [*_named(charset), *_named(own), "utf-8"]
    return [*_named(own), "utf-8", *_named(charset)]


def _named(encoding: str) -> list[str]:
    if encoding in _UTF_8:
        return ["utf-8"]
    if _LATIN.fullmatch(encoding):
        # It is what programs say that do not know; and text in Latin-1 is never by chance valid UTF-8.
        return ["utf-8", "cp1252", "latin-1"]
    # Without a mark these two are told by their zeros; there are none, so it is something else.
    if not _KNOWN.fullmatch(encoding) or encoding.startswith(("utf-16", "utf-32", "utf16", "utf32")):
        return []
    return [_MEANT.get(encoding, encoding)]
