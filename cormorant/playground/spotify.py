"""Spotify."""

from __future__ import annotations

import base64
import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl, urlencode

from attrs import define, field, frozen

T = TypeVar("T")
Answered = tuple[int, Mapping[str, str], bytes]
"""Status, headers and body."""

GROUPS: Final = "album,single,compilation,appears_on"
_ALBUMS_MOST: Final = 10
_TRACKS_MOST: Final = 50
_LIFE_S: Final = 3600
_DAY_S: Final = 86_400


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


def busy_artist(artist_id: str, name: str, albums: int) -> PlayedArtist:
    """An artist with any number of albums, one a month, the newest first."""
    made = (
        PlayedAlbum(id=f"{artist_id}a{n}", name=f"Volume {n}", date=f"{1700 + n // 12}-{n % 12 + 1:02}")
        for n in reversed(range(albums))
    )
    return PlayedArtist(id=artist_id, name=name, albums=tuple(made))


@define(kw_only=True)
class SpotifyStandIn:
    """The state: who is known, who may ask, which tokens are good, and what goes wrong next."""

    artists: Mapping[str, PlayedArtist]
    now_s: Callable[[], float]
    client_id: str = "playground"
    secret: str = "playground-secret"  # noqa: S105 - the stand-in's own, no secret
    page_size: int = 5
    base: str = ""
    """The address under which it is asked; taken from the request when empty."""
    troubles: deque[Answered] = field(factory=deque)
    """What is answered to the next requests instead of what they ask for."""
    tokens: dict[str, float] = field(factory=dict)
    tokens_given: int = 0
    asked: list[str] = field(factory=list)

    def handle(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Answered:
        """Answer one request."""
        self.asked.append(f"{method} {path}" + (f"?{urlencode(query)}" if query else ""))
        if path == "/api/token":
            return self._token(method, headers, body)
        if self.tokens.get(headers.get("authorization", "").removeprefix("Bearer "), 0.0) <= self.now_s():
            return failed(401, "The access token expired")
        if self.troubles:
            return self.troubles.popleft()
        base = self.base or f"http://{headers.get('host', 'localhost')}"
        return self._api(path.strip("/").split("/"), query, f"{base}{path}")

    def _token(self, method: str, headers: Mapping[str, str], body: bytes) -> Answered:
        pair = base64.b64encode(f"{self.client_id}:{self.secret}".encode()).decode()
        if headers.get("authorization") != f"Basic {pair}":
            return _json(400, {"error": "invalid_client", "error_description": "Invalid client"})
        if method != "POST" or dict(parse_qsl(body.decode())).get("grant_type") != "client_credentials":
            return _json(400, {"error": "unsupported_grant_type", "error_description": "grant_type is missing"})
        self.tokens_given += 1
        token = f"token-{self.tokens_given}-of-the-playground"
        self.tokens[token] = self.now_s() + _LIFE_S
        return _json(200, {"access_token": token, "token_type": "Bearer", "expires_in": _LIFE_S})

    def _api(self, parts: list[str], query: Mapping[str, str], url: str) -> Answered:
        match parts:
            case ["v1", "search"]:
                return self._search(query, url)
            case ["v1", "artists", artist_id] if artist_id in self.artists:
                return _json(200, _artist(self.artists[artist_id]))
            case ["v1", "artists", artist_id, "albums"] if artist_id in self.artists:
                return self._albums(self.artists[artist_id], query, url)
            case ["v1", "albums", album_id, "tracks"]:
                return self._tracks(album_id, query, url)
            case _:
                return failed(404, "Resource not found")

    def _search(self, query: Mapping[str, str], url: str) -> Answered:
        words = query.get("q", "").casefold()
        found = [artist for artist in self.artists.values() if words in artist.name.casefold()]
        return self._page(found, query, url, most=_ALBUMS_MOST, show=_artist, under="artists")

    def _albums(self, artist: PlayedArtist, query: Mapping[str, str], url: str) -> Answered:
        groups = query.get("include_groups", GROUPS).split(",")
        chosen = [album for album in artist.albums if album.group in groups]
        return self._page(chosen, query, url, most=_ALBUMS_MOST, show=lambda album: _album(album, artist))

    def _tracks(self, album_id: str, query: Mapping[str, str], url: str) -> Answered:
        for artist in self.artists.values():
            for album in artist.albums:
                if album.id == album_id:
                    tracks = [_track(album, number, artist) for number in range(1, len(album.tracks) + 1)]
                    return self._page(tracks, query, url, most=_TRACKS_MOST, show=lambda track: track)
        return failed(404, "Non existing id")

    def _page(
        self,
        all_of_it: Sequence[T],
        query: Mapping[str, str],
        url: str,
        *,
        most: int,
        show: Callable[[T], dict[str, Any]],
        under: str = "",
    ) -> Answered:
        limit, offset = int(query.get("limit", self.page_size)), int(query.get("offset", 0))
        if not 1 <= limit <= most:
            return failed(400, "Invalid limit")
        # It gives no more than it likes, whatever was asked for: only `next` says where to go on.
        end = offset + min(limit, self.page_size)
        page = {
            "href": url,
            "items": [show(one) for one in all_of_it[offset:end]],
            "limit": limit,
            "next": f"{url}?{urlencode(dict(query) | {'offset': str(end)})}" if end < len(all_of_it) else None,
            "offset": offset,
            "previous": None,
            "total": len(all_of_it),
        }
        return _json(200, {under: page} if under else page)


def failed(status: int, message: str, *, reason: str = "", headers: Mapping[str, str] | None = None) -> Answered:
    """An error as the API words it."""
    error = {"status": status, "message": message} | ({"reason": reason} if reason else {})
    _, own, body = _json(status, {"error": error})
    return status, {**own, **(headers or {})}, body


def limited(retry_after_s: int | None = _DAY_S) -> Answered:
    """Too many requests: come back tomorrow."""
    headers = {} if retry_after_s is None else {"Retry-After": str(retry_after_s)}
    return failed(429, "API rate limit exceeded", headers=headers)


def out_of_quota() -> Answered:
    """The developer account has used up what it may ask."""
    return failed(429, "Too many requests", reason="QUOTA_EXCEEDED")


def _json(status: int, value: Any) -> Answered:
    return status, {"Content-Type": "application/json; charset=utf-8"}, json.dumps(value).encode()


def _artist(artist: PlayedArtist) -> dict[str, Any]:
    return {"id": artist.id, "name": artist.name, "type": "artist", "uri": f"spotify:artist:{artist.id}"}


def _album(album: PlayedAlbum, artist: PlayedArtist) -> dict[str, Any]:
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


def _track(album: PlayedAlbum, number: int, artist: PlayedArtist) -> dict[str, Any]:
    return {
        "id": f"{album.id}t{number}",
        "name": album.tracks[number - 1],
        "artists": [_artist(artist)],
        "disc_number": 1,
        "track_number": number,
        "duration_ms": 200_000 + number * 1000,
        "type": "track",
    }
