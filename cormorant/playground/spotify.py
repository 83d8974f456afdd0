"""Spotify."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

import trio
from attrs import define, field, frozen

from cormorant.playground.http import StandInRequest, StandInResponse, as_json, remember

T = TypeVar("T")

GROUPS: Final = "album,single,compilation,appears_on"
_ALBUMS_MOST: Final = 10
_TRACKS_MOST: Final = 50
_LIFE_S: Final = 3600


@frozen(kw_only=True)
class PlayedAlbum:
    """An album of the stand-in. Its date is written as Spotify writes it: `1981`, `1981-12` or `1981-12-15`."""

    id: str
    name: str
    date: str
    kind: str = "album"
    group: str = "album"
    tracks: tuple[str, ...] = ("One", "Two")
    artist: tuple[str, str] | None = None


@frozen(kw_only=True)
class PlayedArtist:
    """An artist of the stand-in."""

    id: str
    name: str
    albums: tuple[PlayedAlbum, ...] = ()


@define(kw_only=True)
class SpotifyStandIn:
    """The state: who is known, who may ask, and which tokens are good."""

    name: str = "spotify"
    artists: Mapping[str, PlayedArtist]
    now_s: Callable[[], float] = trio.current_time
    client_id: str = "playground"
    secret: str = "playground-secret"  # noqa: S105 - the stand-in's own, no secret
    page_size: int = 5
    tokens: dict[str, float] = field(factory=dict)
    tokens_given: int = 0
    asked: list[StandInRequest] = field(factory=list)

    async def answer(self, asked: StandInRequest) -> StandInResponse:
        """What it says."""
        remember(self.asked, asked)
        if asked.path == "/api/token":
            return self._token(asked)
        if self.tokens.get(asked.headers.get("authorization", "").removeprefix("Bearer "), 0.0) <= self.now_s():
            return failed(401, "The access token expired")
        return self._api(asked)

    def _token(self, asked: StandInRequest) -> StandInResponse:
        pair = base64.b64encode(f"{self.client_id}:{self.secret}".encode()).decode()
        if asked.headers.get("authorization") != f"Basic {pair}":
            return as_json({"error": "invalid_client", "error_description": "Invalid client"}, status=400)
        if asked.method != "POST" or asked.form().fields.get("grant_type") != "client_credentials":
            problem = {"error": "unsupported_grant_type", "error_description": "grant_type is missing"}
            return as_json(problem, status=400)
        self.tokens_given += 1
        token = f"token-{self.tokens_given}-of-the-playground"
        self.tokens[token] = self.now_s() + _LIFE_S
        return as_json({"access_token": token, "token_type": "Bearer", "expires_in": _LIFE_S})

    def _api(self, asked: StandInRequest) -> StandInResponse:
        match asked.path.strip("/").split("/"):
            case ["v1", "search"]:
                return self._search(asked)
            case ["v1", "artists", artist_id] if artist_id in self.artists:
                return as_json(_artist(self.artists[artist_id]))
            case ["v1", "artists", artist_id, "albums"] if artist_id in self.artists:
                return self._albums(asked, self.artists[artist_id])
            case ["v1", "albums", album_id, "tracks"]:
                return self._tracks(asked, album_id)
            case _:
                return failed(404, "Resource not found")

    def _search(self, asked: StandInRequest) -> StandInResponse:
        words = asked.params.get("q", "").casefold()
        found = [artist for artist in self.artists.values() if words in artist.name.casefold()]
        return self._page(asked, found, _artist, most=_ALBUMS_MOST, under="artists")

    def _albums(self, asked: StandInRequest, artist: PlayedArtist) -> StandInResponse:
        groups = asked.params.get("include_groups", GROUPS).split(",")
        chosen = [album for album in artist.albums if album.group in groups]
        return self._page(asked, chosen, partial(_album, artist), most=_ALBUMS_MOST)

    def _tracks(self, asked: StandInRequest, album_id: str) -> StandInResponse:
        for artist in self.artists.values():
            for album in artist.albums:
                if album.id == album_id:
                    numbers = range(1, len(album.tracks) + 1)
                    return self._page(asked, numbers, partial(_track, artist, album), most=_TRACKS_MOST)
        return failed(404, "Non existing id")

    def _page(
        self,
        asked: StandInRequest,
        all_of_it: Sequence[T],
        show: Callable[[T], dict[str, Any]],
        *,
        most: int,
        under: str = "",
    ) -> StandInResponse:
        limit, offset = int(asked.params.get("limit", self.page_size)), int(asked.params.get("offset", 0))
        if not 1 <= limit <= most:
            return failed(400, "Invalid limit")
        # It gives no more than it likes, whatever was asked for: only `next` says where to go on.
        end = offset + min(limit, self.page_size)
        url = f"{asked.base}{asked.path}"
        page = {
            "href": url,
            "items": [show(one) for one in all_of_it[offset:end]],
            "limit": limit,
            "next": f"{url}?{urlencode({**asked.params, 'offset': end})}" if end < len(all_of_it) else None,
            "offset": offset,
            "previous": None,
            "total": len(all_of_it),
        }
        return as_json({under: page} if under else page)


def failed(status: int, message: str, *, reason: str = "", headers: Mapping[str, str] | None = None) -> StandInResponse:
    """An error as the API words it."""
    error = {"status": status, "message": message} | ({"reason": reason} if reason else {})
    return as_json({"error": error}, status=status, headers=headers)


def _artist(artist: PlayedArtist) -> dict[str, Any]:
    return {"id": artist.id, "name": artist.name, "type": "artist", "uri": f"spotify:artist:{artist.id}"}


def _album(artist: PlayedArtist, album: PlayedAlbum) -> dict[str, Any]:
    by = album.artist or (artist.id, artist.name)
    return {
        "album_group": album.group,
        "album_type": album.kind,
        "artists": [{"id": by[0], "name": by[1], "type": "artist"}],
        "id": album.id,
        "name": album.name,
        "release_date": album.date,
        "release_date_precision": ("year", "month", "day")[album.date.count("-")],
        "total_tracks": len(album.tracks),
        "type": "album",
    }


def _track(artist: PlayedArtist, album: PlayedAlbum, number: int) -> dict[str, Any]:
    return {
        "id": f"{album.id}t{number}",
        "name": album.tracks[number - 1],
        "artists": [_artist(artist)],
        "disc_number": 1,
        "track_number": number,
        "duration_ms": 200_000 + number * 1000,
        "type": "track",
    }
