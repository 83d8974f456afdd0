"""What can an indexer do? Its caps document, read so that nonsense in one part spoils no other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from lxml import etree

from cormorant.clients.torznab_items import whole
from cormorant.clients.torznab_replies import local_name
from cormorant.rules.search.outcomes import SourceUnavailable
from cormorant.rules.search.requests import Caps, Category, SearchKind, page_size

_KINDS: Final[Mapping[str, SearchKind]] = {
    "search": "search",
    "tv-search": "tv",
    "movie-search": "movie",
    "audio-search": "music",
    "music-search": "music",
    "book-search": "book",
}
# What a kind takes when the source does not say: the specification's defaults.
_DEFAULTS: Final[Mapping[SearchKind, frozenset[str]]] = {
    "search": frozenset({"q"}),
    "tv": frozenset({"q", "rid", "season", "ep"}),
    "movie": frozenset({"q", "imdbid"}),
    "music": frozenset({"q"}),
    "book": frozenset({"q"}),
}


def read_caps(root: etree._Element) -> Caps:
    """What a source offers. Raises `SourceUnavailable` when the document is no caps."""
    if local_name(root) != "caps":
        raise SourceUnavailable(f"it answered with a <{local_name(root)[:40]}> instead of what it can do")
    limits = _child(root, "limits")
    server = _child(root, "server")
    searching, states_params = _searching(_child(root, "searching"))
    return Caps(
        page_size=page_size(*(None if limits is None else limits.get(name) for name in ("default", "max"))),
        searching=searching,
        states_params=states_params,
        categories=tuple(_categories(_child(root, "categories"), "category")),
        title=((server is not None and server.get("title")) or "")[:200],
    )


def _child(parent: etree._Element, name: str) -> etree._Element | None:
    return next((child for child in parent if local_name(child) == name), None)


def _searching(parent: etree._Element | None) -> tuple[dict[SearchKind, frozenset[str]], frozenset[SearchKind]]:
    found: dict[SearchKind, set[str]] = {}
    stated: set[SearchKind] = set()
    for element in () if parent is None else parent:
        kind = _KINDS.get(local_name(element))
        if kind is None or (element.get("available") or "").strip().lower() != "yes":
            continue
        listed = element.get("supportedParams")
        found.setdefault(kind, set()).update(_DEFAULTS[kind] if listed is None else _names(listed))
        if listed is not None:
            stated.add(kind)
    return {kind: frozenset(params) for kind, params in found.items()}, frozenset(stated)


def _names(listed: str) -> frozenset[str]:
    return frozenset(name.strip().lower() for name in listed.split(",") if name.strip())


def _categories(parent: etree._Element | None, name: str) -> Iterator[Category]:
    """Those that have a number; private ones are large, and a subcategory may stand at the top."""
    for element in () if parent is None else parent:
        number = whole(element.get("id"))
        if local_name(element) == name and number is not None:
            title = (element.get("name") or "").strip()
            yield Category(id=number, name=title, children=tuple(_categories(element, "subcat")))
