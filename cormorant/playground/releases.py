"""Artists that release over time."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from attrs import define, evolve

from cormorant.playground.catalogue import ARTISTS, PlayedCatalogue, PlayedNews, album_title, turns_after
from cormorant.playground.spotify import PlayedAlbum, PlayedArtist
from cormorant.rules.ports import Clock
from cormorant.rules.watch.soulseek import PeerFile, PeerResponse

WATCHED: Final[Mapping[str, str]] = {f"playground{number:012}": name for number, name in enumerate(ARTISTS[:3], 1)}
"""The artists that are watched, by the id that the stand-in for Spotify knows them by."""

SOON: Final = timedelta(seconds=20)
EVERY: Final = timedelta(minutes=4)
COUNT: Final = 150
TRACKS: Final = ("Harbour", "A Lamp for Later", "Low Water", "Ninety Steps")
_MB: Final = 1_000_000


def releases_since(opened_at: datetime) -> list[PlayedNews]:
    """What comes out. Two are out at once: one that every kind of source has, one that only peers share.

    The names depend on the moment: what was handed over before a restart is not wanted again.
    """
    made_at = int(opened_at.timestamp())
    chance = random.Random(made_at)  # noqa: S311 - invented, not secret
    times = [opened_at, opened_at, *turns_after(opened_at, soon=SOON, every=EVERY, count=COUNT - 2)]
    return [
        PlayedNews(
            id=f"playground{made_at:x}n{number}",
            artist=ARTISTS[number % len(WATCHED)],
            title=f"{album_title(chance)} {made_at % 10_000 + number}",
            out_at=out_at,
            is_indexed=number % 3 != 1,
            is_shared=number % 3 != 2,  # noqa: PLR2004 - each kind lacks a third
        )
        for number, out_at in enumerate(times)
    ]


def peers_with(news: Sequence[PlayedNews]) -> list[PeerResponse]:
    """Who shares what at Soulseek: somebody in a good form with a free slot, and somebody in a bad one without."""
    return [peer for each in news if each.is_shared for peer in _peers(each)]


def _peers(album: PlayedNews) -> Iterator[PeerResponse]:
    for username, form, end, size_mb in (("gannet77", "FLAC", "flac", 31), ("eider_home", "MP3 128", "mp3", 4)):
        folder = f"@@{username}\\Music\\{album.artist}\\{album.title} ({album.out_at.year}) [{form}]"
        files = [
            PeerFile(filename=f"{folder}\\{number:02} {track}.{end}", size_bytes=size_mb * _MB + number, length_s=200)
            for number, track in enumerate(TRACKS, 1)
        ]
        is_good = form == "FLAC"
        yield PeerResponse(
            username=username,
            files=tuple(files if is_good else (evolve(file, bit_rate=128) for file in files)),
            has_free_slot=is_good,
            speed_bytes_s=2 * _MB if is_good else _MB // 10,
            queue_length=0 if is_good else 12,
        )


@define(eq=False)
class GrowingArtists(Mapping[str, PlayedArtist]):
    """The artists as they are now: what they ever made, and of the news what is out."""

    news: Sequence[PlayedNews]
    catalogue: PlayedCatalogue
    clock: Clock

    def __getitem__(self, artist_id: str) -> PlayedArtist:
        name = WATCHED[artist_id]
        new = [each for each in self.news if each.artist == name and each.out_at <= self.clock.now()]
        made = {
            PlayedAlbum(id=f"{artist_id}y{year}", name=album, date=year)
            for album, year in self.catalogue.albums_of(name)
        }
        return PlayedArtist(
            id=artist_id,
            name=name,
            albums=(
                *(_played(each) for each in reversed(new)),
                *sorted(made, key=lambda each: each.date, reverse=True),
            ),
        )

    def __iter__(self) -> Iterator[str]:
        return iter(WATCHED)

    def __len__(self) -> int:
        return len(WATCHED)


def _played(news: PlayedNews) -> PlayedAlbum:
    return PlayedAlbum(id=news.id, name=news.title, date=str(news.out_at.date()), tracks=TRACKS)
