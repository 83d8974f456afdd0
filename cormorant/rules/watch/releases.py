"""What has an artist released? The same release has several ids, and what others released is not theirs."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from typing import Final, Literal

from attrs import frozen

from cormorant.rules.watch.release_dates import ReleaseDate
from cormorant.rules.watch.titles import plain_title

Kind = Literal["album", "single", "compilation"]
Group = Literal["album", "single", "compilation", "appears_on"]

OWN_GROUPS: Final[tuple[Group, ...]] = ("album", "single", "compilation")
"""What is watched unless told otherwise: not the albums of others on which the artist appears."""


@frozen(kw_only=True)
class CatalogueArtist:
    """Who made it."""

    id: str
    name: str


@frozen(kw_only=True)
class Album:
    """A release under one of its ids. `group` is what it is to the artist who was asked for; None when not said."""

    id: str
    title: str
    artists: tuple[CatalogueArtist, ...]
    kind: Kind
    group: Group | None = None
    released: ReleaseDate | None = None
    tracks_total: int = 0


@frozen(kw_only=True)
class AlbumPage:
    """Part of the albums, and the address of the next part; None at the end."""

    albums: tuple[Album, ...]
    next: str | None = None


@frozen(kw_only=True)
class Track:
    """One piece of an album, in the order of discs and numbers."""

    id: str
    title: str
    artists: tuple[CatalogueArtist, ...] = ()
    disc: int = 1
    number: int = 0
    length_s: float | None = None


@frozen(kw_only=True)
class Release:
    """One release: the album that stands for it, and all the ids under which it was found."""

    album: Album
    ids: tuple[str, ...]


def want_key(artist_id: str, album: Album) -> str:
    """What a release is wanted under, whatever its ids, market or day. The same for ever.

    >>> want_key("4Z8W", Album(id="1", title="Kid A (Remastered)", artists=(), kind="album"))
    '4Z8W/kid a/album'
    """
    return f"{artist_id}/{plain_title(album.title)}/{album.kind}"


def is_by(artist_id: str, album: Album, groups: Iterable[Group] = OWN_GROUPS) -> bool:
    """Whether this release is of the chosen groups. Where the group is not said, whose album it is decides."""
    chosen = set(groups)
    if album.group is not None:
        return album.group in chosen
    is_theirs = any(artist.id == artist_id for artist in album.artists)
    return album.kind in chosen if is_theirs else "appears_on" in chosen


def distinct_releases(albums: Iterable[Album]) -> tuple[Release, ...]:
    """The releases behind these albums: same first artist, title, kind and number of tracks are one.

    The earliest stands for all, so that a re-issue is not taken for news. The order of `albums` does not matter.
    """
    same: dict[tuple[str, str, str, int], list[Album]] = {}
    for album in albums:
        by = album.artists[0].id if album.artists else ""
        same.setdefault((by, plain_title(album.title), album.kind, album.tracks_total), []).append(album)
    releases = [_release(sorted(group, key=_age)) for group in same.values()]
    return tuple(sorted(releases, key=lambda release: _age(release.album)))


def _release(albums: list[Album]) -> Release:
    return Release(album=albums[0], ids=tuple(dict.fromkeys(album.id for album in albums)))


def _age(album: Album) -> tuple[object, ...]:
    """Earliest first; what has no date comes last; equals in the order of their ids, then of all that is known of them."""
    out = album.released
    dates = (date.max, date.max) if out is None else (out.latest, out.earliest)
    by = tuple((artist.id, artist.name) for artist in album.artists)
    return (*dates, album.id, album.title, album.kind, album.group or "", album.tracks_total, by)
