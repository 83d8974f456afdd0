"""Safe XML."""

from __future__ import annotations

import codecs
import re
import sys
from html.entities import html5
from typing import Final

from lxml import etree

from cormorant.rules.search.outcomes import SourceUnavailable

_BOMS: Final = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_DECLARED: Final = re.compile(rb"\A\s*+<\?xml[^>]{0,200}?encoding\s*+=\s*+[\"']([A-Za-z0-9._-]{1,40})[\"']")
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
        root = parse_xml(_repaired_bytes(body, charset), recover=True, encoding="utf-8")
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


def refuse_entities(body: bytes) -> None:
    """Honest documents have a DOCTYPE at most; whoever declares entities wants them expanded."""
    plain = body.replace(b"\0", b"") if b"\0" in body[:8] else body
    # The one character first: it is found, or not, in a tenth of the time.
    if b"!" in plain and b"<!DOCTYPE" in plain and b"<!ENTITY" in plain:
        raise SourceUnavailable("the answer declares XML entities, which may be an attack, and was not read")


def _repaired_bytes(body: bytes, charset: str) -> bytes:
    """The same document in UTF-8, without characters that XML forbids, and with the entities of HTML replaced."""
    return repaired(_decoded(body, charset))


def repaired(text: str) -> bytes:
    """A decoded document in UTF-8, as far as XML allows."""
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


def _decoded(body: bytes, charset: str) -> str:
    """The text, by its mark, its declaration, the header, or what it turns out to be."""
    for encoding in _encodings(body, charset):
        try:
            return body.decode(encoding).lstrip("\ufeff")
        except (UnicodeError, LookupError, ValueError):
            continue
    return body.decode("cp1252", "replace")


def is_encoding_of_text(name: str) -> bool:
    """Whether bytes may be decoded by this name of a codec. UTF-8 is not asked for: everything is tried as that."""
    return _KNOWN.fullmatch(name) is not None


def _encodings(body: bytes, charset: str) -> list[str]:
    if body.startswith(_BOMS[1:]):
        return ["utf-16"]
    declared = _DECLARED.match(body.removeprefix(_BOMS[0]))
    stated = declared[1].decode("ascii").lower() if declared else charset.strip().lower()
    if not is_encoding_of_text(stated):
        return ["utf-8"]
    # What the document says of itself weighs more than the header, which many servers send unread.
    return [stated, "utf-8"] if declared else ["utf-8", stated]
