"""What does one item of a Torznab or Newznab reply say? Attributes are matched by namespace and never by prefix."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import urljoin

from attrs import define, evolve
from lxml import etree

from cormorant.rules.magnets import infohash_of_magnet, read_infohash
from cormorant.rules.published import read_date
from cormorant.rules.redaction import HIDDEN, hide_keys
from cormorant.rules.searches import Protocol, Result

TORZNAB: Final = "http://torznab.com/schemas/2015/feed"
NEWZNAB: Final = "http://www.newznab.com/DTD/2010/feeds/attributes/"
# The last two are what is left of a prefix that was never declared.
_TORZNAB_ATTRS: Final = frozenset({f"{{{TORZNAB}}}attr", "torznab:attr"})
ATTRS: Final = frozenset({*_TORZNAB_ATTRS, f"{{{NEWZNAB}}}attr", "newznab:attr"})

_PROTOCOLS: Final[Mapping[str, Protocol]] = {
    "application/x-bittorrent": "torrent",
    "application/x-bittorrent;x-scheme-handler/magnet": "torrent",
    "application/x-nzb": "usenet",
}
# Where one of these stands first, it is the name and what follows is the value: two look-ups less for most attributes.
_COMMON: Final = frozenset(
    {
        "category", "size", "seeders", "peers", "leechers", "grabs", "files", "infohash", "magneturl", "usenetdate",
        "minimumratio", "minimumseedtime", "downloadvolumefactor", "uploadvolumefactor", "tag", "guid", "rageid",
        "tvdbid", "tvmazeid", "imdb", "imdbid", "tmdbid", "season", "episode", "year", "genre", "language", "poster",
    }
)  # fmt: skip
_PAIR: Final = 2
_ATTR_NAMES: Final = tuple(sorted(ATTRS))
_ELEMENT_NAMES: Final = ("title", "guid", "link", "comments", "pubDate", "size", "category", "enclosure")
_DIGITS_MAX: Final = 18
_NUMBER: Final = re.compile(r"\s*\+?(\d{1,18})(?:\.0*)?\s*", re.ASCII)
_FACTORS: Final = {"0": 0.0, "0.5": 0.5, "1": 1.0, "2": 2.0}
_FACTOR: Final = re.compile(r"\s*(\d{1,6}(?:\.\d{1,12})?)\s*", re.ASCII)
_PLAIN: Final = re.compile(r"[0-9A-Za-z_.~-]+", re.ASCII)
_ESCAPED: Final = re.compile(r"&(?:#\d+|#[xX][0-9a-fA-F]+|[A-Za-z][A-Za-z0-9]*);")


def whole(text: str | None) -> int | None:
    """A count that is not negative; None for anything else.

    >>> [whole(text) for text in ("7", " 12 ", "5.0", "-1", "many", None)]
    [7, 12, 5, None, None, None]
    """
    if not text:
        return None
    if len(text) <= _DIGITS_MAX and text.isdecimal() and text.isascii():
        return int(text)
    found = _NUMBER.fullmatch(text)
    return int(found[1]) if found else None


class _Raw:
    """An item as it is written. `first` has the first value of each attribute, `more` all of those that have several."""

    __slots__ = ("categories", "enclosures", "first", "is_torznab", "more", "texts")

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.categories: list[etree._Element] = []
        self.enclosures: list[etree._Element] = []
        self.first: dict[str, str] = {}
        self.more: dict[str, list[str]] = {}
        self.is_torznab = False

    def text(self, tag: str) -> str:
        """The text of an element, or nothing."""
        return self.texts.get(tag, "")

    def repeat(self, name: str, value: str) -> None:
        """Note a further value. A reply may state each twice, once in each namespace."""
        values = self.more.setdefault(name, [self.first[name]])
        if value not in values:
            values.append(value)

    def all(self, name: str) -> tuple[str, ...]:
        """All values of an attribute."""
        return tuple(self.more[name]) if name in self.more else (self.first[name],) if name in self.first else ()


@define
class ItemReader:
    """Reads the items of one source. `secrets` are hidden wherever they are not needed to fetch; `base` completes links."""

    base: str
    protocol: Protocol | None = None
    secrets: tuple[str, ...] = ()

    def for_reply(self, body: bytes) -> ItemReader:
        """The same, without secrets that surely are not in this reply: looking for them in every text takes its time."""
        # A number may stand for any character, and in UTF-16 the bytes are others.
        if (b"#" in body and b"&#" in body) or b"\0" in body[:8]:
            return self
        secrets = (text for text in self.secrets if not _PLAIN.fullmatch(text) or text.encode() in body)
        return evolve(self, secrets=tuple(secrets))

    def read(self, item: etree._Element) -> Result | None:
        """The result that an item stands for; None when it has neither a title nor anything to fetch."""
        raw = _raw(item)
        first = raw.first.get
        magnet = _magnet(raw)
        enclosure = self._enclosure(raw)
        link = self._link(raw, enclosure, magnet)
        title, guid = raw.text("title"), raw.text("guid")
        if not title and not link:
            return None
        if link.startswith("magnet:"):
            magnet = link
        if "&" in title and _ESCAPED.search(title):
            title = html.unescape(title)
        seeders = whole(first("seeders"))
        return Result(
            title=self._clean(title),
            guid=self._hidden(guid or first("guid") or raw.text("comments") or link or title),
            link=link,
            protocol=self._protocol(raw, enclosure, magnet),
            size_bytes=_size(raw, enclosure),
            published=("usenetdate" in raw.first and read_date(first("usenetdate"))) or read_date(raw.text("pubDate")),
            categories=raw.all("category") or tuple(dict.fromkeys(map(_text, raw.categories))),
            seeders=seeders,
            peers=_peers(raw, seeders),
            grabs=whole(first("grabs")),
            infohash=read_infohash(first("infohash")) or (infohash_of_magnet(magnet) if magnet else None),
            magnet=magnet,
            downloadvolumefactor=_factor(first("downloadvolumefactor")),
            uploadvolumefactor=_factor(first("uploadvolumefactor")),
            enclosure_type="" if enclosure is None else (enclosure.get("type") or ""),
            details=self._details(raw, guid, link),
            attributes=self._attributes(raw),
        )

    def _enclosure(self, raw: _Raw) -> etree._Element | None:
        """The one of the protocol that is wanted, else the first that can be fetched."""
        if not raw.enclosures:
            return None
        usable = [each for each in raw.enclosures if each.get("url")]
        if len(usable) <= 1:
            return usable[0] if usable else None
        wanted = (each for each in usable if self.protocol and _protocol_of(each) == self.protocol)
        known = (each for each in usable if _protocol_of(each))
        return [*wanted, *known, *usable][0]

    def _link(self, raw: _Raw, enclosure: etree._Element | None, magnet: str | None) -> str:
        if enclosure is not None:
            return self._whole_link(enclosure.get("url") or "")
        found = magnet or raw.text("link")
        guid = raw.text("guid")
        return self._whole_link(found or (guid if guid.startswith(("http://", "https://", "magnet:")) else ""))

    def _whole_link(self, link: str) -> str:
        link = link.strip()
        if not link or link.startswith(("http://", "https://", "magnet:")):
            return link
        try:
            return urljoin(self.base, link)
        except ValueError:
            return ""

    def _protocol(self, raw: _Raw, enclosure: etree._Element | None, magnet: str | None) -> Protocol:
        stated = None if enclosure is None else _protocol_of(enclosure)
        if stated:
            return stated
        if magnet or "infohash" in raw.first or "seeders" in raw.first:
            return "torrent"
        if self.protocol:
            return self.protocol
        return "usenet" if raw.first and not raw.is_torznab else "torrent"

    def _details(self, raw: _Raw, guid: str, link: str) -> str:
        page = raw.text("comments").partition("#")[0]
        if not page and guid != link and guid.startswith(("http://", "https://")):
            page = guid
        return self._hidden(self._whole_link(page))

    def _attributes(self, raw: _Raw) -> Mapping[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {name: (value,) for name, value in raw.first.items()}
        for name, values in raw.more.items():
            found[name] = tuple(values)
        if self.secrets:
            return {name: tuple(map(self._clean, values)) for name, values in found.items()}
        return found

    def _hidden(self, text: str) -> str:
        return hide_keys(self._clean(text) if self.secrets else text)

    def _clean(self, text: str) -> str:
        for secret in self.secrets:
            if secret in text:
                text = text.replace(secret, HIDDEN)
        return text


def _raw(item: etree._Element) -> _Raw:
    raw = _Raw()
    texts, first, attribute = raw.texts, raw.first, None
    # Told which names are wanted, lxml does the comparing, which costs more in Python than all the rest.
    for attribute in item.iterchildren(*_ATTR_NAMES):
        pair: list[str] = attribute.values()  # type: ignore[assignment]  # bytes are never read, only put in
        if len(pair) == _PAIR and pair[0] in _COMMON:
            name, value = pair
        else:
            name, value = _named(attribute)
        value = value.strip()
        if name in first:
            raw.repeat(name, value)
        elif name:
            first[name] = value
    raw.is_torznab = attribute is not None and attribute.tag in _TORZNAB_ATTRS
    for child in item.iterchildren(*_ELEMENT_NAMES):
        tag = child.tag
        if tag == "category":
            raw.categories.append(child)
        elif tag == "enclosure":
            raw.enclosures.append(child)
        elif tag not in texts:
            texts[tag] = _text(child)
    return raw


def _named(attribute: etree._Element) -> tuple[str, str]:
    """Name and value in whatever order they stand; no name when either is missing."""
    name, value = attribute.get("name"), attribute.get("value")
    return ("", "") if name is None or value is None else (name.lower(), value)


def _magnet(raw: _Raw) -> str | None:
    stated = raw.first.get("magneturl")
    return stated if stated and stated.startswith("magnet:") else None


def _text(element: etree._Element) -> str:
    text = "".join(_texts_in(element)) if len(element) else element.text
    return text.strip() if text else ""


def _texts_in(element: etree._Element) -> Iterable[str]:
    return (text for text in element.itertext() if isinstance(text, str))


def _protocol_of(enclosure: etree._Element) -> Protocol | None:
    return _PROTOCOLS.get((enclosure.get("type") or "").replace(" ", "").lower())


def _size(raw: _Raw, enclosure: etree._Element | None) -> int | None:
    """What is stated, by whoever knows best. A size of 0 is what servers say when they do not know."""
    length = None if enclosure is None else enclosure.get("length")
    return whole(raw.first.get("size")) or whole(length) or whole(raw.text("size")) or None


def _peers(raw: _Raw, seeders: int | None) -> int | None:
    stated = whole(raw.first.get("peers"))
    if stated is not None or "leechers" not in raw.first:
        return stated
    leechers = whole(raw.first["leechers"])
    return None if leechers is None else leechers + (seeders or 0)


def _factor(text: str | None) -> float | None:
    if text is None:
        return None
    usual = _FACTORS.get(text)
    if usual is None and (found := _FACTOR.fullmatch(text)):
        return float(found[1])
    return usual
