"""Reads one item of a reply (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import urljoin

from attrs import define, evolve
from lxml import etree

from cormorant.clients.http.headers import read_date
from cormorant.rules.search.requests import Protocol, Result
from cormorant.rules.secrets import HIDDEN, redact_keys
from cormorant.rules.watch.feed_items import unescaped
from cormorant.rules.watch.handovers import infohash_of_magnet, read_infohash

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
_NOTHING: Final = (None,)
_LINKS: Final = ("http://", "https://", "magnet:")
_ATTR_NAMES: Final = tuple(sorted(ATTRS))
_PAIRS: Final = {
    f"{{{namespace}}}attr": etree.XPath("n:attr/@*", namespaces={"n": namespace}, smart_strings=False)
    for namespace in (TORZNAB, NEWZNAB)
}
_ELEMENT_NAMES: Final = ("title", "guid", "comments", "pubDate", "enclosure")
# The same words for all results: what is held once stays near the processor.
_NAMES: Final = {name: name for name in _COMMON}
_DIGITS_MAX: Final = 18
_NUMBER: Final = re.compile(r"\A\s*+\+?(\d{1,18})(?:\.0*)?\s*", re.ASCII)
_FACTORS: Final = {"0": 0.0, "0.5": 0.5, "1": 1.0, "2": 2.0}
_FACTOR: Final = re.compile(r"\A\s*+(\d{1,6}(?:\.\d{1,12})?)\s*", re.ASCII)
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


class _Enclosure(NamedTuple):
    """What an enclosure says of what it holds."""

    url: str
    length: str | None
    type: str

    @property
    def protocol(self) -> Protocol | None:
        """How it is fetched; None when its type does not say."""
        return _PROTOCOLS.get(self.type) or _PROTOCOLS.get(self.type.replace(" ", "").lower())


class _Values(dict[str, tuple[str, ...]]):
    """Each value alone, once for all: most stand in many items."""

    def __missing__(self, value: str) -> tuple[str, ...]:
        alone = self[value] = (value.strip(),)
        return alone


class _Page:
    """The items of one reply, and what is the same for all of them."""

    __slots__ = ("known", "pairs")

    def __init__(self, items: Sequence[etree._Element]) -> None:
        self.known = _Values()
        root = items[0].getroottree().getroot() if items else None
        names = [] if root is None else [name for name in _ATTR_NAMES if next(root.iter(name), None) is not None]
        # Where all are of one kind they are read in one go: a proxy for each costs half as much again.
        self.pairs = _PAIRS.get(names[0]) if len(names) == 1 else None


class _Raw:
    """An item as it is written: the texts of its elements, and all values of each attribute, the first one first."""

    __slots__ = ("attributes", "enclosures", "item", "texts")

    def __init__(self, item: etree._Element, page: _Page) -> None:
        self.item = item
        self.texts: dict[str, str] = {}
        self.enclosures: list[_Enclosure] = []
        self.attributes: dict[str, tuple[str, ...]] = {}
        self._read_elements(item)
        pairs: list[str] = page.pairs(item) if page.pairs else []  # type: ignore[assignment]  # it asks for texts only
        if not pairs or len(pairs) % _PAIR or not _COMMON.issuperset(pairs[::_PAIR]):
            pairs = _stated_pairs(item)
        self._take(pairs, page.known)

    def _read_elements(self, item: etree._Element) -> None:
        texts = self.texts
        for child in item.iterchildren(*_ELEMENT_NAMES):
            tag = child.tag
            if tag == "enclosure":
                self.enclosures.append(_Enclosure(child.get("url", ""), child.get("length"), child.get("type", "")))
            elif tag not in texts:
                text = child.text
                texts[tag] = text.strip() if text and not len(child) else _text(child)

    def _take(self, pairs: list[str], known: _Values) -> None:
        attributes = self.attributes
        put = attributes.setdefault
        names = pairs[::_PAIR]
        several: dict[str, dict[str, None]] = {}
        for name, one in zip(map(_NAMES.get, names, names), map(known.__getitem__, pairs[1::_PAIR]), strict=True):
            first = put(name, one)
            # A reply may state each twice, once in each namespace.
            if first is not one:
                several.setdefault(name, dict.fromkeys(first))[one[0]] = None
        attributes.update((name, tuple(values)) for name, values in several.items())

    def first(self, name: str) -> str | None:
        """The first value of an attribute."""
        return self.attributes.get(name, _NOTHING)[0]

    def rare(self, tag: str) -> tuple[str, ...]:
        """The texts of elements that few need, each once."""
        return tuple(dict.fromkeys(map(_text, self.item.iterchildren(tag))))

    def is_torznab(self) -> bool:
        """Whether its attributes are those of torrents."""
        return next(self.item.iterchildren(*_TORZNAB_ATTRS), None) is not None


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

    def read(self, items: Sequence[etree._Element]) -> tuple[Result, ...]:
        """The results that items stand for, without those that have neither a title nor anything to fetch."""
        page = _Page(items)
        results = [self._read(_Raw(item, page)) for item in items]
        return tuple(result for result in results if result is not None)

    def _read(self, raw: _Raw) -> Result | None:
        first, text, stated = raw.first, raw.texts.get, raw.attributes
        magnet = _magnet(raw) if "magneturl" in stated else None
        enclosure = self._enclosure(raw)
        link = self._link(raw, enclosure, magnet)
        title, guid = text("title", ""), text("guid", "")
        if not title and not link:
            return None
        if link.startswith("magnet:"):
            magnet = link
        if "&" in title and _ESCAPED.search(title):
            title = unescaped(title)
        seeders = whole(first("seeders"))
        return Result(
            title=self._clean(title) if self.secrets else title,
            guid=self._hidden(guid or first("guid") or text("comments") or link or title),
            link=link,
            protocol=(enclosure and enclosure.protocol) or self._protocol(raw, magnet),
            size_bytes=_size(raw, enclosure),
            published=("usenetdate" in stated and read_date(first("usenetdate"))) or read_date(text("pubDate")),
            categories=stated.get("category") or raw.rare("category"),
            seeders=seeders,
            peers=_peers(raw, seeders),
            grabs=whole(first("grabs")),
            infohash=read_infohash(first("infohash")) or (infohash_of_magnet(magnet) if magnet else None),
            magnet=magnet,
            downloadvolumefactor=_factor(first("downloadvolumefactor")),
            uploadvolumefactor=_factor(first("uploadvolumefactor")),
            enclosure_type=enclosure.type if enclosure else "",
            details=self._details(text("comments", ""), guid, link),
            attributes=self._attributes(raw) if self.secrets else stated,
        )

    def _enclosure(self, raw: _Raw) -> _Enclosure | None:
        """The one of the protocol that is wanted, else the first that can be fetched."""
        found = raw.enclosures
        if len(found) == 1 and found[0].url:
            return found[0]
        usable = [each for each in found if each.url]
        wanted = (each for each in usable if self.protocol and each.protocol == self.protocol)
        known = (each for each in usable if each.protocol)
        return next(iter((*wanted, *known, *usable)), None)

    def _link(self, raw: _Raw, enclosure: _Enclosure | None, magnet: str | None) -> str:
        if enclosure:
            return self._whole_link(enclosure.url)
        guid = raw.texts.get("guid", "")
        return self._whole_link(magnet or _first_of(raw, "link") or (guid if guid.startswith(_LINKS) else ""))

    def _whole_link(self, link: str) -> str:
        link = link.strip()
        if not link or link.startswith(_LINKS):
            return link
        try:
            return urljoin(self.base, link)
        except ValueError:
            return ""

    def _protocol(self, raw: _Raw, magnet: str | None) -> Protocol:
        """How it is fetched, where no enclosure says so."""
        if magnet or "infohash" in raw.attributes or "seeders" in raw.attributes:
            return "torrent"
        if self.protocol:
            return self.protocol
        return "usenet" if raw.attributes and not raw.is_torznab() else "torrent"

    def _details(self, page: str, guid: str, link: str) -> str:
        if "#" in page:
            page = page.partition("#")[0]
        if not page and guid != link and guid.startswith(("http://", "https://")):
            page = guid
        return self._hidden(self._whole_link(page))

    def _attributes(self, raw: _Raw) -> Mapping[str, tuple[str, ...]]:
        return {name: tuple(map(self._clean, values)) for name, values in raw.attributes.items()}

    def _hidden(self, text: str) -> str:
        return redact_keys(self._clean(text) if self.secrets else text)

    def _clean(self, text: str) -> str:
        for secret in self.secrets:
            if secret in text:
                text = text.replace(secret, HIDDEN)
        return text


def _stated_pairs(item: etree._Element) -> list[str]:
    """The names and values of whatever is an attribute, wherever they stand in it."""
    pairs: list[str] = []
    # Told which names are wanted, lxml does the comparing, which costs more in Python than all the rest.
    for attribute in item.iterchildren(*_ATTR_NAMES):
        values: list[str] = attribute.values()  # type: ignore[assignment]  # bytes are never read, only put in
        pairs += values if len(values) == _PAIR and values[0] in _COMMON else _named(attribute)
    return pairs


def _named(attribute: etree._Element) -> tuple[str, str] | tuple[()]:
    """Name and value in whatever order they stand; nothing when either is missing."""
    name, value = attribute.get("name"), attribute.get("value")
    return (name.lower(), value) if name and value is not None else ()


def _first_of(raw: _Raw, tag: str) -> str:
    return (*raw.rare(tag), "")[0]


def _magnet(raw: _Raw) -> str | None:
    stated = raw.first("magneturl")
    return stated if stated and stated.startswith("magnet:") else None


def _text(element: etree._Element) -> str:
    text = "".join(_texts_in(element)) if len(element) else element.text
    return text.strip() if text else ""


def _texts_in(element: etree._Element) -> Iterable[str]:
    return (text for text in element.itertext() if isinstance(text, str))


def _size(raw: _Raw, enclosure: _Enclosure | None) -> int | None:
    """What is stated, by whoever knows best. A size of 0 is what servers say when they do not know."""
    length = enclosure.length if enclosure else None
    return whole(raw.first("size")) or whole(length) or whole(_first_of(raw, "size")) or None


def _peers(raw: _Raw, seeders: int | None) -> int | None:
    stated = whole(raw.first("peers"))
    if stated is not None or "leechers" not in raw.attributes:
        return stated
    leechers = whole(raw.first("leechers"))
    return None if leechers is None else leechers + (seeders or 0)


def _factor(text: str | None) -> float | None:
    if text is None:
        return None
    usual = _FACTORS.get(text)
    if usual is None and (found := _FACTOR.fullmatch(text)):
        return float(found[1])
    return usual
