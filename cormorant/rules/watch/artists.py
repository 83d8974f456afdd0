"""Artist, due times, retry budget, cooldown, catalogue progress, artist links."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from attrs import evolve, frozen

from cormorant.rules.search.outcomes import SourceRefused
from cormorant.rules.watch.releases import Album, AlbumPage, CatalogueArtist, Release, ReleaseDate, read_release_date
from cormorant.rules.watch.watches import Watch

OVERLAP: Final = timedelta(days=14)
"""Releases show up late and are dated back: what is that much older than the last look may still be new."""
CLOCK_SPARE: Final = timedelta(hours=1)
"""So much two clocks may differ before one of them counts as wrong."""
DELAY_S_MAX: Final = 5.0
CRASH_DELAY_S: Final = 60.0


class Start(StrEnum):
    """From when on releases of an artist are wanted."""

    NOW = "now"
    DATE = "date"
    ALL = "all"


@frozen(kw_only=True, slots=False)
class Artist(Watch):
    """An artist on the watchlist."""

    source: str
    """The source that knows it, such as spotify."""
    artist_id: str
    start: Start = Start.NOW
    start_on: date | None = None
    """Releases before this day are not wanted; None: all are."""
    every_s: float | None = None
    """How often it is looked at; None: as the settings say."""
    watermark: datetime | None = None
    """The last look that succeeded; None: there was none."""
    retry_block_until: datetime | None = None


def read_start(text: str) -> tuple[Start, date | None]:
    """From when on, as people write it: now, all, or a day. Raises ValueError.

    >>> read_start("all"), read_start("2026-01-31")
    ((<Start.ALL: 'all'>, None), (<Start.DATE: 'date'>, datetime.date(2026, 1, 31)))
    """
    if text in {Start.NOW.value, Start.ALL.value}:
        return Start(text), None
    try:
        return Start.DATE, date.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text[:40]!r} is no start; write now, all, or a day such as 2026-01-31") from None


def delay_before_retry(*, attempt: int, base_s: float, spread: float, jitter: float) -> float:
    """Seconds to wait after failed attempt number `attempt` of a tick; `jitter` in [0, 1), `spread` the share it moves.

    >>> [delay_before_retry(attempt=n, base_s=0.25, spread=0.2, jitter=0.5) for n in (1, 2, 3, 9)]
    [0.25, 0.5, 1.0, 5.0]
    >>> delay_before_retry(attempt=1, base_s=0.25, spread=0.2, jitter=0.0)
    0.2
    """
    whole_s = min(DELAY_S_MAX, base_s * 2.0 ** min(attempt - 1, 20))
    return min(DELAY_S_MAX, whole_s * (1 + spread * (2 * jitter - 1)))


def delay_after_crash(artist: Artist, *, every_s: float) -> float:
    """Seconds until the next check after an unexpected error: 1, 2, 4 min and so on, at most the artist's interval.

    >>> from datetime import UTC
    >>> now = datetime(2026, 1, 1, tzinfo=UTC)
    >>> artist = Artist(source="s", artist_id="a", name="A", next_attempt_at=now, added_at=now, failures=2)
    >>> delay_after_crash(artist, every_s=43_200), delay_after_crash(artist, every_s=120)
    (240.0, 120.0)
    """
    return float(min(every_s, CRASH_DELAY_S * 2 ** min(artist.failures, 20)))


def clamped_s(timeout_s: float, *, left_s: float) -> float:
    """How long one call may take: its own time-out, and never longer than what the tick has left."""
    return max(0.0, min(timeout_s, left_s))


@frozen(kw_only=True)
class RetryCharge:
    """What failures have cost an artist: how many count now, and until when it is left alone."""

    failures: int
    block_until: datetime | None = None


Charge = Callable[[Artist], RetryCharge]
"""What failures cost an artist as it is now: others may have charged it meanwhile."""


def charged(artist: Artist, *, failed: int, budget: int, cooldown_s: float, now: datetime) -> RetryCharge:
    """Count `failed` more attempts. At the budget the artist is left alone for a while and begins anew after it.

    >>> from datetime import UTC
    >>> now = datetime(2026, 1, 1, tzinfo=UTC)
    >>> artist = Artist(source="s", artist_id="a", name="A", next_attempt_at=now, added_at=now, failures=4)
    >>> charged(artist, failed=1, budget=6, cooldown_s=900, now=now)
    RetryCharge(failures=5, block_until=None)
    >>> charged(artist, failed=2, budget=6, cooldown_s=900, now=now).block_until.isoformat()
    '2026-01-01T00:15:00+00:00'
    """
    total = artist.failures + failed
    if total < budget or not failed:
        return RetryCharge(failures=total)
    return RetryCharge(failures=0, block_until=now + timedelta(seconds=cooldown_s))


@frozen(kw_only=True)
class NewReleases:
    """What a look at an artist has brought."""

    wanted: tuple[Release, ...] = ()
    known: tuple[Release, ...] = ()
    """Out before the artist was watched, as far as their dates tell: not wanted, and not taken for news later."""


def looked_at_before(artist: Artist, *, now: datetime) -> Artist:
    """The artist as of now: a last look in the future, by a clock that was set back since, tells nothing.

    >>> from datetime import UTC
    >>> now = datetime(2026, 1, 1, tzinfo=UTC)
    >>> artist = Artist(source="s", artist_id="a", name="A", next_attempt_at=now, added_at=now, watermark=now + OVERLAP)
    >>> looked_at_before(artist, now=now).watermark == artist.added_at
    True
    """
    if artist.watermark is None or artist.watermark <= now + CLOCK_SPARE:
        return artist
    return evolve(artist, watermark=min(artist.added_at, now))


def new_releases(artist: Artist, releases: Iterable[Release]) -> NewReleases:
    """What is new among all releases of an artist.

    Whoever is watched from now on has a back catalogue, part of it with nothing but a year for a date. At the first look
    what may be older counts as known; afterwards what may be newer than the last look counts as new, and the key of a
    want sees to it that nothing is wanted twice.
    """
    is_first = artist.watermark is None
    wanted, known = [], []
    for release in releases:
        out = release.album.released
        if artist.start is Start.NOW and is_first and _may_be_older(out, artist.start_on):
            if out is None or artist.start_on is None or out.latest >= artist.start_on:
                known.append(release)
        elif _is_wanted(artist, out):
            wanted.append(release)
    return NewReleases(wanted=tuple(wanted), known=tuple(known))


def _may_be_older(out: ReleaseDate | None, start_on: date | None) -> bool:
    return out is None or start_on is None or out.earliest < start_on


def _is_wanted(artist: Artist, out: ReleaseDate | None) -> bool:
    if out is None:
        return True
    if artist.start_on is not None and out.latest < artist.start_on:
        return False
    return artist.watermark is None or out.is_after(artist.watermark.date(), OVERLAP)


ARTISTS_MAX: Final = 10_000
"""Artists in one file."""
LINE_LENGTH_MAX: Final = 300

_ID: Final = r"([0-9A-Za-z]{22})"
_LINKS: Final = (
    re.compile(rf"https?://(?:open|play)\.spotify\.com/(?:intl-[a-z-]{{2,8}}/)?artist/{_ID}(?:[/?#].*)?", re.ASCII),
    re.compile(rf"spotify:artist:{_ID}", re.ASCII),
    re.compile(_ID, re.ASCII),
)


def artist_id_in(text: str) -> str | None:
    """The id that a link holds, or that the text is; None for a name.

    >>> artist_id_in("https://open.spotify.com/intl-de/artist/4Z8W4fKeB5YxbusRsdQVPb?si=ab")
    '4Z8W4fKeB5YxbusRsdQVPb'
    >>> artist_id_in("spotify:artist:4Z8W4fKeB5YxbusRsdQVPb"), artist_id_in("Radiohead")
    ('4Z8W4fKeB5YxbusRsdQVPb', None)
    """
    found = next((match for link in _LINKS if (match := link.fullmatch(text.strip()))), None)
    return found[1] if found else None


def read_artist_lines(lines: Iterable[str]) -> Iterator[str]:
    """The artists of a file, one in a line, each once. What begins with # says nothing. Raises ValueError.

    >>> list(read_artist_lines(["# mine", "", " Radiohead ", "Radiohead", "spotify:artist:4Z8W4fKeB5YxbusRsdQVPb # them"]))
    ['Radiohead', 'spotify:artist:4Z8W4fKeB5YxbusRsdQVPb']
    """
    seen: set[str] = set()
    for number, line in enumerate(lines, start=1):
        wanted = re.split(r"(?:^|\s)#", line, maxsplit=1)[0].strip()
        if not wanted:
            continue
        if len(wanted) > LINE_LENGTH_MAX or not wanted.isprintable():
            raise ValueError(f"line {number} is no artist: write an id, a link or a name of one line")
        if wanted not in seen and len(seen) >= ARTISTS_MAX:
            raise ValueError(f"line {number}: there are more than {ARTISTS_MAX:,} artists; make several files of it")
        if wanted not in seen:
            seen.add(wanted)
            yield wanted


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


def with_page(walk: CatalogueProgress, page: AlbumPage, *, name: str) -> CatalogueProgress:
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


def can_continue(walk: CatalogueProgress, artist: Artist, *, now: datetime) -> bool:
    """Whether the pages that were kept still count: not too old, and no look has succeeded since they were read."""
    is_recent = now - KEPT <= walk.began_at <= now
    return is_recent and (artist.watermark is None or artist.watermark < walk.began_at or artist.watermark > now)


def dump_progress(walk: CatalogueProgress) -> str:
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


def load_progress(text: str, *, began_at: datetime) -> CatalogueProgress:
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
