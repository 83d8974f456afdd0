"""An indexer that can ban you, and its XML."""

from __future__ import annotations

import math
import zlib
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from email.utils import format_datetime
from html import escape
from typing import Final, Literal
from urllib.parse import quote

import trio
from attrs import define, field, frozen

from cormorant.clients.torznab_items import NEWZNAB, TORZNAB, whole
from cormorant.playground.catalogue import (
    SHELVES,
    PlayedCatalogue,
    PlayedRelease,
    Shelf,
    infohash_of,
    nzb_of,
    torrent_of,
    words_in,
)
from cormorant.playground.http import StandInRequest, StandInResponse, as_html, as_xml, remember
from cormorant.rules.ports import Clock
from cormorant.rules.search.requests import Caps, Category, SearchKind
from cormorant.services.gate.torznab_documents import XML_TYPE, caps_document

PAGE_MAX: Final = 100
_MINUTE_S: Final = 60.0
_DAY_S: Final = 86_400.0
_FUNCTIONS: Final[dict[str, tuple[Shelf, ...]]] = {
    "search": SHELVES,
    "tvsearch": ("tv",),
    "movie": ("film",),
    "music": ("music",),
}
_ABOUT: Final = ("artist", "album", "year", "season", "ep", "tvdbid", "rid", "tmdbid")
_GROUP: Final = 1_000


@frozen(kw_only=True)
class Habits:
    """How a stand-in indexer behaves."""

    kind: Literal["torznab", "newznab"] = "torznab"
    title: str = ""
    """What it calls itself; its name if empty."""
    key: str = ""
    """The only key that it accepts; empty: it wants none."""
    refuses_every_key: bool = False
    shelves: tuple[Shelf, ...] = SHELVES
    """What it has."""
    share: float = 1.0
    """How much of that."""
    per_minute: int | None = None
    per_day: int | None = None
    grabs_per_day: int | None = None
    says_retry_after: bool = True
    """Whether 429 comes with the time to wait."""
    limit_status: int = 429
    """HTTP status of "too many"; some say 200 and leave it to the document."""
    states_quota: bool = False
    """Whether answers say what was used and how much there is (`newznab:apilimits`)."""
    answers_after_s: float = 0.0
    fails_every: int = 0
    """Every so many requests it answers with 503; 0: never."""
    states_error: tuple[int, str] | None = None
    """An error document, code and words, instead of every answer."""
    is_private: bool = False


