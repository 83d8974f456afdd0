"""What comes out in the feeds of the playground? Something soon after one begins to look, and then now and then."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final

from cormorant.playground.catalogue import ALBUM_FIRST, ALBUM_SECOND, FILMS
from cormorant.playground.feed_site import BEGAN, FeedStandIn, PlayedEntry, PlayedFeed
from cormorant.rules.ports import Clock
from cormorant.rules.settings.watch import FeedSettings

__all__ = ["LOOKS_AFTER_S", "feed_site", "feeds_of_the_town"]

SOON: Final = timedelta(seconds=6)
EVERY: Final = timedelta(minutes=3)
COUNT: Final = 150
LOOKS_AFTER_S: Final = (9.0, 17.0)
"""When somebody looks by hand: the first time something is new, the second time nothing is."""

_MB: Final = 1_000_000
_TORRENT: Final = "application/x-bittorrent"
_FORMS: Final = (("1080p", 4_200), ("480p", 700))


def feeds_of_the_town(address: str) -> dict[str, FeedSettings]:
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
