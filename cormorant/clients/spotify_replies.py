"""Reads Spotify's replies and what they mean (pure)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, cast, get_args

from attrs import frozen

from cormorant.rules.json_documents import Json, number_of, text_of
from cormorant.rules.search.outcomes import (
    CredentialsRefused,
    SourceError,
    SourceLimited,
    SourceRefused,
    SourceUnavailable,
)
from cormorant.rules.watch.releases import Album, CatalogueArtist, Group, Kind, ReleaseDate, Track, read_release_date

_KINDS: Final = frozenset(get_args(Kind))
_GROUPS: Final = frozenset(get_args(Group))
_MS: Final = 1000
_NUMBER_MAX: Final = 1_000_000_000


def read_items(page: Json) -> list[Json]:
    """What is on a page. Without a list of items it is no page; an item that is null is left out."""
    items = page.get("items")
    if not isinstance(items, list):
        raise SourceUnavailable("Spotify answered with a page that has no items")
    return [item for item in items if isinstance(item, dict)]


def read_next(page: Json) -> str | None:
    """The address of the next page; None at the end."""
    return text_of(page, "next") or None


def read_albums(items: Iterable[Json]) -> tuple[Album, ...]:
    """The albums among these; what has neither id nor name is none."""
    return tuple(album for album in map(_album, items) if album.id and album.title)


def read_tracks(items: Iterable[Json]) -> tuple[Track, ...]:
    """The tracks among these."""
    return tuple(track for track in map(_track, items) if track.id and track.title)


def read_artist(item: Json) -> CatalogueArtist:
    """Who this is."""
    return CatalogueArtist(id=text_of(item, "id"), name=text_of(item, "name"))


def read_artists(items: object) -> tuple[CatalogueArtist, ...]:
    """Those who have an id."""
    found = items if isinstance(items, list) else []
    return tuple(artist for artist in (read_artist(item) for item in found if isinstance(item, dict)) if artist.id)


def _album(item: Json) -> Album:
    kind, group = text_of(item, "album_type").lower(), text_of(item, "album_group").lower()
    return Album(
        id=text_of(item, "id"),
        title=text_of(item, "name"),
        artists=read_artists(item.get("artists")),
        kind=cast("Kind", kind if kind in _KINDS else "album"),
        group=cast("Group", group) if group in _GROUPS else None,
        released=_released(item),
        tracks_total=_count(item, "total_tracks"),
    )


def _count(item: Json, name: str) -> int:
    return number_of(item, name, most=_NUMBER_MAX) or 0


def _released(item: Json) -> ReleaseDate | None:
    return read_release_date(text_of(item, "release_date"), text_of(item, "release_date_precision"))


def _track(item: Json) -> Track:
    return Track(
        id=text_of(item, "id") or text_of(item, "uri"),
        title=text_of(item, "name"),
        artists=read_artists(item.get("artists")),
        disc=_count(item, "disc_number") or 1,
        number=_count(item, "track_number"),
        length_s=_count(item, "duration_ms") / _MS or None,
    )


QUOTA: Final = "QUOTA_EXCEEDED"
UNAUTHORIZED: Final = 401
_OK: Final = range(200, 300)
_CLIENT_ERRORS: Final = range(400, 500)
_NOT_FOUND: Final = 404
_TOO_MANY_REQUESTS: Final = 429
_PASSING: Final = {408, 425}
_BAD_CLIENT: Final = {"invalid_client", "unauthorized_client"}


@frozen(kw_only=True)
class SpotifyReply:
    """What of a reply decides. `asked` is what was asked for, in words; `words` are Spotify's own, without secrets."""

    status: int
    asked: str
    words: str = ""
    reason: str = ""
    retry_after_s: float | None = None

    @property
    def said(self) -> str:
        """The status and the words."""
        return f"HTTP {self.status}, {self.words}" if self.words else f"HTTP {self.status}"


def error_of_token(reply: SpotifyReply) -> SourceError | None:
    """The error that a reply to the request for a token stands for; None when there is a token.

    >>> reply = SpotifyReply(status=400, asked="a token", words="Invalid client", reason="invalid_client")
    >>> print(error_of_token(reply))
    Spotify does not accept our client id and secret (HTTP 400, Invalid client); check both, then enable the source again
    """
    if reply.status == UNAUTHORIZED or (reply.status in _CLIENT_ERRORS and reply.reason in _BAD_CLIENT):
        return CredentialsRefused(
            f"Spotify does not accept our client id and secret ({reply.said}); check both, then enable the source again"
        )
    return error_of_api(reply)


def error_of_api(reply: SpotifyReply) -> SourceError | None:
    """The error that any other reply stands for; None when it is none. A first 401 is not for here: renew the token.

    >>> for status in 200, 401, 403, 404, 429, 502:
    ...     print(type(error_of_api(SpotifyReply(status=status, asked="artist x"))).__name__)
    NoneType
    CredentialsRefused
    SourceRefused
    SourceRefused
    SourceLimited
    SourceUnavailable
    """
    if reply.status in _OK:
        return None
    if reply.status == _TOO_MANY_REQUESTS:
        return _limited(reply)
    if reply.status == UNAUTHORIZED:
        return CredentialsRefused(
            f"Spotify does not accept the token that it has just given us ({reply.said}); check the app at Spotify"
        )
    if reply.status == _NOT_FOUND:
        return SourceRefused(f"Spotify does not know {reply.asked} ({reply.said}); check the id")
    if reply.status in _CLIENT_ERRORS and reply.status not in _PASSING:
        return SourceRefused(f"Spotify refused to give {reply.asked} ({reply.said})")
    return SourceUnavailable(f"Spotify cannot serve us now ({reply.said})", retry_after_s=reply.retry_after_s)


def _limited(reply: SpotifyReply) -> SourceLimited:
    if reply.reason == QUOTA:
        message = (
            f"the quota of the developer account at Spotify is used up ({reply.said}, {QUOTA}); "
            "all its client ids share it"
        )
    else:
        message = f"Spotify wants to be asked less ({reply.said})"
    return SourceLimited(message, retry_after_s=reply.retry_after_s)
