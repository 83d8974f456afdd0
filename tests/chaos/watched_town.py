"""The servers that a watching process works with: Spotify, an indexer, download clients and webhooks, behind real sockets."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from html import escape
from urllib.parse import quote, unquote

import trio
from attrs import define, field

from cormorant.playground.catalogue import Release
from cormorant.playground.files import nzb_of, torrent_of
from cormorant.playground.forms import Handler
from cormorant.playground.qbittorrent_stand_in import QbittorrentStandIn
from cormorant.playground.sabnzbd_stand_in import SabnzbdStandIn
from cormorant.playground.spotify_stand_in import PlayedAlbum, PlayedArtist, SpotifyStandIn
from cormorant.playground.webhook_stand_in import WebhookStandIn
from tests.chaos.watcher import ARTISTS
from tests.clients.mounted import mounted

_Reply = tuple[int, Mapping[str, str], bytes]

CAPS = b'<caps><searching><search available="yes"/></searching><categories/></caps>'
ITEM = """<item><title>{title}</title><guid>{title}</guid><link>{link}</link>
    <enclosure url="{link}" length="1000" type="application/x-{kind}"/></item>"""
FEED = '<rss xmlns:torznab="http://torznab.com/schemas/2015/feed"><channel>{items}</channel></rss>'


@define(kw_only=True)
class Town:
    """All of them. What they took is counted here, outside of the process that is killed."""

    lag_s: float
    artists: dict[str, PlayedArtist] = field(
        factory=lambda: {name: PlayedArtist(id=name, name=name.upper()) for name in ARTISTS}
    )
    spotify: SpotifyStandIn = field(init=False)
    qbittorrent: QbittorrentStandIn = field(init=False)
    sabnzbd: SabnzbdStandIn = field(init=False)
    hold: WebhookStandIn = field(factory=WebhookStandIn)
    resend: WebhookStandIn = field(factory=WebhookStandIn)
    ports: dict[str, int] = field(factory=dict)
    hit: trio.Event = field(factory=trio.Event)
    """Set when a target was just given something."""

    def __attrs_post_init__(self) -> None:
        self.spotify = SpotifyStandIn(artists=self.artists, now_s=trio.current_time)
        self.qbittorrent = QbittorrentStandIn(now=trio.current_time, lag_s=self.lag_s)
        self.sabnzbd = SabnzbdStandIn(now=trio.current_time, lag_s=self.lag_s)

    def release(self) -> None:
        """Every artist releases something."""
        for name, artist in self.artists.items():
            number = len(artist.albums) + 1
            today = datetime.now(UTC).date().isoformat()
            new = PlayedAlbum(id=f"{name}{number}", name=f"Number {number} of {name}", date=today)
            self.artists[name] = PlayedArtist(id=name, name=artist.name, albums=(new, *artist.albums))

    def index(self, _method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], _: bytes) -> _Reply:
        """An indexer that has one of everything."""
        kind = "x-nzb" if path.startswith("/nzbs/") else "x-bittorrent"
        if "/download/" in path:
            title = unquote(path.rpartition("/")[2])
            body = _nzb(title) if kind == "x-nzb" else _torrent(title)
            return 200, {"Content-Type": f"application/{kind}"}, body
        if query.get("t") == "caps":
            return 200, {"Content-Type": "application/xml"}, CAPS
        title = escape(query.get("q", ""))
        link = f"http://{headers['host']}{path.removesuffix('api')}download/{quote(title)}"
        feed = FEED.format(items=ITEM.format(title=title, link=link, kind=kind))
        return 200, {"Content-Type": "application/xml"}, feed.encode()

    def noticed(self, handler: Handler) -> Handler:
        """A handler that lets be known that something was given to it."""

        def handle(method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes) -> _Reply:
            status, given, content = handler(method, path, query, headers, body)
            if method == "POST" and "login" not in path:
                self.hit.set()
            return status, given, content

        return handle

    def times_told(self, name: str) -> Counter[str]:
        """How often a webhook was told of each parcel."""
        return Counter(headers["idempotency-key"] for headers in getattr(self, name).asked)


def _release(title: str) -> Release:
    return Release(
        number=1,
        title=title,
        shelf="music",
        category=3040,
        size_bytes=1_000_000,
        published=datetime(2026, 1, 2, tzinfo=UTC),
        seeders=1,
        leechers=0,
        grabs=0,
        about={},
    )


def _nzb(title: str) -> bytes:
    return nzb_of(_release(title))


def _torrent(title: str) -> bytes:
    return torrent_of(_release(title), tracker="http://tracker.test/announce")


@asynccontextmanager
async def town(*, lag_s: float, linger_s: float) -> AsyncIterator[Town]:
    """All servers behind their ports."""
    made = Town(lag_s=lag_s)
    async with AsyncExitStack() as stack:
        for name, handler in (("spotify", made.spotify.handle), ("indexer", made.index)):
            made.ports[name] = (await stack.enter_async_context(mounted(handler))).port
        for name in ARTISTS.values():
            server = await stack.enter_async_context(mounted(made.noticed(getattr(made, name).handle)))
            server.linger_s = linger_s
            made.ports[name] = server.port
        yield made
