"""Invented releases and their torrents and NZBs."""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from html import escape
from typing import Any, Final, Literal

from attrs import evolve, field, frozen

Shelf = Literal["music", "tv", "film"]
SHELVES: Final[tuple[Shelf, ...]] = ("music", "tv", "film")

ARTISTS: Final = (
    "Paper Lantern Parade",
    "The Quiet Harbourmen",
    "Marrow and Pine",
    "Velvet Orrery",
    "Salt Meridian",
    "Hollow Kite Society",
    "Eleven Tin Foxes",
    "Lowland Choir Machine",
    "Glass Tramway",
    "Moth Observatory",
)
SHOWS: Final = (
    "Harbour Nine",
    "The Mapmakers of Orm",
    "Lighthouse Street",
    "Cold Ferry",
    "Department of Tides",
    "The Kiln Road Papers",
)
FILMS: Final = (
    "The Last Orchard Keeper",
    "A Map Without Rivers",
    "Night Train to Ostrava Sands",
    "The Clockmaker's Winter",
    "Seven Bridges Home",
    "An Ordinary Comet",
    "The Salt Cathedral",
    "Ferryman, Wait",
    "The Understudy of Mars",
    "Postcards from Level Nine",
)
_ALBUM_FIRST: Final = ("Slow", "Borrowed", "Northern", "Second", "Unlit", "Paper", "Distant", "Common")
_ALBUM_SECOND: Final = ("Weather", "Rooms", "Machines", "Harvest", "Signals", "Gardens", "Arithmetic", "Tides")
_GROUPS: Final = ("KELP", "GANNET", "EIDER", "TERN")

_MB: Final = 1_000_000
_TYPICAL_AGE_DAYS: Final = 60.0
_LATER_EVERY: Final = timedelta(minutes=15)
"""Now and then something new comes out while one looks."""
_LATER_ONE_IN: Final = 6
_WORD: Final = re.compile(r"[a-z0-9]+")


@frozen(kw_only=True)
class PlayedRelease:
    """One thing that can be found."""

    number: int
    title: str
    shelf: Shelf
    category: int
    size_bytes: int
    published: datetime
    seeders: int
    leechers: int
    grabs: int
    about: Mapping[str, str] = field(hash=False)
    """What it is of, by Torznab names: artist, album, season, ep, year, tvdbid, imdbid and the like."""

    @property
    def words(self) -> frozenset[str]:
        """What it is found by."""
        return words_in(" ".join([self.title, *self.about.values()]))


@frozen(kw_only=True)
class PlayedNews:
    """An album that an artist releases after the opening, and which kinds of source have it."""

    id: str
    artist: str
    title: str
    out_at: datetime
    is_indexed: bool
    is_shared: bool


def album_title(chance: random.Random) -> str:
    """The invented title of an album."""
    return f"{chance.choice(_ALBUM_FIRST)} {chance.choice(_ALBUM_SECOND)}"


def mark_of(moment: datetime) -> int:
    """A short number, another one for each moment of some weeks."""
    return int(moment.timestamp()) % 10_000_000


def turns_after(opened_at: datetime, *, soon: timedelta, every: timedelta, count: int) -> list[datetime]:
    """When something new comes out after the opening: soon, and then at equal intervals."""
    return [opened_at + soon, *(opened_at + every * number for number in range(1, count))]


def words_in(text: str) -> frozenset[str]:
    """The words of a title or a query.

    >>> sorted(words_in("Cold.Ferry.S01E02 - 1080p"))
    ['1080p', 'cold', 'ferry', 's01e02']
    """
    return frozenset(_WORD.findall(text.lower().replace("'", "")))


class PlayedCatalogue:
    """Everything there is, by a seed. Ages count from `opened_at`; a few things come out only after it, and `news` do."""

    def __init__(self, opened_at: datetime, *, seed: int = 1, news: Iterable[PlayedNews] = ()) -> None:
        chance = random.Random(seed)  # noqa: S311 - invented, not secret
        sketches = [*_music(chance), *_series(chance), *_films(chance)]
        chance.shuffle(sketches)
        made = [_release(number, sketch, opened_at, chance) for number, sketch in enumerate(sketches, 1)]
        self._old: Sequence[PlayedRelease] = tuple(made)
        made += _releases_of(news, opened_at, chance, first=len(made) + 1)
        self._newest_first: Sequence[PlayedRelease] = sorted(made, key=lambda each: each.published, reverse=True)
        self._by_number = {each.number: each for each in made}

    def out(self, now: datetime) -> list[PlayedRelease]:
        """What has come out by now, the newest first."""
        return [each for each in self._newest_first if each.published <= now]

    def find(self, number: int) -> PlayedRelease | None:
        """One release."""
        return self._by_number.get(number)

    def albums_of(self, artist: str) -> set[tuple[str, str]]:
        """Title and year of what an artist had made when this was opened."""
        return {(each.about["album"], each.about["year"]) for each in self._old if each.about.get("artist") == artist}


@frozen(kw_only=True)
class _Sketch:
    title: str
    shelf: Shelf
    category: int
    size_mb: float
    about: Mapping[str, str]


def _music(chance: random.Random) -> Iterator[_Sketch]:
    for artist in ARTISTS:
        for year in sorted(chance.sample(range(2009, 2027), 3)):
            yield from _forms_of(artist, album_title(chance), year)


def _forms_of(artist: str, album: str, year: int) -> Iterator[_Sketch]:
    about = {"artist": artist, "album": album, "year": str(year)}
    for form, category, size_mb in (("FLAC", 3040, 330.0), ("24bit FLAC", 3040, 900.0), ("MP3 320", 3010, 110.0)):
        title = f"{artist} - {album} ({year}) [{form}]"
        yield _Sketch(title=title, shelf="music", category=category, size_mb=size_mb, about=about)


