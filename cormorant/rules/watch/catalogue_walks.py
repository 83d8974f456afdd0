"""How far has a long list of releases been read? What was read is kept, so that a tick goes on where the last one ended."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any, Final

from attrs import frozen

from cormorant.rules.search.source_errors import SourceRefused
from cormorant.rules.watch.artists import Artist as Watched
from cormorant.rules.watch.release_dates import read_release_date
from cormorant.rules.watch.releases import Album, AlbumPage, CatalogueArtist

__all__ = ["KEPT", "CatalogueProgress", "can_go_on", "dump_walk", "lengthened", "load_walk"]

KEPT: Final = timedelta(days=7)
"""Longer than any limit of a source lasts. What was read before that is read anew."""
PAGES_MAX: Final = 1_000
ALBUMS_MAX: Final = 20_000


@frozen(kw_only=True)
class CatalogueProgress:
    """The part of a list that was read, page by page."""

    began_at: datetime
    """When the first page was asked for: what came out later may be missing."""
    albums: tuple[Album, ...] = ()
    following: str | None = None
    """The address of the next page; None: before the first page, and after the last."""
    asked: tuple[str, ...] = ()
    """The addresses of the pages after the first, so that a list that leads back into itself is noticed."""
    is_done: bool = False


def lengthened(walk: CatalogueProgress, page: AlbumPage, *, name: str) -> CatalogueProgress:
    """The walk with one more page. Raises `SourceRefused` for a list that does not end."""
    albums = walk.albums + tuple(page.albums)
    asked = walk.asked if walk.following is None else (*walk.asked, walk.following)
    if page.next in asked or len(asked) >= PAGES_MAX or len(albums) > ALBUMS_MAX:
        raise SourceRefused(
            f"the list of what {name} has released does not end: {len(albums)} releases on {len(asked) + 1} pages"
        )
    return CatalogueProgress(
        began_at=walk.began_at, albums=albums, following=page.next, asked=asked, is_done=page.next is None
    )


def can_go_on(walk: CatalogueProgress, artist: Watched, *, now: datetime) -> bool:
    """Whether the pages that were kept still count: not too old, and no look has succeeded since they were read."""
    is_recent = now - KEPT <= walk.began_at <= now
    return is_recent and (artist.watermark is None or artist.watermark < walk.began_at or artist.watermark > now)


def dump_walk(walk: CatalogueProgress) -> str:
    """The walk as text; its beginning is kept beside it."""
    albums = [
        [
            album.id,
            album.title,
            [[each.id, each.name] for each in album.artists],
            album.kind,
            album.group,
            str(album.released or ""),
            album.tracks_total,
        ]
        for album in walk.albums
    ]
    return json.dumps({"albums": albums, "next": walk.following, "asked": walk.asked, "done": walk.is_done})


def load_walk(text: str, *, began_at: datetime) -> CatalogueProgress:
    """The walk that was kept as text."""
    kept: dict[str, Any] = json.loads(text)
    albums = tuple(
        Album(
            id=album_id,
            title=title,
            artists=tuple(CatalogueArtist(id=artist_id, name=name) for artist_id, name in artists),
            kind=kind,
            group=group,
            released=read_release_date(released),
            tracks_total=total,
        )
        for album_id, title, artists, kind, group, released, total in kept["albums"]
    )
    return CatalogueProgress(
        began_at=began_at,
        albums=albums,
        following=kept["next"],
        asked=tuple(kept["asked"]),
        is_done=kept["done"],
    )
