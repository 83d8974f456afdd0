"""Reads RSS, Atom and JSON Feed: dates, entries."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cache, lru_cache
from importlib import import_module
from itertools import islice
from time import struct_time
from typing import Final

from attrs import frozen
from lxml import etree

from cormorant.clients.http.headers import read_date
from cormorant.clients.http.xml_documents import declares_entities, decode_xml, parse_xml, repaired
from cormorant.rules.json_documents import Json, objects_of, parse_json
from cormorant.rules.search.outcomes import SourceRefused, SourceUnavailable
from cormorant.rules.secrets import shortened
from cormorant.rules.watch.feed_items import (
    ITEMS_MAX,
    LINK_MAX,
    FeedEnclosure,
    FeedEntry,
    is_whole,
    joined,
    plain,
)

_ROOTS: Final = {"rss", "rdf", "feed", "channel", "entry"}
_ENTRIES: Final = {"item", "entry"}
_SOUGHT: Final = tuple(f"{{*}}{written}" for name in sorted(_ENTRIES) for written in (name, name.title(), name.upper()))
_OWN: Final = re.compile(
    r"http://(my\.netscape\.com/(rdf/simple/0\.9/|publish/formats/rss-0\.91\.dtd)|purl\.org/(rss/1\.0/|rss/2\.0/|atom/ns#)"
    r"|channel\.netscape\.com/rdf/simple/0\.9/|example\.com/newformat#|example\.com/necho|purl\.org/echo/|uri/of/echo/namespace#"
    r"|purl\.org/pie/|www\.w3\.org/2005/Atom|backend\.userland\.com/rss2?|blogs\.law\.harvard\.edu/tech/rss"
    r"|www\.rssboard\.org/rss-specification)"
)
_PREFIXES: Final = {
    "http://purl.org/dc/elements/1.1/": "dc:",
    "http://purl.org/dc/terms/": "dcterms:",
    "http://purl.org/rss/1.0/modules/content/": "content:",
    "http://www.itunes.com/dtds/podcast-1.0.dtd": "itunes:",
    "http://www.itunes.com/DTDs/PodCast-1.0.dtd": "itunes:",
    "http://search.yahoo.com/mrss/": "media:",
    "http://www.w3.org/1999/02/22-rdf-syntax-ns#": "rdf:",
}
_MEDIA_TITLE: Final = "{http://search.yahoo.com/mrss/}title"
_ABOUT: Final = "{http://www.w3.org/1999/02/22-rdf-syntax-ns#}about"
_BASE: Final = "{http://www.w3.org/XML/1998/namespace}base"
# By weight: the first that is there is taken.
_TITLES: Final = ("title", "dc:title", "media:title")
_DATES: Final = (
    "pubdate", "published", "issued", "dcterms:issued", "dc:date", "created", "dcterms:created", "updated", "modified",
    "dcterms:modified",
)  # fmt: skip
_SUMMARIES: Final = ("summary", "description", "abstract", "content", "content:encoded", "dc:description")
_LINK_TYPES: Final = {"", "text/html", "application/xhtml+xml"}
_TEXT_MAX: Final = 10_000
_SUMMARY_MAX: Final = 2_000
_ENCLOSURES_MAX: Final = 100
_CHILDREN_MAX: Final = 300
"""So many elements of an entry are looked at, far more than an honest one has."""
_WALKED_MAX: Final = 2_000
"""So many elements within another are walked for its text: an empty one costs time as well, for each that it stands in."""
_BASES_MAX: Final = 10
"""So many xml:base around a link count, the nearest ones: each may make the address longer for all that stand in it."""
_NUMBER: Final = re.compile(r"\A\s*+([0-9]{1,18})\s*", re.ASCII)
_JSON_FEED: Final = "https://jsonfeed.org/version/"


@frozen(kw_only=True)
class FeedDocument:
    """What stands in a document: at most `ITEMS_MAX` entries, and how many more there are."""

    entries: tuple[FeedEntry, ...] = ()
    left_out: int = 0


def read_feed(body: bytes, *, charset: str = "", address: str = "") -> FeedDocument:
    """Read a document. Raises `SourceRefused` for what is no feed or declares entities; `address` makes links whole."""
    text = decode_xml(body, charset=charset, trusts_header=True)
    if not text.strip():
        raise SourceUnavailable("the feed is empty; if it stays so, check its address")
    if text.lstrip()[:1] in {"{", "["}:
        return _json_feed(text, address)
    if declares_entities(text.encode("utf-8", "replace")):
        raise SourceRefused("the feed declares XML entities, which may be an attack, and was not read")
    return _xml_feed(text, address)


def _xml_feed(text: str, address: str) -> FeedDocument:
    root = _root(text)
    name = "" if root is None else _name(root).rpartition(":")[2]
    if root is None or name not in _ROOTS:
        raise SourceRefused(_no_feed(text, name))
    entries: list[FeedEntry] = []
    more = 0
    for element in root.iter(*_SOUGHT):
        if _name(element) in _ENTRIES:
            more += len(entries) >= ITEMS_MAX
            if len(entries) < ITEMS_MAX:
                entries.append(_entry(element, address))
    return FeedDocument(entries=tuple(entries), left_out=more)


def _root(text: str) -> etree._Element | None:
    """Strictly, then with mercy. With a DOCTYPE the entities of HTML would be left as they stand: those are replaced first."""
    if "<!DOCTYPE" not in text[:2_000]:
        start = text[:400]
        bare = text[start.index("?>") + 2 :] if start.startswith("<?xml") and "?>" in start else text
        root = parse_xml(bare.encode("utf-8", "replace").lstrip(), recover=False, encoding="utf-8")
        if root is not None:
            return root
    return parse_xml(repaired(text).lstrip(), recover=True, encoding="utf-8")


def _no_feed(text: str, name: str) -> str:
    start = text[:4_000].lower()
    if name == "html" or "<html" in start or "<!doctype html" in start:
        return (
            "a web page came instead of a feed; write the address of the feed itself, or see whether it wants a login"
        )
    said = f"a document <{shortened(name, length_max=40)}>" if name else "something that is no XML"
    return f"{said} came instead of a feed; write the address of an RSS, Atom or JSON feed"


def _name(element: etree._Element) -> str:
    """The name in lower case, with the usual prefix of its namespace; a namespace that is a feed's own or nobody's has none."""
    return _plain_name(str(element.tag), bool(element.prefix))


@lru_cache(maxsize=1_000)
def _plain_name(tag: str, has_prefix: bool) -> str:  # noqa: FBT001 - the cache wants it by place
    space, _, local = tag.rpartition("}")
    if not has_prefix or _OWN.fullmatch(space, 1):
        return local.lower()
    return f"{_PREFIXES.get(space[1:], 'other:')}{local.lower()}"


def _text(element: etree._Element) -> str:
    """What stands in it, up to a limit: entries may be written into each other, each with all that follows, or with nothing."""
    if next(element.iterchildren(), None) is None:
        return (element.text or "")[:_TEXT_MAX].strip()
    found, length = [], 0
    for what, each in islice(etree.iterwalk(element, events=("start", "end")), 2 * _WALKED_MAX):
        piece = each.text if what == "start" else "" if each is element else each.tail
        found.append(piece or "")
        length += len(found[-1])
        if length > _TEXT_MAX:
            break
    return "".join(found)[:_TEXT_MAX].strip()


def _media_title(element: etree._Element) -> str:
    """That of a picture or a film in the entry, wherever it stands."""
    near = islice(element.iterdescendants(), _WALKED_MAX)
    return next((each.text or "" for each in near if each.tag == _MEDIA_TITLE), "")


def _entry(element: etree._Element, address: str) -> FeedEntry:
    found: dict[str, etree._Element] = {}
    links: list[etree._Element] = []
    enclosures: list[FeedEnclosure] = []
    for child in islice(element.iterchildren(etree.Element), _CHILDREN_MAX):
        name = _name(child)
        if name == "link":
            links.append(child)
        elif name == "enclosure":
            enclosures.append(_enclosure(child, "url", address))
        elif name not in found or not _text(found[name]):
            found[name] = child
    enclosures += [_enclosure(link, "href", address) for link in links if _rel(link) == "enclosure"]
    guid, permanent = _guid(element, found)
    date = _first(found, _DATES)
    return FeedEntry(
        guid=guid,
        link=_link(links, address) or _whole(element, permanent, address),
        title=_first_plain(found, _TITLES) or plain(_media_title(element)),
        summary=_first_plain(found, _SUMMARIES)[:_SUMMARY_MAX],
        date=date,
        published=read_feed_date(date),
        enclosures=tuple(each for each in enclosures[:_ENCLOSURES_MAX] if each.url),
    )


def _guid(element: etree._Element, found: dict[str, etree._Element]) -> tuple[str, str]:
    """What tells it apart, and that as its address when it is one."""
    guid = found.get("guid")
    if guid is not None and (said := _text(guid)):
        is_permanent = guid.get("isPermaLink", guid.get("ispermalink", "true")).strip().lower() == "true"
        return said, said if is_permanent else ""
    if "id" not in found:
        return element.get(_ABOUT, "").strip(), ""
    said = _text(found["id"])
    return said, said if said.lower().startswith(("http://", "https://")) else ""


def _first(found: dict[str, etree._Element], names: tuple[str, ...]) -> str:
    return next((text for name in names if name in found and (text := _text(found[name]))), "")


def _first_plain(found: dict[str, etree._Element], names: tuple[str, ...]) -> str:
    return plain(_first(found, names))


def _rel(link: etree._Element) -> str:
    return str(link.get("rel", "alternate")).strip().lower()


def _link(links: list[etree._Element], address: str) -> str:
    """The text of a link of RSS, or the first of Atom's that leads to the page of the entry."""
    for link in links:
        is_page = _rel(link) == "alternate" and link.get("type", "").strip().lower() in _LINK_TYPES
        target = link.get("href", "") if is_page else ""
        target = target.strip() or _text(link)
        if target:
            return _whole(link, target, address)
    return ""


