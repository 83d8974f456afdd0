"""How do the invented indexers write? Caps, feeds with their quota, and errors, as real ones send them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from email.utils import format_datetime
from html import escape
from typing import Final
from urllib.parse import quote

from attrs import frozen

from cormorant.playground.catalogue import PlayedRelease, Shelf
from cormorant.playground.files import infohash_of
from cormorant.playground.http import StandInRequest, StandInResponse, as_xml

__all__ = ["Quota", "caps_of", "error", "feed"]

_SPACES: Final = {
    "torznab": "http://torznab.com/schemas/2015/feed",
    "newznab": "http://www.newznab.com/DTD/2010/feeds/attributes/",
}
_FILES: Final = {"torznab": ("application/x-bittorrent", "torrent"), "newznab": ("application/x-nzb", "nzb")}
_SEARCHES: Final[Mapping[Shelf, tuple[str, str]]] = {
    "tv": ("tv-search", "q,season,ep,tvdbid,rid"),
    "film": ("movie-search", "q,imdbid,tmdbid,year"),
    "music": ("audio-search", "q,artist,album,year"),
}
_CATEGORIES: Final[Mapping[Shelf, tuple[int, str, Mapping[int, str]]]] = {
    "film": (2000, "Movies", {2040: "Movies/HD", 2045: "Movies/UHD"}),
    "music": (3000, "Audio", {3010: "Audio/MP3", 3040: "Audio/Lossless"}),
    "tv": (5000, "TV", {5030: "TV/SD", 5040: "TV/HD"}),
}


@frozen(kw_only=True)
class Quota:
    """What was used within a day, and how much there is."""

    used: int
    allowed: int | None
    grabs_used: int
    grabs_allowed: int | None
    oldest_s: float
    now: datetime


def error(code: int, words: str, *, status: int = 200, headers: Mapping[str, str] | None = None) -> StandInResponse:
    """An error as indexers state it."""
    return as_xml(f'<error code="{code}" description="{escape(words)}"/>', status=status, headers=headers)


def caps_of(title: str, shelves: Sequence[Shelf]) -> str:
    """What an indexer says it can do."""
    searching = "".join(_searching(shelves))
    categories = "".join(_categories(shelves))
    return (
        f'<caps><server title="{escape(title)}" version="1.0"/><limits default="100" max="100"/><searching>{searching}</searching>'
        f"<categories>{categories}</categories></caps>"
    )


def _searching(shelves: Sequence[Shelf]) -> Iterator[str]:
    yield '<search available="yes" supportedParams="q"/>'
    for shelf, (name, params) in _SEARCHES.items():
        is_there = "yes" if shelf in shelves else "no"
        yield f'<{name} available="{is_there}" supportedParams="{params}"/>'


def _categories(shelves: Sequence[Shelf]) -> Iterator[str]:
    for shelf, (number, name, parts) in _CATEGORIES.items():
        if shelf in shelves:
            below = "".join(f'<subcat id="{part}" name="{part_name}"/>' for part, part_name in parts.items())
            yield f'<category id="{number}" name="{name}">{below}</category>'


def feed(
    title: str, page: Sequence[PlayedRelease], *, kind: str, asked: StandInRequest, total: int, quota: Quota | None
) -> str:
    """An answer to a search."""
    items = "".join(_item(release, kind=kind, asked=asked) for release in page)
    offset = asked.params.get("offset") or "0"
    limits = "" if quota is None else _limits(quota)
    return (
        f'<rss version="2.0" xmlns:torznab="{_SPACES["torznab"]}" xmlns:newznab="{_SPACES["newznab"]}"><channel>'
        f"<title>{escape(title)}</title><link>{escape(asked.base)}</link>"
        f'<newznab:response offset="{escape(offset)}" total="{total}"/>{limits}{items}</channel></rss>'
    )


def _limits(quota: Quota) -> str:
    oldest = format_datetime(quota.now - timedelta(seconds=quota.oldest_s))
    facts = {
        "apicurrent": quota.used,
        "apimax": quota.allowed,
        "grabcurrent": quota.grabs_used,
        "grabmax": quota.grabs_allowed,
        "apioldesttime": oldest,
    }
    written = " ".join(f'{name}="{value}"' for name, value in facts.items() if value is not None)
    return f"<newznab:apilimits {written}/>"


def _item(release: PlayedRelease, *, kind: str, asked: StandInRequest) -> str:
    media, ending = _FILES[kind]
    key = asked.params.get("apikey", "")
    link = escape(f"{asked.base}/download/{release.number}.{ending}" + (f"?apikey={quote(key)}" if key else ""))
    facts: dict[str, object] = {"category": release.category, "size": release.size_bytes, "grabs": release.grabs}
    if kind == "torznab":
        peers = release.seeders + release.leechers
        facts |= {"seeders": release.seeders, "peers": peers, "infohash": infohash_of(release)}
        facts |= {"downloadvolumefactor": 0 if release.number % 10 == 0 else 1, "uploadvolumefactor": 1}
    facts |= release.about
    attributes = "".join(f'<{kind}:attr name="{name}" value="{escape(str(value))}"/>' for name, value in facts.items())
    return (
        f"<item><title>{escape(release.title)}</title>"
        f"<guid>{escape(asked.base)}/details/{release.number}</guid>"
        f"<link>{link}</link><comments>{escape(asked.base)}/details/{release.number}</comments>"
        f"<pubDate>{format_datetime(release.published)}</pubDate><size>{release.size_bytes}</size>"
        f"<category>{release.category}</category>"
        f'<enclosure url="{link}" length="{release.size_bytes}" type="{media}"/>{attributes}</item>'
    )