@define(eq=False, kw_only=True)
class Indexer:
    """A site that is asked. It remembers what it was asked, and when."""

    name: str
    habits: Habits = field(factory=Habits)
    catalogue: PlayedCatalogue
    clock: Clock
    asked: list[StandInRequest] = field(init=False, factory=list)
    _queries: deque[float] = field(init=False, factory=deque)
    _grabs: deque[float] = field(init=False, factory=deque)
    _count: int = field(init=False, default=0)

    @property
    def title(self) -> str:
        """What it calls itself."""
        return self.habits.title or self.name.capitalize()

    async def answer(self, asked: StandInRequest) -> StandInResponse:
        """What the site says, if the key is right."""
        given = asked.params.get("apikey", "")
        if asked.path != "/" and self._refuses(given):
            remember(self.asked, asked)
            await trio.sleep(self.habits.answers_after_s)
            return error(100, "Incorrect user credentials") if given else error(200, "Missing parameter (apikey)")
        return await self.speak(asked)

    def _refuses(self, given: str) -> bool:
        return self.habits.refuses_every_key or bool(self.habits.key and given != self.habits.key)

    async def speak(self, asked: StandInRequest) -> StandInResponse:
        """What the site says to somebody who may ask. Links carry the key that came with the request."""
        remember(self.asked, asked)
        await trio.sleep(self.habits.answers_after_s)
        if asked.path == "/api":
            return self._torznab(asked)
        if asked.path.startswith("/download/"):
            return self._download(asked)
        return as_html(f"{self.title}, an invented site.", status=200 if asked.path == "/" else 404)

    def _torznab(self, asked: StandInRequest) -> StandInResponse:
        function = asked.params.get("t", "")
        trouble = self._trouble(self._queries, self.habits.per_day, "Request limit reached", code=500)
        if trouble is not None:
            return trouble
        if function == "caps":
            return StandInResponse(kind=XML_TYPE, body=caps_of(self.title, self.habits.shelves))
        if function not in _FUNCTIONS:
            return error(202, "No such function") if function else error(200, "Missing parameter (t)")
        offset, limit = (whole(asked.params.get(name) or usual) for name, usual in (("offset", "0"), ("limit", "100")))
        if offset is None or limit is None:
            return error(201, "Incorrect parameter")
        found = list(self._found(asked, function))
        page = found[offset : offset + min(limit, PAGE_MAX)]
        limits = self._limits() if self.habits.states_quota else ""
        return as_xml(feed(self.title, page, kind=self.habits.kind, asked=asked, total=len(found), limits=limits))

    def _trouble(self, spent: deque[float], per_day: int | None, words: str, *, code: int) -> StandInResponse | None:
        """What stands in the way of an answer. Every request that gets this far counts."""
        self._count += 1
        if self.habits.states_error is not None:
            return error(*self.habits.states_error)
        if self.habits.fails_every and self._count % self.habits.fails_every == 0:
            return as_html("Down for maintenance. Back in a minute.", status=503)
        wait_s = self._wait_s(spent, per_day)
        if wait_s > 0:
            headers = {"Retry-After": str(math.ceil(wait_s))} if self.habits.says_retry_after else {}
            return error(code, words, status=self.habits.limit_status, headers=headers)
        spent.append(trio.current_time())
        return None

    def _wait_s(self, spent: deque[float], per_day: int | None) -> float:
        now = trio.current_time()
        while spent and spent[0] <= now - _DAY_S:
            spent.popleft()
        waits = [0.0]
        for limit, width_s in ((self.habits.per_minute, _MINUTE_S), (per_day, _DAY_S)):
            if limit is not None and len(spent) >= limit:
                waits.append(spent[-limit] + width_s - now)
        return max(waits)

    def _limits(self) -> str:
        """What was used within a day, and how much there is."""
        oldest_s = trio.current_time() - self._queries[0] if self._queries else 0.0
        facts = {
            "apicurrent": len(self._queries),
            "apimax": self.habits.per_day,
            "grabcurrent": len(self._grabs),
            "grabmax": self.habits.grabs_per_day,
            "apioldesttime": format_datetime(self.clock.now() - timedelta(seconds=oldest_s)),
        }
        written = " ".join(f'{name}="{value}"' for name, value in facts.items() if value is not None)
        return f"<newznab:apilimits {written}/>"

    def _has(self, release: PlayedRelease) -> bool:
        luck = zlib.crc32(f"{self.name} {release.number}".encode()) % 100
        return release.shelf in self.habits.shelves and luck < self.habits.share * 100

    def _found(self, asked: StandInRequest, function: str) -> Iterator[PlayedRelease]:
        wanted = words_in(asked.params.get("q", ""))
        categories = {whole(word) for word in asked.params.get("cat", "").split(",")} - {None}
        about = {name: asked.params[name].lower() for name in _ABOUT if asked.params.get(name)}
        imdb = asked.params.get("imdbid", "").removeprefix("tt")
        for release in self.catalogue.out(self.clock.now()):
            is_meant = self._has(release) and release.shelf in _FUNCTIONS[function] and wanted <= release.words
            is_of = all(_is_same(release.about.get(name, ""), value) for name, value in about.items())
            is_imdb = not imdb or release.about.get("imdbid", "").removeprefix("tt") == imdb
            in_category = not categories or {release.category, release.category // _GROUP * _GROUP} & categories
            if is_meant and is_of and is_imdb and in_category:
                yield release

    def _download(self, asked: StandInRequest) -> StandInResponse:
        number = whole(asked.path.removeprefix("/download/").partition(".")[0])
        release = None if number is None else self.catalogue.find(number)
        if release is None or not self._has(release):
            return as_html("There is no such file.", status=404)
        trouble = self._trouble(self._grabs, self.habits.grabs_per_day, "Download limit reached", code=501)
        if trouble is not None:
            return trouble
        if self.habits.kind == "newznab":
            return StandInResponse(kind="application/x-nzb", body=nzb_of(release))
        return StandInResponse(
            kind="application/x-bittorrent", body=torrent_of(release, tracker=f"{asked.base}/announce")
        )


def _category(number: int, name: str, parts: Mapping[int, str]) -> Category:
    children = tuple(Category(id=part, name=f"{name}/{part_name}") for part, part_name in parts.items())
    return Category(id=number, name=name, children=children)


def _is_same(ours: str, asked: str) -> bool:
    if whole(ours) is not None and whole(asked) is not None:
        return whole(ours) == whole(asked)
    return words_in(asked) <= words_in(ours)


_FILES: Final = {"torznab": ("application/x-bittorrent", "torrent"), "newznab": ("application/x-nzb", "nzb")}
_OFFERED: Final[Mapping[Shelf, tuple[SearchKind, str, Category]]] = {
    "film": ("movie", "q imdbid tmdbid year", _category(2000, "Movies", {2040: "HD", 2045: "UHD"})),
    "music": ("music", "q artist album year", _category(3000, "Audio", {3010: "MP3", 3040: "Lossless"})),
    "tv": ("tv", "q season ep tvdbid rid", _category(5000, "TV", {5030: "SD", 5040: "HD"})),
}


def error(code: int, words: str, *, status: int = 200, headers: Mapping[str, str] | None = None) -> StandInResponse:
    """An error as indexers state it."""
    return as_xml(f'<error code="{code}" description="{escape(words)}"/>', status=status, headers=headers)


def caps_of(title: str, shelves: Collection[Shelf]) -> bytes:
    """What an indexer says it can do."""
    offered = [each for shelf, each in _OFFERED.items() if shelf in shelves]
    searching: dict[SearchKind, frozenset[str]] = {"search": frozenset({"q"})}
    searching |= {kind: frozenset(params.split()) for kind, params, _ in offered}
    return caps_document(Caps(searching=searching, categories=tuple(each[2] for each in offered)), title=title)


def feed(
    title: str, page: Sequence[PlayedRelease], *, kind: str, asked: StandInRequest, total: int, limits: str
) -> str:
    """An answer to a search."""
    items = "".join(_item(release, kind=kind, asked=asked) for release in page)
    offset = asked.params.get("offset") or "0"
    return (
        f'<rss version="2.0" xmlns:torznab="{TORZNAB}" xmlns:newznab="{NEWZNAB}"><channel>'
        f"<title>{escape(title)}</title><link>{escape(asked.base)}</link>"
        f'<newznab:response offset="{escape(offset)}" total="{total}"/>{limits}{items}</channel></rss>'
    )


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