def _enclosure(element: etree._Element, attribute: str, address: str) -> FeedEnclosure:
    url = _whole(element, element.get(attribute, ""), address)
    return _sized(url, element.get("type", "").strip(), element.get("length", ""))


def _sized(url: str, kind: str, length: str) -> FeedEnclosure:
    size = _NUMBER.fullmatch(length)
    return FeedEnclosure(url=url, type=kind[:100], size_bytes=int(size[1]) or None if size else None)


def _whole(element: etree._Element, link: str, address: str) -> str:
    """A link made whole, from the address of the feed and every xml:base from the top down."""
    link = link.strip()
    if not link or is_whole(link):
        return link
    said = (each.get(_BASE, "").strip() for each in (element, *element.iterancestors()))
    base = address
    for nearer in reversed(list(islice(filter(None, said), _BASES_MAX))):
        base = _based(base, nearer)
    return joined(base, link)


@lru_cache(maxsize=256)
def _based(base: str, nearer: str) -> str:
    """A base within a base, unless it grows too long; all entries of a feed ask for the same."""
    found = joined(base, nearer)
    return found if len(found) <= LINK_MAX else base


def _json_feed(text: str, address: str) -> FeedDocument:
    try:
        found = parse_json(text)
    except ValueError:
        raise SourceRefused("what came begins as JSON and is none; write the address of a feed") from None
    if not isinstance(found, dict) or not str(found.get("version", "")).startswith(_JSON_FEED):
        raise SourceRefused("JSON came that is no JSON Feed; write the address of an RSS, Atom or JSON feed")
    items = objects_of(found, "items")
    entries = tuple(_json_entry(item, address) for item in items[:ITEMS_MAX])
    return FeedDocument(entries=entries, left_out=max(0, len(items) - ITEMS_MAX))


