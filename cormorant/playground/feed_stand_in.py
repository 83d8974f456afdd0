"""What do the hosts of feeds say? A few invented podcasts and blogs that grow, and the habits of those that are ill."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from hashlib import sha256
from html import escape
from typing import Final, Literal

from attrs import define, field, frozen

_Reply = tuple[int, Mapping[str, str], bytes]
Form = Literal["rss", "atom", "json"]
_BEGAN: Final = datetime(2026, 1, 1, tzinfo=UTC)
_BOMB: Final = (
    b'<!DOCTYPE rss [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>'
    b"<rss><channel><title>&b;</title></channel></rss>"
)


@frozen(kw_only=True)
class PlayedFeed:
    """A feed with an entry every so many seconds; the newest `shown` are in it."""

    title: str
    form: Form = "rss"
    every_s: float = 3_600.0
    begins_with: int = 3
    shown: int = 10
    kind: str = "audio/mpeg"
    ending: str = "mp3"


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
    feeds: dict[str, PlayedFeed] = field(factory=lambda: dict(FEEDS))
    moved: dict[str, tuple[int, str]] = field(factory=lambda: {"/old-harbour.xml": (301, "/harbour-lights.xml")})
    """By path: the status of the redirect, and where it leads."""
    failing: dict[str, int] = field(factory=lambda: {"/gone.xml": 410, "/members.xml": 401, "/ill.xml": 503})
    limited: dict[str, int] = field(factory=lambda: {"/busy.xml": 120})
    """By path: asked too often, and so many seconds to wait."""
    endless: set[str] = field(factory=lambda: {"/endless.xml"})
    """Given a body that is too large to be read."""
    asked: list[str] = field(factory=list)

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
        if path in self.feeds:
            return self._feed(path, headers)
        return self._odd(path)

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
        count = feed.begins_with + int(self.now() // feed.every_s)
        etag = f'"{sha256(f"{path} {count}".encode()).hexdigest()[:16]}"'
        changed = format_datetime(_date(feed, count - 1), usegmt=True)
        given = {"ETag": etag, "Last-Modified": changed}
        wanted = headers.get("if-none-match")
        is_same = etag == wanted if wanted is not None else headers.get("if-modified-since") == changed
        if is_same:
            return 304, given, b""
        numbers = range(count - 1, max(-1, count - 1 - feed.shown), -1)
        write = {"rss": _rss, "atom": _atom, "json": _json}[feed.form]
        kind = "application/feed+json" if feed.form == "json" else f"application/{feed.form}+xml"
        return 200, {**given, "Content-Type": kind}, write(feed, self.url, numbers).encode()


def _date(feed: PlayedFeed, number: int) -> datetime:
    return _BEGAN + timedelta(seconds=feed.every_s * number)


def _slug(feed: PlayedFeed, number: int) -> str:
    return f"{feed.title.lower().replace(' ', '-')}-{number}"


def _rss(feed: PlayedFeed, url: str, numbers: range) -> str:
    items = "".join(
        f"<item><guid isPermaLink='false'>{_slug(feed, n)}</guid><title>{escape(feed.title)} {n}</title>"
        f"<link>{url}/{_slug(feed, n)}</link><pubDate>{format_datetime(_date(feed, n))}</pubDate>"
        f"<enclosure url='{url}/files/{_slug(feed, n)}.{feed.ending}' type='{feed.kind}' length='{1_000 + n}'/></item>"
        for n in numbers
    )
    return f"<rss version='2.0'><channel><title>{escape(feed.title)}</title>{items}</channel></rss>"


def _atom(feed: PlayedFeed, url: str, numbers: range) -> str:
    entries = "".join(
        f"<entry><id>urn:{_slug(feed, n)}</id><title>{escape(feed.title)} {n}</title>"
        f"<link href='{url}/{_slug(feed, n)}'/><updated>{_date(feed, n).isoformat()}</updated>"
        f"<link rel='enclosure' href='/files/{_slug(feed, n)}.{feed.ending}' type='{feed.kind}'/></entry>"
        for n in numbers
    )
    return f"<feed xmlns='http://www.w3.org/2005/Atom'><title>{escape(feed.title)}</title>{entries}</feed>"


def _json(feed: PlayedFeed, url: str, numbers: range) -> str:
    items = [
        {
            "id": _slug(feed, n),
            "url": f"{url}/{_slug(feed, n)}",
            "title": f"{feed.title} {n}",
            "date_published": _date(feed, n).isoformat(),
            "attachments": [{"url": f"{url}/files/{_slug(feed, n)}.{feed.ending}", "mime_type": feed.kind}],
        }
        for n in numbers
    ]
    return json.dumps({"version": "https://jsonfeed.org/version/1.1", "title": feed.title, "items": items})
