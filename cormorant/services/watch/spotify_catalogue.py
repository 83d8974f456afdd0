"""Artists and releases from Spotify through its limiter."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from attrs import define, field

from actors.environment import Environment
from cormorant.clients.http.transport import Transport
from cormorant.clients.spotify import SpotifyClient, SpotifyOptions, TokenCache, all_pages, read_tracks
from cormorant.rules.json_documents import Json
from cormorant.rules.search.outcomes import SourceRefused
from cormorant.rules.search.priorities import Priority
from cormorant.rules.secrets import Secret
from cormorant.rules.settings.sources import SPOTIFY_URL
from cormorant.rules.watch.artists import Artist as Watched
from cormorant.rules.watch.releases import Album, AlbumPage, CatalogueArtist, Track
from cormorant.services.searches import Searches
from storage.search.sources import SourceRecord

T = TypeVar("T")

_TOKEN_PATH = "/api/token"  # noqa: S105 - an address


@define(eq=False, kw_only=True)
class SpotifyCatalogue:
    """Asks the source that an artist names. Each page is one request, and passes the gates by itself."""

    environment: Environment = field(kw_only=False)
    searches: Searches
    token_caches: dict[str, TokenCache] = field(factory=dict)

    async def albums_page(self, artist: Watched, *, after: str | None, timeout_s: float) -> AlbumPage:
        """Part of what the artist has released, in one request."""

        async def ask(client: SpotifyClient) -> AlbumPage:
            return await client.albums_page(artist.artist_id, after=after)

        return await self._ask(artist.source, ask, about=f"albums of {artist.name}", timeout_s=timeout_s)

    async def tracks_of(self, artist: Watched, album: Album, *, timeout_s: float) -> Sequence[Track]:
        """What is on an album."""

        def first(client: SpotifyClient) -> str:
            return client.tracks_url(album.id)

        items = await self._all(artist.source, first, about=f"tracks of {album.title}", timeout_s=timeout_s)
        return sorted(read_tracks(items), key=lambda track: (track.disc, track.number))

    async def find_artist(
        self, source: str, wanted: str, *, timeout_s: float, max_wait_s: float | None = None
    ) -> CatalogueArtist:
        """The artist of this id or name, or `SourceRefused`. Somebody waits for it."""

        async def ask(client: SpotifyClient) -> CatalogueArtist | None:
            return await client.artist(wanted) if is_artist_id(wanted) else await client.find_artist(wanted)

        found = await self._ask(
            source,
            ask,
            about=f"artist {wanted}",
            timeout_s=timeout_s,
            max_wait_s=max_wait_s,
            priority=Priority.INTERACTIVE,
        )
        if found is None:
            raise SourceRefused(f"{source} knows no artist called {wanted!r}; give the id from a link instead")
        return found

    async def _all(
        self, source: str, first: Callable[[SpotifyClient], str], *, about: str, timeout_s: float
    ) -> list[Json]:
        """All pages of a list. The time-out is for one request; whoever asks bounds the whole."""

        async def page(following: str | None) -> tuple[list[Json], str | None]:
            async def ask(client: SpotifyClient) -> tuple[list[Json], str | None]:
                return await client.page(following or first(client), asked=about)

            return await self._ask(source, ask, about=about, timeout_s=timeout_s)

        return await all_pages(page, about=about)

    async def _ask(
        self,
        source: str,
        call: Callable[[SpotifyClient], Awaitable[T]],
        *,
        about: str,
        timeout_s: float,
        max_wait_s: float | None = None,
        priority: Priority = Priority.BACKGROUND,
    ) -> T:
        await self.searches.directory.loaded.wait()
        if source not in self.searches.directory.by_name:
            raise SourceRefused(f'there is no source {source!r}; write [sources.{source}] with kind = "spotify"')

        async def made(record: SourceRecord) -> T:
            if record.kind != "spotify":
                raise SourceRefused(f"{source} is of kind {record.kind} and knows no artists")
            transport = Transport(written=[record.url], proxy=record.proxy or None)
            return await call(self._client(record, transport, timeout_s))

        return await self.searches.call(
            source,
            made,
            about=about,
            max_wait_s=timeout_s if max_wait_s is None else max_wait_s,
            timeout_s=timeout_s,
            priority=priority,
            consumer="watches",
        )

    def _client(self, record: SourceRecord, transport: Transport, timeout_s: float) -> SpotifyClient:
        client_id, _, secret = record.key.reveal().partition(":")
        keeper = self.token_caches.setdefault(record.identity, TokenCache())
        is_spotify = record.url == SPOTIFY_URL
        options = (
            SpotifyOptions(timeout_s=timeout_s)
            if is_spotify
            else SpotifyOptions(api_url=record.url, token_url=token_url(record.url), timeout_s=timeout_s)
        )
        return SpotifyClient(
            client_id,
            Secret(secret),
            transport,
            self.environment,
            options=options,
            token_cache=keeper,
        )


def token_url(api_url: str) -> str:
    """Where a stand-in for Spotify gives tokens: beside its API.

    >>> token_url("http://127.0.0.1:8000/v1")
    'http://127.0.0.1:8000/api/token'
    """
    return api_url.rstrip("/").removesuffix("/v1") + _TOKEN_PATH


def is_artist_id(wanted: str) -> bool:
    """Whether this is an id of Spotify: 22 letters and digits."""
    return len(wanted) == 22 and wanted.isascii() and wanted.isalnum()  # noqa: PLR2004 - as the line above says