def _json_entry(item: Json, address: str) -> FeedEntry:
    date = _said(item, "date_published", "date_modified")
    return FeedEntry(
        guid=_said(item, "id"),
        link=joined(address, _said(item, "url", "external_url")),
        title=plain(_said(item, "title")),
        summary=plain(_said(item, "summary", "content_text", "content_html")[:_SUMMARY_MAX]),
        date=date,
        published=read_feed_date(date),
        enclosures=tuple(_attachments(item, address)),
    )


def _attachments(item: Json, address: str) -> Iterator[FeedEnclosure]:
    for each in objects_of(item, "attachments")[:_ENCLOSURES_MAX]:
        if url := _said(each, "url"):
            yield _sized(joined(address, url), _said(each, "mime_type"), _said(each, "size_in_bytes"))


def _said(item: Json, *names: str) -> str:
    """The first of these that says something. Ids and sizes are numbers in some feeds."""
    values = (item.get(name) for name in names)
    # JSON can hold half of a pair, which no text can.
    texts = (
        str(value).encode("utf-8", "replace").decode().strip()
        for value in values
        if isinstance(value, (str, int, float))
    )
    return next((text for text in texts if text), "")


Reader = Callable[[str], struct_time | None]
_LENGTH_MAX: Final = 64
_FORMS: Final = ("onblog", "nate", "greek", "hungarian", "rfc822", "w3dtf", "asctime", "perforce")
_USUAL: Final = re.compile(
    r"\A[A-Za-z0-9, ]+ \d\d:\d\d:\d\d (?:[+-]\d{4}|GMT|UTC|Z)"
    r"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?",
    re.ASCII,
)


def read_feed_date(text: str) -> datetime | None:
    """The time in UTC, or None when there is none to be had.

    >>> print(read_feed_date("Thu, 01 Jan 2004 19:48:21 GMT"), read_feed_date("2004년 05월 28일  01:31:15"))
    2004-01-01 19:48:21+00:00 2004-05-27 16:31:15+00:00
    """
    if not text or len(text) > _LENGTH_MAX:
        return None
    if _USUAL.fullmatch(text) and (usual := read_date(text)) is not None:
        return usual
    return next((found for read in _readers() if (found := _read(read, text)) is not None), None) or _rest(text)


def _rest(text: str) -> datetime | None:
    """Seconds since 1970, and forms of ISO 8601 that are odd but whole."""
    return read_date(text) if text.isascii() and "T" not in text[11:] and ":" not in text[19:] else None


def _read(read: Reader, text: str) -> datetime | None:
    try:
        found = read(text)
        return None if found is None else datetime(*found[:6], tzinfo=UTC)
    except (ValueError, OverflowError, TypeError, IndexError, KeyError, AttributeError):
        # What stands for a date may be anything, and its readers raise more than the errors they document.
        return None


@cache
def _readers() -> tuple[Reader, ...]:
    """Loaded when the first odd date comes: most processes never see one.

    Not the one for ISO 8601: it fills up what is missing with what is today, and finds a date in everything.
    """
    known = import_module("feedparser.datetimes")
    found = (getattr(known, f"_parse_date_{form}", None) for form in _FORMS)
    return tuple(read for read in found if read is not None)
