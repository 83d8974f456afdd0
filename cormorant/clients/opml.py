"""OPML in and out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final
from urllib.parse import urlsplit

from attrs import field, frozen
from lxml import etree

from cormorant.clients.http.xml_documents import declares_entities, decode_xml, parse_xml, repaired
from cormorant.rules.errors import CormorantError
from cormorant.rules.secrets import shortened
from cormorant.rules.watch.feed_items import LINK_MAX, plain
from cormorant.rules.watch.feeds import fit_name

FEEDS_MAX: Final = 10_000
BYTES_MAX: Final = 10_000_000
_NAME_MAX: Final = 100
_READ_MAX: Final = 1_000
"""So much of a name is looked at, before it is shortened."""
_FOLDERS_MAX: Final = 10
"""So deep do folders lie in each other; of deeper ones the outermost count."""


class NotOpml(CormorantError):
    """What was given is no list of feeds."""


@frozen(kw_only=True)
class Outline:
    """A feed in a list. `url` may hold a key: whoever writes the list writes it, too."""

    name: str
    url: str = field(repr=False)
    folder: tuple[str, ...] = ()


@frozen(kw_only=True)
class FeedList:
    """The feeds of a list in their order, and the names of those whose address is none of http or https."""

    feeds: tuple[Outline, ...] = ()
    left_out: tuple[str, ...] = ()


def read_opml(body: bytes, *, taken: Collection[str] = ()) -> FeedList:
    """Read a list. Every name is there once, and none is one of `taken`; an address that comes twice is taken once.

    Raises `NotOpml`, also for lists that are an attack.
    """
    feeds: dict[str, Outline] = {}
    left_out: list[str] = []
    names = {name.casefold(): 1 for name in taken}
    folders: dict[etree._Element, tuple[str, ...]] = {}
    for element in _outlines(_root(body)):
        url = (element.get("xmlUrl") or element.get("xmlurl") or "").strip()
        if url in feeds:
            continue
        name = _feed_name(element, _host(url))
        if not _host(url) or len(url) > LINK_MAX:
            left_out.append(name)
        else:
            feeds[url] = Outline(name=_unique(name, names), url=url, folder=_folder(element, folders))
        if len(feeds) + len(left_out) > FEEDS_MAX:
            raise NotOpml(f"the list has more than {FEEDS_MAX:,} feeds; divide it")
    return FeedList(feeds=tuple(feeds.values()), left_out=tuple(left_out))


def write_opml(feeds: Iterable[Outline], *, title: str = "Subscriptions") -> bytes:
    """The list as other programs read it. Keys in addresses stand in it: it is as secret as they are."""
    root = etree.Element("opml", version="2.0")
    etree.SubElement(etree.SubElement(root, "head"), "title").text = _clean(title)
    body = etree.SubElement(root, "body")
    folders: dict[tuple[str, ...], etree._Element] = {(): body}
    for feed in feeds:
        above = _made(folders, feed.folder)
        etree.SubElement(above, "outline", type="rss", text=_clean(feed.name), xmlUrl=_clean(feed.url))
    return etree.tostring(root, xml_declaration=True, encoding="utf-8", pretty_print=True)


def _made(folders: dict[tuple[str, ...], etree._Element], path: tuple[str, ...]) -> etree._Element:
    for depth in range(1, len(path) + 1):
        part = path[:depth]
        if part not in folders:
            folders[part] = etree.SubElement(folders[part[:-1]], "outline", text=_clean(part[-1]))
    return folders[path]


def _clean(text: str) -> str:
    """Without characters that XML cannot hold."""
    kept = "".join(character for character in text if character.isprintable())
    return kept.encode("utf-8", "ignore").decode()


def _root(body: bytes) -> etree._Element:
    if len(body) > BYTES_MAX:
        raise NotOpml(f"the list has more than {BYTES_MAX:,} bytes; divide it")
    text = decode_xml(body)
    if declares_entities(text.encode("utf-8", "replace")):
        raise NotOpml("the list declares XML entities, which may be an attack, and was not read")
    root = parse_xml(repaired(text).lstrip(), recover=True, encoding="utf-8") if text.strip() else None
    if root is None or str(root.tag).lower() != "opml":
        raise NotOpml("this is no OPML; export the list of feeds as OPML from the other program")
    return root


def _outlines(root: etree._Element) -> Iterator[etree._Element]:
    for element in root.iter("outline"):
        if element.get("xmlUrl") is not None or element.get("xmlurl") is not None:
            yield element


def _folder(element: etree._Element, known: dict[etree._Element, tuple[str, ...]]) -> tuple[str, ...]:
    """The names around a feed. Each folder is looked at once: many feeds may lie deep in folders of long names."""
    above = element.getparent()
    if above is None:
        return ()
    if above not in known:
        outer = _folder(above, known)
        is_folder = above.tag == "outline" and above.get("xmlUrl") is None and len(outer) < _FOLDERS_MAX
        name = _name(above) if is_folder else ""
        known[above] = (*outer, name) if name else outer
    return known[above]


def _name(element: etree._Element) -> str:
    said = plain((element.get("text") or "")[:_READ_MAX]) or plain((element.get("title") or "")[:_READ_MAX])
    return fit_name(shortened(said, length_max=_NAME_MAX))


def _feed_name(element: etree._Element, host: str) -> str:
    """Its name, else its host. One of digits alone would be taken for the number of a feed, and gets its host, too."""
    where = fit_name(shortened(host, length_max=_NAME_MAX // 2))
    name = _name(element) or where or "feed"
    return f"{name[: _NAME_MAX // 2]} ({where or 'feed'})" if name.isdecimal() else name


def _host(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    return parts.hostname or "" if parts.scheme in {"http", "https"} else ""


def _unique(name: str, names: dict[str, int]) -> str:
    """The name, or the name with the next number that makes it new; it counts as taken from now on."""
    free, number = name, names.get(name.casefold(), 0)
    while free.casefold() in names:
        number += 1
        free = f"{name} ({number})"
    # Where to go on counting: a list in which all have one name would otherwise take the square of its length.
    names[name.casefold()] = max(number, 1)
    names.setdefault(free.casefold(), 1)
    return free
