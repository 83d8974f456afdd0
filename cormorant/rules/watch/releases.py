"""Albums, distinct releases, release dates of unequal precision."""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Iterable
from datetime import date, timedelta
from typing import Final, Literal

from attrs import frozen

from cormorant.rules.watch.titles import plain_title

_WRITTEN: Final = re.compile(r"(\d{4})(?:-(\d{2})(?:-(\d{2}))?)?", re.ASCII)
_PARTS: Final = {"year": 1, "month": 2, "day": 3}
_NO_OVERLAP: Final = timedelta()


@frozen
class ReleaseDate:
    """A day, or all that is known of it. What is not known is None."""

    year: int
    month: int | None = None
    day: int | None = None

    def __attrs_post_init__(self) -> None:
        if self.month is None and self.day is not None:
            raise ValueError("a day without its month is no date")
        date(self.year, self.month or 1, self.day or 1)

    @property
    def earliest(self) -> date:
        """The first day that it can be."""
        return date(self.year, self.month or 1, self.day or 1)

    @property
    def latest(self) -> date:
        """The last day that it can be."""
        month = self.month or 12
        return date(self.year, month, self.day or monthrange(self.year, month)[1])

    def is_after(self, watermark: date, overlap: timedelta = _NO_OVERLAP) -> bool:
        """Whether it may be newer than what was seen up to `watermark`. The day of the watermark itself may be.

        `overlap` looks further back: shops fill in releases some days late.

        >>> seen_until = date(2026, 11, 16)
        >>> [read_release_date(text).is_after(seen_until) for text in ("2026", "2026-11", "2026-10", "2026-11-15")]
        [True, True, False, False]
        """
        since = watermark - min(overlap, watermark - date.min)
        return self.latest >= since

    def __str__(self) -> str:
        parts = [f"{self.year:04}", *(f"{part:02}" for part in (self.month, self.day) if part is not None)]
        return "-".join(parts)


def read_release_date(text: str, precision: str = "day") -> ReleaseDate | None:
    """The date that is written here, no more exact than `precision` says; None for "0000" and what is no date.

    >>> [str(read_release_date(*date)) for date in (("1981-12",), ("1981-01-01", "year"), ("0000",), ("2026-02-30",))]
    ['1981-12', '1981', 'None', 'None']
    """
    written = _WRITTEN.fullmatch(text.strip())
    if written is None:
        return None
    known = [int(part) for part in written.groups() if part is not None][: _PARTS.get(precision, _PARTS["day"])]
    try:
        return ReleaseDate(*known)
    except ValueError:
        return None


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
    disc: int = 1
    number: int = 0


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
