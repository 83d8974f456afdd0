"""Feed hosts and what they publish."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from email.utils import format_datetime
from hashlib import sha256
from html import escape
from typing import Final, Literal

from attrs import define, field, frozen

from cormorant.playground.catalogue import FILMS, album_title, mark_of, turns_after
from cormorant.playground.http import StandInRequest, StandInResponse, as_html, remember
from cormorant.rules.ports import Clock
from cormorant.rules.settings.watch import FeedSettings

Form = Literal["rss", "atom", "json"]


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
    """A feed. Each entry is in it from its time on, while it is among the newest `shown`."""

    title: str
    form: Form = "rss"
    shown: int = 10
    kind: str = "audio/mpeg"
    ending: str = "mp3"
    entries: tuple[PlayedEntry, ...]

    def newest(self, now: datetime) -> list[PlayedEntry]:
        """What is in it now, the newest first."""
        out = [each for each in self.entries if each.at <= now]
        return sorted(out, key=lambda each: each.at, reverse=True)[: self.shown]


@define(kw_only=True)
class FeedStandIn:
    """A host of feeds. Its habits may be changed at any time."""

    name: str = "feeds"
    clock: Clock
    feeds: Mapping[str, PlayedFeed]
    """By path."""
    fails_every: Mapping[str, int] = field(factory=dict)
    """By path: each so many-th request fails with 503."""
    asked: list[StandInRequest] = field(factory=list)
    _counts: Counter[str] = field(init=False, factory=Counter)

    async def answer(self, asked: StandInRequest) -> StandInResponse:
        """What it says."""
        remember(self.asked, asked)
        if asked.path in self.fails_every and self._is_turn(asked.path):
            return as_html("Too busy.", status=503)
        return self._feed(asked, self.feeds[asked.path]) if asked.path in self.feeds else StandInResponse(status=404)

    def _is_turn(self, path: str) -> bool:
        self._counts[path] += 1
        return self._counts[path] % self.fails_every[path] == 0

    def _feed(self, asked: StandInRequest, feed: PlayedFeed) -> StandInResponse:
        entries = feed.newest(self.clock.now())
        etag = f'"{sha256(f"{asked.path} {entries[:1]}".encode()).hexdigest()[:16]}"'
        changed = format_datetime(entries[0].at if entries else self.clock.now(), usegmt=True)
        given = {"ETag": etag, "Last-Modified": changed}
        wanted = asked.headers.get("if-none-match")
        is_same = etag == wanted if wanted is not None else asked.headers.get("if-modified-since") == changed
        if is_same:
            return StandInResponse(status=304, headers=given)
        write = {"rss": _rss, "atom": _atom, "json": _json}[feed.form]
        kind = "application/feed+json" if feed.form == "json" else f"application/{feed.form}+xml"
        return StandInResponse(kind=kind, body=write(feed, asked.base, entries).encode(), headers=given)


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
    return FeedStandIn(clock=clock, feeds=_feeds_since(clock.now()), fails_every={"/slow-news.json": 2})


def _feeds_since(opened_at: datetime) -> Mapping[str, PlayedFeed]:
    """The names depend on the moment, so that after a restart there is something new; what was there before is a day's."""
    midnight = opened_at.replace(hour=0, minute=0, second=0, microsecond=0)
    old = [midnight - timedelta(days=days) for days in range(3)]
    new = turns_after(opened_at, soon=SOON, every=EVERY, count=COUNT)
    films = tuple(entry for at in (*old, *new) for entry in _films(at))
    return {
        "/open-films.xml": PlayedFeed(title="Open Films", kind=_TORRENT, ending="torrent", entries=films),
        "/field-recordings.xml": _numbered("Field Recordings", "atom", [*old, *new]),
        "/slow-news.json": _numbered("Slow News", "json", [*old, *new[2::2]]),
    }


def _films(at: datetime) -> Iterator[PlayedEntry]:
    """One film in two forms. It has a magnet link, which leads to no host: nobody asks this machine for what a feed names."""
    film = FILMS[mark_of(at) % len(FILMS)]
    for form, size_mb in _FORMS:
        title = f"{film} {mark_of(at) % 10_000} {form}"
        infohash = sha256(title.encode()).hexdigest()[:40]
        yield PlayedEntry(
            slug=f"film-{mark_of(at)}-{form}",
            title=title,
            at=at,
            enclosure=f"magnet:?xt=urn:btih:{infohash}&dn={title.replace(' ', '+')}",
            size_bytes=size_mb * _MB,
        )


def _numbered(title: str, form: Form, times: Sequence[datetime]) -> PlayedFeed:
    return PlayedFeed(title=title, form=form, entries=tuple(_entry(title, at) for at in times))


def _entry(feed: str, at: datetime) -> PlayedEntry:
    words = album_title(random.Random(mark_of(at)))  # noqa: S311 - invented, not secret
    slug = feed.lower().replace(" ", "-")
    return PlayedEntry(slug=f"{slug}-{mark_of(at)}", title=f"{feed}: {words} {mark_of(at) % 10_000}", at=at)
