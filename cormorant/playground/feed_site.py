"""Feed hosts and what they publish."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from hashlib import sha256
from html import escape
from typing import Final, Literal

from attrs import define, field, frozen

from cormorant.playground.catalogue import ALBUM_FIRST, ALBUM_SECOND, FILMS
from cormorant.rules.ports import Clock
from cormorant.rules.settings.watch import FeedSettings

_Reply = tuple[int, Mapping[str, str], bytes]
Form = Literal["rss", "atom", "json"]
BEGAN: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""The time 0 of `now`."""
_BOMB: Final = (
    b'<!DOCTYPE rss [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>'
    b"<rss><channel><title>&b;</title></channel></rss>"
)


@frozen(kw_only=True)
class PlayedEntry:
    """One entry of a feed. Without an enclosure of its own it has a file of its host."""

    slug: str
    title: str
    at: datetime
    enclosure: str = ""
    size_bytes: int = 1_000


@frozen(kw_only=True)
class PlayedFeed:
    """A feed with an entry every so many seconds, or with these `entries`, each from its time on; the newest `shown` are in it."""

    title: str
    form: Form = "rss"
    every_s: float = 3_600.0
    begins_with: int = 3
    shown: int = 10
    kind: str = "audio/mpeg"
    ending: str = "mp3"
    entries: tuple[PlayedEntry, ...] = ()

    def newest(self, now_s: float) -> list[PlayedEntry]:
        """What is in it now, the newest first."""
        if self.entries:
            out = [each for each in self.entries if (each.at - BEGAN).total_seconds() <= now_s]
            return sorted(out, key=lambda each: each.at, reverse=True)[: self.shown]
        count = self.begins_with + int(now_s // self.every_s)
        return [self._numbered(number) for number in range(count - 1, max(-1, count - 1 - self.shown), -1)]

    def _numbered(self, number: int) -> PlayedEntry:
        slug = f"{self.title.lower().replace(' ', '-')}-{number}"
        at = BEGAN + timedelta(seconds=self.every_s * number)
        return PlayedEntry(slug=slug, title=f"{self.title} {number}", at=at, size_bytes=1_000 + number)


FEEDS: Final = {
    "/harbour-lights.xml": PlayedFeed(title="Harbour Lights"),
    "/field-recordings.xml": PlayedFeed(title="Field Recordings", form="atom", every_s=600.0),
    "/slow-news.json": PlayedFeed(title="Slow News", form="json", every_s=7_200.0),
    "/open-films.xml": PlayedFeed(
        title="Open Films", every_s=1_800.0, kind="application/x-bittorrent", ending="torrent"
    ),
}


@define(kw_only=True)
class FeedStandIn:
    """Its state and its habits; the habits may be changed at any time."""

    now: Callable[[], float] = field(default=lambda: 0.0)
    url: str = "http://127.0.0.1"
    """What its links begin with; empty: where it was asked."""
    feeds: dict[str, PlayedFeed] = field(factory=lambda: dict(FEEDS))
    moved: dict[str, tuple[int, str]] = field(factory=lambda: {"/old-harbour.xml": (301, "/harbour-lights.xml")})
    """By path: the status of the redirect, and where it leads."""
    failing: dict[str, int] = field(factory=lambda: {"/gone.xml": 410, "/members.xml": 401, "/ill.xml": 503})
    fails_every: dict[str, int] = field(factory=dict)
    """By path: each so many-th request fails with 503."""
    limited: dict[str, int] = field(factory=lambda: {"/busy.xml": 120})
    """By path: asked too often, and so many seconds to wait."""
    endless: set[str] = field(factory=lambda: {"/endless.xml"})
    """Given a body that is too large to be read."""
    asked: list[str] = field(factory=list)
    _counts: dict[str, int] = field(factory=dict)

    def handle(
        self, method: str, path: str, _query: Mapping[str, str], headers: Mapping[str, str], _body: bytes
    ) -> _Reply:
        """Answer one request."""
        self.asked.append(f"{method} {path}")
        if path in self.moved:
            status, target = self.moved[path]
            return status, {"Location": target}, b""
        if path in self.limited:
            return 429, {"Retry-After": str(self.limited[path])}, b"slow down"
        if path in self.failing:
            return self.failing[path], {"Content-Type": "text/html"}, b"<html><body>not now</body></html>"
        if path in self.fails_every and self._is_turn(path):
            return 503, {"Content-Type": "text/html"}, b"<html><body>too busy</body></html>"
        if path in self.feeds:
            return self._feed(path, headers)
        return self._odd(path)

    def _is_turn(self, path: str) -> bool:
        self._counts[path] = self._counts.get(path, 0) + 1
        return self._counts[path] % self.fails_every[path] == 0

    def _odd(self, path: str) -> _Reply:
        odd = {
            "/page.html": b"<!DOCTYPE html><html><head><title>A page</title></head><body>no feed</body></html>",
            "/bomb.xml": _BOMB,
            "/broken.xml": b"<rss><channel><title>Broken &nbsp; Radio</title><item><guid>b1</guid><title>One & two</title>",
        }
        if path in self.endless:
            return 200, {"Content-Type": "text/xml"}, b"<rss><channel>" + b" " * 11_000_000
        return (200, {"Content-Type": "text/html"}, odd[path]) if path in odd else (404, {}, b"")

    def _feed(self, path: str, headers: Mapping[str, str]) -> _Reply:
        feed = self.feeds[path]
        entries = feed.newest(self.now())
        etag = f'"{sha256(f"{path} {entries[:1]}".encode()).hexdigest()[:16]}"'
        changed = format_datetime(entries[0].at if entries else BEGAN, usegmt=True)
        given = {"ETag": etag, "Last-Modified": changed}
        wanted = headers.get("if-none-match")
        is_same = etag == wanted if wanted is not None else headers.get("if-modified-since") == changed
        if is_same:
            return 304, given, b""
        write = {"rss": _rss, "atom": _atom, "json": _json}[feed.form]
        kind = "application/feed+json" if feed.form == "json" else f"application/{feed.form}+xml"
        url = self.url or f"http://{headers.get('host', '')}"
        return 200, {**given, "Content-Type": kind}, write(feed, url, entries).encode()


def _rss(feed: PlayedFeed, url: str, entries: Sequence[PlayedEntry]) -> str:
    items = "".join(
        f"<item><guid isPermaLink='false'>{each.slug}</guid><title>{escape(each.title)}</title>"
        f"<link>{url}/{each.slug}</link><pubDate>{format_datetime(each.at)}</pubDate>"
        f"<enclosure url='{escape(each.enclosure or f'{url}/files/{each.slug}.{feed.ending}')}' "
        f"type='{feed.kind}' length='{each.size_bytes}'/></item>"
        for each in entries
    )
    return f"<rss version='2.0'><channel><title>{escape(feed.title)}</title>{items}</channel></rss>"


def _atom(feed: PlayedFeed, url: str, entries: Sequence[PlayedEntry]) -> str:
    inner = "".join(
        f"<entry><id>urn:{each.slug}</id><title>{escape(each.title)}</title>"
        f"<link href='{url}/{each.slug}'/><updated>{each.at.isoformat()}</updated>"
        f"<link rel='enclosure' href='{escape(each.enclosure or f'files/{each.slug}.{feed.ending}')}' "
        f"type='{feed.kind}'/></entry>"
        for each in entries
    )
    return f"<feed xmlns='http://www.w3.org/2005/Atom'><title>{escape(feed.title)}</title>{inner}</feed>"


def _json(feed: PlayedFeed, url: str, entries: Sequence[PlayedEntry]) -> str:
    items = [
        {
            "id": each.slug,
            "url": f"{url}/{each.slug}",
            "title": each.title,
            "date_published": each.at.isoformat(),
            "attachments": [
                {"url": each.enclosure or f"{url}/files/{each.slug}.{feed.ending}", "mime_type": feed.kind}
            ],
        }
        for each in entries
    ]
    return json.dumps({"version": "https://jsonfeed.org/version/1.1", "title": feed.title, "items": items})


SOON: Final = timedelta(seconds=6)
EVERY: Final = timedelta(minutes=3)
COUNT: Final = 150
LOOKS_AFTER_S: Final = (9.0, 17.0)
"""When somebody looks by hand: the first time something is new, the second time nothing is."""

_MB: Final = 1_000_000
_TORRENT: Final = "application/x-bittorrent"
_FORMS: Final = (("1080p", 4_200), ("480p", 700))


def playground_feeds(address: str) -> dict[str, FeedSettings]:
    """One of each form: films for qBittorrent, recordings for a webhook, and news that is only counted."""
    return {
        "open-films": FeedSettings(
            url=f"{address}/feeds/open-films.xml", every_s=60.0, accept=("1080p",), hand_to=("qbittorrent",)
        ),
        "field-recordings": FeedSettings(
            url=f"{address}/feeds/field-recordings.xml", every_s=60.0, hand_to=("webhook",)
        ),
        "slow-news": FeedSettings(url=f"{address}/feeds/slow-news.json", every_s=60.0, auto_import=False),
    }


def feed_site(clock: Clock) -> FeedStandIn:
    """The host of them. Every second request for the news fails."""

    def now_s() -> float:
        return (clock.now() - BEGAN).total_seconds()

    return FeedStandIn(
        now=now_s,
        url="",
        feeds=dict(_feeds_since(clock.now())),
        fails_every={"/slow-news.json": 2},
    )


def _feeds_since(opened_at: datetime) -> Mapping[str, PlayedFeed]:
    """The names depend on the moment, so that after a restart there is something new; what was there before is a day's."""
    midnight = opened_at.replace(hour=0, minute=0, second=0, microsecond=0)
    old = [midnight - timedelta(days=days) for days in range(3)]
    new = [opened_at + SOON, *(opened_at + EVERY * number for number in range(1, COUNT))]
    films = tuple(entry for at in (*old, *new) for entry in _films(at))
    return {
        "/open-films.xml": PlayedFeed(title="Open Films", kind=_TORRENT, ending="torrent", entries=films),
        "/field-recordings.xml": PlayedFeed(
            title="Field Recordings", form="atom", entries=tuple(_named("Field Recordings", at) for at in (*old, *new))
        ),
        "/slow-news.json": PlayedFeed(
            title="Slow News", form="json", entries=tuple(_named("Slow News", at) for at in (*old, *new[2::2]))
        ),
    }


def _films(at: datetime) -> Iterator[PlayedEntry]:
    """One film in two forms. It has a magnet link, which leads to no host: nobody asks this machine for what a feed names."""
    film = FILMS[_mark(at) % len(FILMS)]
    for form, size_mb in _FORMS:
        title = f"{film} {_mark(at) % 10_000} {form}"
        infohash = sha256(title.encode()).hexdigest()[:40]
        yield PlayedEntry(
            slug=f"film-{_mark(at)}-{form}",
            title=title,
            at=at,
            enclosure=f"magnet:?xt=urn:btih:{infohash}&dn={title.replace(' ', '+')}",
            size_bytes=size_mb * _MB,
        )


def _named(feed: str, at: datetime) -> PlayedEntry:
    chance = random.Random(_mark(at))  # noqa: S311 - invented, not secret
    words = f"{chance.choice(ALBUM_FIRST)} {chance.choice(ALBUM_SECOND)}"
    return PlayedEntry(
        slug=f"{feed.lower().replace(' ', '-')}-{_mark(at)}", title=f"{feed}: {words} {_mark(at) % 10_000}", at=at
    )


def _mark(at: datetime) -> int:
    """Short, and another one for each moment of some weeks."""
    return int(at.timestamp()) % 10_000_000
