"""The servers that a watching process works with: Spotify, an indexer, download clients and webhooks, behind real sockets."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from urllib.parse import quote, unquote

import trio
from attrs import define, field

from cormorant.playground.catalogue import PlayedRelease, nzb_of, torrent_of
from cormorant.playground.http import StandInRequest, StandInResponse
from cormorant.playground.qbittorrent import QbittorrentStandIn
from cormorant.playground.sabnzbd import SabnzbdStandIn
from cormorant.playground.slskd import SlskdStandIn
from cormorant.playground.spotify import PlayedAlbum, PlayedArtist, SpotifyStandIn
from cormorant.playground.world import WebhookStandIn
from cormorant.rules.watch.soulseek import PeerFile, PeerResponse
from tests.clients.mounted import Answer, mounted

CAPS = b'<caps><searching><search available="yes"/></searching><categories/></caps>'
ITEM = """<item><title>{title}</title><guid>{title}</guid><link>{link}</link>
    <enclosure url="{link}" length="1000" type="application/x-{kind}"/></item>"""
FEED = '<rss xmlns:torznab="http://torznab.com/schemas/2015/feed"><channel>{items}</channel></rss>'


@define(kw_only=True)
class Town:
    """All of them. What they took is counted here, outside of the process that is killed."""

    lag_s: float
    names: Iterable[str]
    folder: Path
    """Holds the watched folder, and what commands took."""
    artists: dict[str, PlayedArtist] = field(init=False)
    spotify: SpotifyStandIn = field(init=False)
    qbittorrent: QbittorrentStandIn = field(init=False)
    sabnzbd: SabnzbdStandIn = field(init=False)
    slskd: SlskdStandIn = field(init=False)
    hold: WebhookStandIn = field(factory=WebhookStandIn)
    resend: WebhookStandIn = field(factory=WebhookStandIn)
    ports: dict[str, int] = field(factory=dict)
    hit: trio.Event = field(factory=trio.Event)
    """Set when a target was just given something."""
    files_taken: Counter[str] = field(factory=Counter)
    """How often a file came into the watched folder, by name."""
    keys_told: dict[str, Counter[str]] = field(factory=dict)
    """How often each target was told of each parcel, by the key of the parcel."""

    def __attrs_post_init__(self) -> None:
        self.artists = {name: PlayedArtist(id=name, name=name.upper()) for name in self.names}
        self.slskd = SlskdStandIn(
            lag_s=self.lag_s,
            answers_every_s=0.02,
            silence_max_s=0.1,
            starting_takes_s=0.0,
            running_max=50,
            transfer_takes_s=1_000.0,
        )
        self.spotify = SpotifyStandIn(artists=self.artists)
        self.qbittorrent = QbittorrentStandIn(lag_s=self.lag_s)
        self.sabnzbd = SabnzbdStandIn(lag_s=self.lag_s)

    def release(self) -> None:
        """Every artist releases something."""
        for name, artist in self.artists.items():
            number = len(artist.albums) + 1
            today = datetime.now(UTC).date().isoformat()
            new = PlayedAlbum(id=f"{name}{number}", name=f"Number {number} of {name}", date=today)
            self.artists[name] = PlayedArtist(id=name, name=artist.name, albums=(new, *artist.albums))
            self.slskd.peers.append(_peer(artist.name, new))

    @property
    def released(self) -> int:
        """How much every artist has released."""
        return min(len(artist.albums) for artist in self.artists.values())

    async def index(self, asked: StandInRequest) -> StandInResponse:
        """An indexer that has one of everything."""
        kind = "x-nzb" if asked.path.startswith("/nzbs/") else "x-bittorrent"
        if "/download/" in asked.path:
            title = unquote(asked.path.rpartition("/")[2])
            body = _nzb(title) if kind == "x-nzb" else _torrent(title)
            return StandInResponse(kind=f"application/{kind}", body=body)
        if asked.params.get("t") == "caps":
            return StandInResponse(kind="application/xml", body=CAPS)
        title = escape(asked.params.get("q", ""))
        link = f"{asked.base}{asked.path.removesuffix('api')}download/{quote(title)}"
        feed = FEED.format(items=ITEM.format(title=title, link=link, kind=kind))
        return StandInResponse(kind="application/xml", body=feed.encode())

    def noticed(self, name: str) -> Answer:
        """The answers of a target that lets be known that something was given to it."""
        target = getattr(self, name)

        async def answer(asked: StandInRequest) -> StandInResponse:
            answered: StandInResponse = await target.answer(asked)
            self.keys_told.setdefault(name, Counter())[asked.headers.get("idempotency-key", "")] += 1
            if asked.method == "POST" and "login" not in asked.path and "searches" not in asked.path:
                self.hit.set()
            return answered

        return answer

    async def empty_folder(self) -> None:
        """Be the client that watches a folder, and notice when a command has taken something."""
        watched, told = self.folder / "watched", 0
        while True:
            for path in await trio.to_thread.run_sync(lambda: list(watched.glob("*.torrent"))):
                path.unlink()
                self.files_taken[path.name] += 1
                self.hit.set()
            if self.commands_told().total() > told:
                told = self.commands_told().total()
                self.hit.set()
            await trio.sleep(0.02)

    def commands_told(self) -> Counter[str]:
        """How often a command was told of each parcel."""
        taken = self.folder / "taken by command"
        return Counter(taken.read_text().split() if taken.exists() else [])

    def times_told(self, name: str) -> Counter[str]:
        """How often a webhook was told of each parcel."""
        return self.keys_told.get(name, Counter())


def _peer(artist: str, album: PlayedAlbum) -> PeerResponse:
    folder = f"@@somebody\\Music\\{artist}\\{album.name} [FLAC]"
    files = tuple(
        PeerFile(filename=f"{folder}\\{number:02} {track}.flac", size_bytes=30_000_000, length_s=200)
        for number, track in enumerate(album.tracks, 1)
    )
    return PeerResponse(username="somebody", files=files, has_free_slot=True, speed_bytes_s=1_000_000)


def _release(title: str) -> PlayedRelease:
    return PlayedRelease(
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
async def town(names: Iterable[str], folder: Path, *, lag_s: float, linger_s: float) -> AsyncIterator[Town]:
    """All servers behind their ports, and somebody who empties the watched folder."""
    made = Town(lag_s=lag_s, names=names, folder=folder)
    (folder / "watched").mkdir()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.empty_folder)
        async with AsyncExitStack() as stack:
            for name, answer in (("spotify", made.spotify.answer), ("indexer", made.index)):
                made.ports[name] = (await stack.enter_async_context(mounted(answer))).port
            for name in ("qbittorrent", "sabnzbd", "hold", "resend", "slskd"):
                server = await stack.enter_async_context(mounted(made.noticed(name)))
                server.linger_s = linger_s
                made.ports[name] = server.port
            yield made
        nursery.cancel_scope.cancel()
