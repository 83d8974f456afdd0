"""The Torznab and Newznab XML that apps get."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from email.utils import format_datetime
from functools import cached_property, lru_cache
from typing import Final

from attrs import field, frozen
from lxml import etree

from cormorant import __version__
from cormorant.clients.torznab_items import NEWZNAB, TORZNAB
from cormorant.rules.search.requests import Caps, Category, Result, SearchKind

__all__ = [
    "FEED_TYPE",
    "PASSED_ON",
    "XML_TYPE",
    "GateInfo",
    "TorznabItem",
    "TorznabPage",
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
_DECLARATION: Final = "<?xml version='1.0' encoding='UTF-8'?>\n"
_ESCAPES: Final = {
    "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\t": "&#9;", "\n": "&#10;", "\r": "&#13;",
}  # fmt: skip
# All that is not written as it is: what has a meaning in XML, and what it cannot hold.
_ODD_IN_TEXT: Final = re.compile("[^\t\n\u0020-%'-;=?-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ODD_IN_VALUE: Final = re.compile("[^ !#-%'-;=?-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_FORBIDDEN: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@frozen(kw_only=True)
class GateInfo:
    """What all apps are shown of a find. Invariant: no text in it holds a key."""

    result: Result = field(repr=False)
    guid: str
    indexer_id: int
    indexer: str
    """The source that has it, for apps that tell sources apart in a feed of several."""
    published: datetime
    details: str = ""

    @cached_property
    def around(self) -> tuple[str, str, str]:
        """As XML, around the two places of the link, which each app has of its own."""
        return _around(self)


@frozen(kw_only=True)
class TorznabItem:
    """A find as an app is shown it."""

    shown: GateInfo
    link: str

    @property
    def result(self) -> Result:
        """The find itself."""
        return self.shown.result

    @property
    def published(self) -> datetime:
        """When it counts as published."""
        return self.shown.published


@frozen(kw_only=True)
class TorznabPage:
    """A page of finds."""

    title: str
    link: str
    """Our address as the app sees it."""
    items: Sequence[TorznabItem]
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


def feed_document(page: TorznabPage) -> bytes:
    """What was found, as RSS."""
    # Written as text and not built as a tree: a hundred finds have thousands of elements, and the loop waits meanwhile.
    head = (
        f'{_DECLARATION}<rss xmlns:torznab="{TORZNAB}" xmlns:newznab="{NEWZNAB}" version="2.0"><channel>'
        f"<title>{_text(page.title)}</title><link>{_text(page.link)}</link>"
        "<description>found through the gate</description>"
        f'<newznab:response offset="{page.offset}" total="{page.total}"/>'
    )
    return "".join([head, *[_item(item) for item in page.items], "</channel></rss>"]).encode()


def _item(item: TorznabItem) -> str:
    before, between, after = item.shown.around
    link = _value(item.link)
    return f"{before}{link}{between}{link}{after}"


def _around(shown: GateInfo) -> tuple[str, str, str]:
    result = shown.result
    size, date = result.size_bytes or 0, _date(shown.published)
    comments = f"<comments>{_text(shown.details)}</comments>" if shown.details else ""
    numbers = _numbers(result.categories)
    categories = "".join([f"<category>{number}</category>" for number in numbers])
    prefix = "torznab" if result.protocol == "torrent" else "newznab"
    attributes = "".join(
        [f'<{prefix}:attr name="{name}" value="{value}"/>' for name, value in _attributes(result, numbers, date)]
    )
    title = f"<title>{_text(result.title) or 'untitled'}</title>"
    # No attribute on guid: xml2js makes an object of an element that has any, and cross-seed reads this one as text. It
    # follows the link, because readers of RSS take a guid without isPermaLink for the link where none came before it.
    guid = f"<guid>{_text(shown.guid)}</guid>"
    # With an attribute, for the same reason: cross-seed and Headphones expect the form that Prowlarr writes.
    indexer = f'<prowlarrindexer id="{shown.indexer_id}">{_text(shown.indexer)}</prowlarrindexer>'
    return (
        f"<item>{title}<link>",
        f'</link>{guid}{indexer}{comments}<pubDate>{date}</pubDate><size>{size}</size>{categories}<enclosure url="',
        f'" length="{size}" type="{_ENCLOSURES[result.protocol]}"/>{attributes}</item>',
    )


def _attributes(result: Result, numbers: Sequence[str], date: str) -> list[tuple[str, object]]:
    """Names and values, fit to be written."""
    found: list[tuple[str, object]] = [("category", number) for number in numbers]
    if result.size_bytes:
        found.append(("size", result.size_bytes))
    if result.protocol == "usenet":
        found.append(("usenetdate", date))
    counted = (("seeders", result.seeders), ("peers", result.peers), ("grabs", result.grabs))
    found += [(name, count) for name, count in counted if count is not None]
    if result.infohash:
        found.append(("infohash", _value(result.infohash)))
    factors = (
        ("downloadvolumefactor", result.downloadvolumefactor),
        ("uploadvolumefactor", result.uploadvolumefactor),
    )
    found += [(name, f"{factor:g}") for name, factor in factors if factor is not None]
    more = result.attributes
    return found + [(name, _value(value)) for name in PASSED_ON if name in more for value in more[name]]


@lru_cache(maxsize=4096)
def _date(moment: datetime) -> str:
    return format_datetime(moment)


def _text(text: str) -> str:
    """Text as XML has it, without what it cannot hold."""
    return _ODD_IN_TEXT.sub(_written, text)


def _value(text: str) -> str:
    """The same for the value of an attribute."""
    return _ODD_IN_VALUE.sub(_written, text)


def _written(found: re.Match[str]) -> str:
    return _ESCAPES.get(found[0], "")


def _numbers(categories: Iterable[str]) -> list[str]:
    return [text for text in categories if text.isascii() and text.isdecimal()]


def _legal(text: str) -> str:
    """Without what XML cannot hold."""
    return _FORBIDDEN.sub("", text)


def _bytes(root: etree._Element) -> bytes:
    return etree.tostring(root, xml_declaration=True, encoding="UTF-8")
