"""What do the replies of Spotify hold? Read with doubt: a field may be missing, null, or of another kind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast, get_args

from cormorant.rules.search.outcomes import SourceUnavailable
from cormorant.rules.watch.releases import Album, CatalogueArtist, Group, Kind, ReleaseDate, Track, read_release_date

_KINDS: Final = frozenset(get_args(Kind))
_GROUPS: Final = frozenset(get_args(Group))
_MS: Final = 1000
_NUMBER_MAX: Final = 1_000_000_000

Json = Mapping[str, Any]


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


def text_of(item: Json, name: str) -> str:
    """A text; empty when there is none."""
    value = item.get(name)
    return value if isinstance(value, str) else ""


def number_of(item: Json, name: str) -> int:
    """A whole number from 0; 0 when there is none."""
    value = item.get(name)
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _NUMBER_MAX
    return int(cast("float", value)) if is_number else 0


def _album(item: Json) -> Album:
    kind, group = text_of(item, "album_type").lower(), text_of(item, "album_group").lower()
    return Album(
        id=text_of(item, "id"),
        title=text_of(item, "name"),
        artists=read_artists(item.get("artists")),
        kind=cast("Kind", kind if kind in _KINDS else "album"),
        group=cast("Group", group) if group in _GROUPS else None,
        released=_released(item),
        tracks_total=number_of(item, "total_tracks"),
    )


def _released(item: Json) -> ReleaseDate | None:
    return read_release_date(text_of(item, "release_date"), text_of(item, "release_date_precision"))


def _track(item: Json) -> Track:
    return Track(
        id=text_of(item, "id") or text_of(item, "uri"),
        title=text_of(item, "name"),
        artists=read_artists(item.get("artists")),
        disc=number_of(item, "disc_number") or 1,
        number=number_of(item, "track_number"),
        length_s=number_of(item, "duration_ms") / _MS or None,
    )