def _releases_of(
    news: Iterable[PlayedNews], opened_at: datetime, chance: random.Random, *, first: int
) -> Iterator[PlayedRelease]:
    indexed = [each for each in news if each.is_indexed]
    sketched = [(each, form) for each in indexed for form in _forms_of(each.artist, each.title, each.out_at.year)]
    for number, (each, sketch) in enumerate(sketched, first):
        yield evolve(_release(number, sketch, opened_at, chance), published=each.out_at)


def _series(chance: random.Random) -> Iterator[_Sketch]:
    for number, show in enumerate(SHOWS):
        about = {"tvdbid": str(910_001 + number), "rid": str(81_001 + number)}
        for season in (1, 2):
            for episode in range(1, 9):
                where = about | {"season": str(season), "ep": str(episode)}
                for quality, category, size_mb in (
                    ("1080p", 5040, 1_900.0),
                    ("720p", 5040, 900.0),
                    ("480p", 5030, 350.0),
                ):
                    name = f"{show} S{season:02}E{episode:02} {quality} WEB-DL DDP5 1 H 264-{chance.choice(_GROUPS)}"
                    yield _Sketch(
                        title=name.replace(" ", "."), shelf="tv", category=category, size_mb=size_mb, about=where
                    )


def _films(chance: random.Random) -> Iterator[_Sketch]:
    for number, film in enumerate(FILMS):
        year = chance.randrange(1998, 2027)
        about = {"imdbid": f"tt99{number:05}", "tmdbid": str(990_001 + number), "year": str(year)}
        for quality, category, size_mb in (
            ("2160p", 2045, 18_000.0),
            ("1080p", 2040, 7_500.0),
            ("720p", 2040, 3_200.0),
        ):
            name = f"{film.replace(',', '')} {year} {quality} BluRay x265-{chance.choice(_GROUPS)}"
            yield _Sketch(title=name.replace(" ", "."), shelf="film", category=category, size_mb=size_mb, about=about)


def _release(number: int, sketch: _Sketch, opened_at: datetime, chance: random.Random) -> PlayedRelease:
    age = timedelta(days=chance.expovariate(1 / _TYPICAL_AGE_DAYS))
    is_later = number % _LATER_ONE_IN == 0
    seeders = int(chance.paretovariate(0.9) * 3) % 900
    return PlayedRelease(
        number=number,
        title=sketch.title,
        shelf=sketch.shelf,
        category=sketch.category,
        size_bytes=int(sketch.size_mb * _MB * chance.uniform(0.8, 1.25)),
        published=opened_at + number // _LATER_ONE_IN * _LATER_EVERY if is_later else opened_at - age,
        seeders=seeders,
        leechers=chance.randrange(1 + seeders // 4),
        grabs=seeders * 3 + chance.randrange(40),
        about=sketch.about,
    )


_PIECES_MAX: Final = 64
_PIECE_BYTES_MIN: Final = 2**18
_SEGMENTS_MAX: Final = 200
_SEGMENT_BYTES: Final = 716_800


@lru_cache(maxsize=2_000)
def infohash_of(release: PlayedRelease) -> str:
    """What the torrent is known by."""
    return hashlib.sha1(_bencoded(_info(release)), usedforsecurity=False).hexdigest()


def torrent_of(release: PlayedRelease, *, tracker: str) -> bytes:
    """The torrent file. Its pieces are as many as its size asks for, and the hash of nothing."""
    return _bencoded({b"announce": tracker.encode(), b"created by": b"playground", b"info": _info(release)})


def _info(release: PlayedRelease) -> dict[bytes, Any]:
    piece_bytes = _PIECE_BYTES_MIN
    while piece_bytes * _PIECES_MAX < release.size_bytes:
        piece_bytes *= 2
    count = -(-release.size_bytes // piece_bytes)
    return {
        b"length": release.size_bytes,
        b"name": release.title.encode(),
        b"piece length": piece_bytes,
        b"pieces": hashlib.shake_128(release.title.encode()).digest(20 * count),
        b"private": 1,
    }


def _bencoded(value: int | bytes | dict[bytes, Any]) -> bytes:
    """Invariant: keys come in order, as the format wants."""
    if isinstance(value, int):
        return b"i%de" % value
    if isinstance(value, bytes):
        return b"%d:%s" % (len(value), value)
    pairs = (_bencoded(key) + _bencoded(value[key]) for key in sorted(value))
    return b"d" + b"".join(pairs) + b"e"


def nzb_of(release: PlayedRelease) -> bytes:
    """The NZB file."""
    count = min(_SEGMENTS_MAX, -(-release.size_bytes // _SEGMENT_BYTES))
    size, name = release.size_bytes // count, escape(release.title)
    segments = "".join(
        f'<segment bytes="{size}" number="{number}">{number}.{release.number}@playground.invalid</segment>'
        for number in range(1, count + 1)
    )
    posted = int(release.published.timestamp())
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<!DOCTYPE nzb PUBLIC "-//newzBin//DTD NZB 1.1//EN" "http://www.newzbin.com/DTD/nzb/nzb-1.1.dtd">\n'
        '<nzb xmlns="http://www.newzbin.com/DTD/2003/nzb">'
        f'<file poster="nobody@playground.invalid" date="{posted}" subject="{name} (1/{count})">'
        f"<groups><group>alt.binaries.playground</group></groups><segments>{segments}</segments></file></nzb>"
    ).encode()
