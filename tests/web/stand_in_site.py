"""A site on loopback that speaks Torznab or Newznab as sites do: caps, what is new, searches by word and by id, downloads."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import trio
from attrs import define, field, frozen

from cormorant.clients.torznab_items import NEWZNAB, TORZNAB
from tests.clients.raw_server import Asked, RawServer, page
from tests.services.gate.test_gate_downloads import NZB, TORRENT
from tests.web.web_place import SOURCE_KEY

NEWEST = datetime(2026, 11, 16, 10, 0, tzinfo=UTC)
CAPS = """<caps><server title="Stand-in"/><limits default="100" max="100"/><searching>
<search available="yes" supportedParams="q"/>
<tv-search available="yes" supportedParams="q,tvdbid,imdbid,season,ep"/>
<movie-search available="yes" supportedParams="q,imdbid,tmdbid"/>
<music-search available="yes" supportedParams="q,artist,album"/>
<audio-search available="yes" supportedParams="q,artist,album,year"/></searching>
<categories><category id="2000" name="Movies"><subcat id="2040" name="Movies/HD"/></category>
<category id="3000" name="Audio"><subcat id="3040" name="Audio/Lossless"/></category>
<category id="5000" name="TV"><subcat id="5030" name="TV/SD"/><subcat id="5040" name="TV/HD"/></category></categories></caps>"""


@frozen
class Release:
    """Something that the site has. `facts` are what it can be searched by."""

    number: int
    title: str
    category: int
    facts: Mapping[str, str] = field(factory=dict)

    @property
    def published(self) -> datetime:
        return NEWEST - timedelta(minutes=10 * self.number)


@define
class StandInSite:
    """The releases of a site, newest first."""

    kind: str
    releases: list[Release]
    server: RawServer | None = None

    async def play(self, stream: trio.SocketStream, asked: Asked) -> None:
        """Answer one request."""
        if asked.path.startswith("/dl/"):
            await stream.send_all(page(NZB if self.kind == "newznab" else TORRENT))
        elif asked.params.get("t") == "caps":
            await stream.send_all(page(CAPS))
        else:
            await stream.send_all(page(self._feed(asked.params)))

    def _feed(self, params: Mapping[str, str]) -> str:
        wanted = [int(each) for each in params.get("cat", "").split(",") if each]
        words = params.get("q", "").casefold().split()
        named = {
            name: params[name] for name in ("tvdbid", "imdbid", "season", "ep", "artist", "album") if params.get(name)
        }
        found = [
            each
            for each in self.releases
            if (not wanted or each.category in wanted or each.category // 1000 * 1000 in wanted)
            and all(word in each.title.casefold() for word in words)
            and all(each.facts.get(name) == value for name, value in named.items())
        ]
        offset, limit = int(params.get("offset", "0")), int(params.get("limit", "100"))
        items = "".join(map(self._item, found[offset : offset + min(limit, 100)]))
        spaces = f'xmlns:torznab="{TORZNAB}" xmlns:newznab="{NEWZNAB}"'
        return f'<rss version="2.0" {spaces}><channel><title>x</title>{items}</channel></rss>'

    def _item(self, release: Release) -> str:
        assert self.server is not None
        link = f"{self.server.url}/dl/{release.number}?apikey={SOURCE_KEY}"
        space, media = (
            ("newznab", "application/x-nzb") if self.kind == "newznab" else ("torznab", "application/x-bittorrent")
        )
        peers = (
            ""
            if self.kind == "newznab"
            else '<torznab:attr name="seeders" value="7"/><torznab:attr name="peers" value="9"/>'
        )
        return (
            f"<item><title>{release.title}</title><guid>{link}</guid><link>{link}</link>"
            f"<pubDate>{format_datetime(release.published)}</pubDate><size>1000000</size>"
            f'<enclosure url="{link}" length="1000000" type="{media}"/>'
            f'<{space}:attr name="category" value="{release.category}"/>{peers}</item>'
        )


def a_library() -> list[Release]:
    """150 episodes, 40 films and 30 albums, of all three something now and then."""
    episodes = [
        Release(3 * n, f"Some.Show.S02E{n:03}.1080p", 5040, {"tvdbid": "121361", "season": "2", "ep": str(n)})
        for n in range(150)
    ]
    specials = [
        Release(700, "Some.Show.S00E01.Special", 5030, {"tvdbid": "121361", "season": "00", "ep": "1"}),
        Release(701, "Daily.Show.2026.11.16", 5030, {"season": "2026", "ep": "11/16"}),
    ]
    films = [Release(3 * n + 1, f"Some.Film.{1980 + n}.1080p", 2040, {"imdbid": f"{n:07}"}) for n in range(40)]
    albums = [
        Release(3 * n + 2, f"Artist - Album {n} FLAC", 3040, {"artist": "Artist", "album": f"Album {n}"})
        for n in range(30)
    ]
    return sorted([*episodes, *specials, *films, *albums], key=lambda each: each.number)
