"""How is an app answered? The documents of Torznab and Newznab: what can be searched, what was found, what is wrong."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from email.utils import format_datetime
from typing import Final

from attrs import field, frozen
from lxml import etree

from cormorant import __version__
from cormorant.clients.torznab_items import NEWZNAB, TORZNAB
from cormorant.rules.searches import Caps, Category, Result, SearchKind

__all__ = [
    "FEED_TYPE",
    "PASSED_ON",
    "XML_TYPE",
    "FeedItem",
    "FeedPage",
    "caps_document",
    "error_document",
    "feed_document",
]

XML_TYPE: Final = "application/xml; charset=utf-8"
FEED_TYPE: Final = "application/rss+xml; charset=utf-8"

_ELEMENTS: Final[Mapping[SearchKind, tuple[str, ...]]] = {
    "search": ("search",),
    "tv": ("tv-search",),
    "movie": ("movie-search",),
    "music": ("audio-search", "music-search"),
    "book": ("book-search",),
}
# The order in which Lidarr and others list them; what is not here comes after, by name.
_PARAMS_FIRST: Final = (
    "q",
    "season",
    "ep",
    "imdbid",
    "tvdbid",
    "rid",
    "tvmazeid",
    "tmdbid",
    "artist",
    "album",
    "author",
)
_ENCLOSURES: Final = {"torrent": "application/x-bittorrent", "usenet": "application/x-nzb"}
# What an app may read of a find besides what has a place of its own. Nothing else is passed on: it may hold a key.
PASSED_ON: Final = (
    "files", "minimumratio", "minimumseedtime", "tag", "season", "episode", "year", "genre", "language", "imdb", "imdbid",
    "tvdbid", "tvmazeid", "tmdbid", "rageid", "traktid", "artist", "album", "label", "track", "author", "booktitle",
    "publisher", "team", "group", "poster", "video", "audio", "resolution", "subs",
)  # fmt: skip
_FORBIDDEN: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@frozen(kw_only=True)
class FeedItem:
    """A find as an app is shown it. Invariant: no text in it holds a key."""

    result: Result = field(repr=False)
    guid: str
    link: str
    published: datetime
    details: str = ""


@frozen(kw_only=True)
class FeedPage:
    """A page of finds."""

    title: str
    items: Sequence[FeedItem]
    offset: int
    total: int


def error_document(code: int, description: str) -> bytes:
    """What is wrong."""
    return _bytes(etree.Element("error", code=str(code), description=_legal(description) or "it failed"))


def caps_document(caps: Caps, *, title: str) -> bytes:
    """What can be searched. A kind that a source does not offer is said to be there not."""
    root = etree.Element("caps")
    etree.SubElement(root, "server", title=_legal(title), version=__version__)
    etree.SubElement(root, "limits", default=str(caps.page_size), max=str(caps.page_size))
    searching = etree.SubElement(root, "searching")
    for kind, names in _ELEMENTS.items():
        params = caps.searching.get(kind)
        for name in names:
            offered = "no" if params is None else "yes"
            etree.SubElement(searching, name, available=offered, supportedParams=",".join(_ordered(params or {"q"})))
    categories = etree.SubElement(root, "categories")
    for category in caps.categories:
        _add_category(categories, "category", category)
    return _bytes(root)


def _ordered(params: Iterable[str]) -> list[str]:
    rank = {name: number for number, name in enumerate(_PARAMS_FIRST)}
    return sorted({"q", *params}, key=lambda name: (rank.get(name, len(rank)), name))


def _add_category(parent: etree._Element, tag: str, category: Category) -> None:
    element = etree.SubElement(parent, tag, id=str(category.id), name=_legal(category.name) or str(category.id))
    for child in category.children:
        _add_category(element, "subcat", child)


def feed_document(page: FeedPage) -> bytes:
    """What was found."""
    root = etree.Element("rss", {"version": "2.0"}, nsmap={"torznab": TORZNAB, "newznab": NEWZNAB})
    channel = etree.SubElement(root, "channel")
    _add(channel, "title", page.title)
    _add(channel, "description", "found through the gate")
    etree.SubElement(channel, f"{{{NEWZNAB}}}response", offset=str(page.offset), total=str(page.total))
    for item in page.items:
        _add_item(channel, item)
    return _bytes(root)


def _add_item(channel: etree._Element, item: FeedItem) -> None:
    result, element = item.result, etree.SubElement(channel, "item")
    size = str(result.size_bytes or 0)
    _add(element, "title", result.title or "untitled")
    _add(element, "guid", item.guid).set("isPermaLink", "false")
    _add(element, "link", item.link)
    if item.details:
        _add(element, "comments", item.details)
    _add(element, "pubDate", format_datetime(item.published))
    _add(element, "size", size)
    for category in _numbers(result.categories):
        _add(element, "category", category)
    etree.SubElement(element, "enclosure", url=item.link, length=size, type=_ENCLOSURES[result.protocol])
    namespace = TORZNAB if result.protocol == "torrent" else NEWZNAB
    for name, value in _attributes(result, item.published):
        etree.SubElement(element, f"{{{namespace}}}attr", name=name, value=_legal(value))


def _attributes(result: Result, published: datetime) -> Iterator[tuple[str, str]]:
    for category in _numbers(result.categories):
        yield "category", category
    if result.size_bytes:
        yield "size", str(result.size_bytes)
    if result.protocol == "usenet":
        yield "usenetdate", format_datetime(published)
    counted = {"seeders": result.seeders, "peers": result.peers, "grabs": result.grabs}
    yield from ((name, str(count)) for name, count in counted.items() if count is not None)
    if result.infohash:
        yield "infohash", result.infohash
    factors = {"downloadvolumefactor": result.downloadvolumefactor, "uploadvolumefactor": result.uploadvolumefactor}
    yield from ((name, f"{factor:g}") for name, factor in factors.items() if factor is not None)
    for name in PASSED_ON:
        yield from ((name, value) for value in result.attributes.get(name, ()))


def _numbers(categories: Iterable[str]) -> list[str]:
    return [text for text in categories if text.isascii() and text.isdecimal()]


def _add(parent: etree._Element, tag: str, text: str) -> etree._Element:
    element = etree.SubElement(parent, tag)
    element.text = _legal(text)
    return element


def _legal(text: str) -> str:
    """Without what XML cannot hold."""
    return _FORBIDDEN.sub("", text)


def _bytes(root: etree._Element) -> bytes:
    return etree.tostring(root, xml_declaration=True, encoding="UTF-8")
