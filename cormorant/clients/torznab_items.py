"""What does one item of a Torznab or Newznab reply say? Attributes are matched by namespace and never by prefix."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import urljoin

from attrs import define, field
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
_TEXTS: Final = frozenset({"title", "guid", "link", "comments", "pubDate", "size"})
_NUMBER: Final = re.compile(r"\s*\+?(\d{1,18})(?:\.0*)?\s*", re.ASCII)
_FACTOR: Final = re.compile(r"\s*(\d{1,6}(?:\.\d{1,12})?)\s*", re.ASCII)
_ESCAPED: Final = re.compile(r"&(?:#\d+|#[xX][0-9a-fA-F]+|[A-Za-z][A-Za-z0-9]*);")


def whole(text: str | None) -> int | None:
    """A count that is not negative; None for anything else.

    >>> [whole(text) for text in ("7", " 12 ", "5.0", "-1", "many", None)]
    [7, 12, 5, None, None, None]
    """
    found = _NUMBER.fullmatch(text) if text else None
    return int(found[1]) if found else None


@define
class _Raw:
    """An item as it is written."""

    texts: dict[str, str] = field(factory=dict)
    categories: list[str] = field(factory=list)
    enclosures: list[etree._Element] = field(factory=list)
    attributes: dict[str, list[str]] = field(factory=dict)
    is_torznab: bool = False

    def first(self, name: str) -> str | None:
        """The first value of an attribute."""
        values = self.attributes.get(name)
        return values[0] if values else None


@define
class ItemReader:
    """Reads the items of one source. `secrets` are hidden wherever they are not needed to fetch; `base` completes links."""

    base: str
    protocol: Protocol | None = None
    secrets: tuple[str, ...] = ()

    def read(self, item: etree._Element) -> Result | None:
        """The result that an item stands for; None when it has neither a title nor anything to fetch."""
        raw = _raw(item)
        magnet = self._magnet(raw)
        enclosure = self._enclosure(raw)
        link = self._link(raw, enclosure, magnet)
        title = raw.texts.get("title", "")
        if not title and not link:
            return None
        if link.startswith("magnet:"):
            magnet = link
        seeders = whole(raw.first("seeders"))
        guid = raw.texts.get("guid") or raw.first("guid") or raw.texts.get("comments") or link or title
        return Result(
            title=self._clean(html.unescape(title) if _ESCAPED.search(title) else title),
            guid=self._hidden(guid),
            link=link,
            protocol=self._protocol(raw, enclosure, magnet),
            size_bytes=_size(raw, enclosure),
            published=read_date(raw.first("usenetdate")) or read_date(raw.texts.get("pubDate")),
            categories=tuple(dict.fromkeys(raw.attributes.get("category") or raw.categories)),
            seeders=seeders,
            peers=_peers(raw, seeders),
            grabs=whole(raw.first("grabs")),
            infohash=read_infohash(raw.first("infohash")) or (infohash_of_magnet(magnet) if magnet else None),
            magnet=magnet,
            downloadvolumefactor=_factor(raw.first("downloadvolumefactor")),
            uploadvolumefactor=_factor(raw.first("uploadvolumefactor")),
            enclosure_type="" if enclosure is None else (enclosure.get("type") or ""),
            details=self._details(raw, link),
            attributes=self._attributes(raw),
        )

    def _magnet(self, raw: _Raw) -> str | None:
        stated = raw.first("magneturl") or ""
        return stated if stated.startswith("magnet:") else None

    def _enclosure(self, raw: _Raw) -> etree._Element | None:
        """The one of the protocol that is wanted, else the first that can be fetched."""
        usable = [each for each in raw.enclosures if each.get("url")]
        wanted = (each for each in usable if self.protocol and _protocol_of(each) == self.protocol)
        known = (each for each in usable if _protocol_of(each))
        return next(wanted, None) or next(known, None) if len(usable) > 1 else (usable[0] if usable else None)

    def _link(self, raw: _Raw, enclosure: etree._Element | None, magnet: str | None) -> str:
        if enclosure is not None:
            return self._whole_link(enclosure.get("url") or "")
        found = magnet or raw.texts.get("link")
        guid = raw.texts.get("guid", "")
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
        if magnet or "infohash" in raw.attributes or "seeders" in raw.attributes:
            return "torrent"
        if self.protocol:
            return self.protocol
        return "usenet" if raw.attributes and not raw.is_torznab else "torrent"

    def _details(self, raw: _Raw, link: str) -> str:
        page = (raw.texts.get("comments") or "").partition("#")[0]
        guid = raw.texts.get("guid", "")
        if not page and guid != link and guid.startswith(("http://", "https://")):
            page = guid
        return self._hidden(self._whole_link(page))

    def _attributes(self, raw: _Raw) -> Mapping[str, tuple[str, ...]]:
        return {name: tuple(map(self._clean, dict.fromkeys(values))) for name, values in raw.attributes.items()}

    def _hidden(self, text: str) -> str:
        return hide_keys(self._clean(text))

    def _clean(self, text: str) -> str:
        for secret in self.secrets:
            if secret in text:
                text = text.replace(secret, HIDDEN)
        return text


def _raw(item: etree._Element) -> _Raw:
    raw = _Raw()
    for child in item:
        tag = child.tag
        if tag in ATTRS:
            name, value = child.get("name"), child.get("value")
            if name and value is not None:
                raw.attributes.setdefault(name.lower(), []).append(value.strip())
            if tag in _TORZNAB_ATTRS:
                raw.is_torznab = True
        elif tag in _TEXTS:
            raw.texts.setdefault(str(tag), _text(child))
        elif tag == "category":
            raw.categories.append(_text(child))
        elif tag == "enclosure":
            raw.enclosures.append(child)
    return raw


def _text(element: etree._Element) -> str:
    text = element.text or ""
    if len(element):
        text = "".join(_texts_in(element))
    return text.strip()


def _texts_in(element: etree._Element) -> Iterable[str]:
    return (text for text in element.itertext() if isinstance(text, str))


def _protocol_of(enclosure: etree._Element) -> Protocol | None:
    return _PROTOCOLS.get((enclosure.get("type") or "").replace(" ", "").lower())


def _size(raw: _Raw, enclosure: etree._Element | None) -> int | None:
    """What is stated, by whoever knows best. A size of 0 is what servers say when they do not know."""
    length = None if enclosure is None else enclosure.get("length")
    return whole(raw.first("size")) or whole(length) or whole(raw.texts.get("size")) or None


def _peers(raw: _Raw, seeders: int | None) -> int | None:
    stated = whole(raw.first("peers"))
    leechers = whole(raw.first("leechers"))
    return stated if stated is not None or leechers is None else leechers + (seeders or 0)


def _factor(text: str | None) -> float | None:
    found = _FACTOR.fullmatch(text) if text else None
    return float(found[1]) if found else None
