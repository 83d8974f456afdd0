"""What does watching cost? A tick over 100 artists whose catalogue answers at once, and choosing from 50 finds for each want.

*Ticks*: the real ticker with the real store. Everybody is due; either nobody has anything new, or everybody has one release,
which is wanted and gets its job. Nothing is waited for but our own work, so that what is measured is what a tick takes from
its budget. In memory without threads, and in a SQLite file with durable commits. By the processor's clock, all threads counted,
since others use the machine, too; and by the one on the wall.

*Choosing*: a profile with patterns, sizes and preferences judges 50 finds for a want and orders those that fit. Alone, and with
all that is kept of it: the want, its candidates with their reasons, the choice, the job. By the processor's clock.
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import trio
from attrs import define, evolve, field, frozen
from sqlalchemy import Connection, text

if __name__ == "__main__":
    # Run as a file, Python looks beside it for modules and not where the project is.
    sys.path[0] = str(Path(__file__).parent.parent)

from actors import SystemClock
from actors.jobs.working_set import JobWakeUp
from actors.watch.watchlist_store import DatabaseArtistStore
from actors.watch.watchlist_ticker import WatchlistTicker
from bench._report import Goal, Options, Row, finish, read_options
from cormorant.rules.ports import ignore
from cormorant.rules.search.requests import Result
from cormorant.rules.settings.watch import WatchlistSettings
from cormorant.rules.watch.artists import Artist, Start
from cormorant.rules.watch.handovers import ParcelKind
from cormorant.rules.watch.profiles import Profile, best_first, judge
from cormorant.rules.watch.releases import Album, AlbumPage
from cormorant.rules.watch.wants import Want, WantState
from cormorant.scripted import ScriptedCatalogue, album
from cormorant.testing import memory_gateway, settings
from storage.database import Database, Mode, StorageOptions
from storage.jobs.jobs import NewJob
from storage.watch import wants, watches
from storage.watch.artists import ARTIST
from storage.watch.choice import CandidateChoice
from tests.environments import environment_of
from tests.leases import held_lease

ARTISTS = 100
OLD_ALBUMS = 20
BUDGET_S = 8.0
SHARE_MOST = 0.05
FINDS = 50
NOW = datetime(2026, 1, 1, tzinfo=UTC)
PROFILE = Profile(
    accept=("flac", r"24.?bit"),
    reject=("karaoke", "tribute", r"\bmp3\b"),
    size_min_bytes=50_000_000,
    size_max_bytes=3_000_000_000,
    min_seeders=2,
    prefer=("freeleech", r"24.?bit", "remaster"),
)


def _albums(artist_id: str) -> list[Album]:
    return [album(f"Old {number}", "2020-01-02", by=artist_id) for number in range(OLD_ALBUMS)]


@define(eq=False)
class InstantCatalogue(ScriptedCatalogue):
    """Answers at once: twenty old albums, and new ones if it is told so."""

    news: list[str] = field(factory=list)
    old: dict[str, list[Album]] = field(factory=lambda: {f"a{n}": _albums(f"a{n}") for n in range(ARTISTS)})

    async def albums_page(self, artist: Artist, *, after: str | None, timeout_s: float) -> AlbumPage:
        """Everything the artist has released."""
        await trio.lowlevel.checkpoint()
        new = (album(each, "2100-01-01", by=artist.artist_id) for each in self.news)
        return AlbumPage(albums=(*self.old[artist.artist_id], *new))


def job_for(kind: str, want: Want, clock: SystemClock) -> NewJob:
    """As the service makes it."""
    return NewJob(
        uid=f"{kind} {want.key}",
        kind=kind,
        payload="{}",
        priority=10,
        run_at=clock.now(),
        max_attempts=10,
        dedupe_key=want.key,
    )


def _watch_all(connection: Connection) -> None:
    wanted = [
        Artist(
            source="spotify",
            artist_id=f"a{number}",
            name=f"Artist {number}",
            start=Start.DATE,
            start_on=NOW.date(),
            next_attempt_at=NOW,
            added_at=NOW,
        )
        for number in range(ARTISTS)
    ]
    watches.add_all(connection, ARTIST, wanted)


def _all_due(connection: Connection) -> None:
    connection.execute(text("UPDATE watchlist_artists SET next_attempt_at = 0"))


@frozen
class Ticks:
    """How long ticks took, of processor time and on the wall: with nothing new, and with one release of each artist."""

    quiet_s: list[tuple[float, float]]
    news_s: list[tuple[float, float]]


async def _ticks(database: Database, rounds: int) -> Ticks:
    clock = SystemClock()
    catalogue = InstantCatalogue()

    environment = environment_of(
        settings(watchlist=WatchlistSettings(max_per_tick=ARTISTS, tick_budget_s=BUDGET_S)),
        database=database,
        clock=clock,
        chance=random.Random(1),
        emit=ignore,
        catalogue=catalogue,
    )
    taken = Ticks([], [])
    async with trio.open_nursery() as nursery:
        await nursery.start(database)
        await database.run(_watch_all)
        lease = await held_lease(database)
        store = DatabaseArtistStore(environment, producer=JobWakeUp(), lease=lease)
        ticker = WatchlistTicker(environment, lease=lease, store=store)
        await ticker.tick()
        for number in range(rounds):
            for samples, news in ((taken.quiet_s, []), (taken.news_s, [f"New {number}"])):
                catalogue.news[:] = news
                await database.run(_all_due)
                began = time.process_time(), time.perf_counter()
                await ticker.tick()
                samples.append((time.process_time() - began[0], time.perf_counter() - began[1]))
        listed = await database.read(partial(wants.recent, limit=rounds * ARTISTS + 1))
        database.stop()
    assert [want.state for want in listed] == [WantState.WANTED] * (rounds * ARTISTS), len(listed)
    return taken


@contextmanager
def file_database() -> Iterator[Database]:
    """A SQLite file, with threads and durable commits as in a service."""
    with tempfile.TemporaryDirectory(prefix="cormorant-bench-") as folder:
        options = StorageOptions(url=f"sqlite:///{folder}/watches.db")
        yield Database(options, mode=Mode.THREADS, emit=ignore, chance=random.Random(1))


def tick_part(*, rounds: int) -> tuple[list[Row], list[Goal]]:
    """Ticks in memory and in a file."""
    with memory_gateway() as gateway:
        in_line = trio.run(_ticks, gateway, rounds)
    with file_database() as database:
        in_file = trio.run(_ticks, database, rounds)
    rows: list[Row] = []
    worst_s = 0.0
    for where, taken in (("in line", in_line), ("SQLite FULL on disk", in_file)):
        for what, samples in (("nothing new", taken.quiet_s), ("one release each", taken.news_s)):
            spent_s, passed_s = zip(*samples, strict=True)
            worst_s = max(worst_s, statistics.median(spent_s))
            name = f"tick of {ARTISTS} artists, {what}, {where}"
            rows.append(Row(name, "ms of processor time", [each * 1_000 for each in spent_s]))
            rows.append(Row("  by the clock on the wall", "ms", [each * 1_000 for each in passed_s]))
    return rows, [Goal("watchlist.tick_overhead_share", worst_s / BUDGET_S, "<=", SHARE_MOST)]


def finds(chance: random.Random) -> list[tuple[str, Result]]:
    """What a search for an album brings, good and bad."""
    kinds = ("FLAC", "24bit FLAC", "MP3 320", "FLAC Remaster", "Karaoke FLAC", "AAC")
    made = []
    for number in range(FINDS):
        title = f"Some Artist - Some Album (2026) [{kinds[int(chance.random() * len(kinds))]}] {number}"
        result = Result(
            title=title,
            guid=f"guid-{number}",
            link=f"http://indexer.test/{number}",
            protocol="torrent",
            size_bytes=int(chance.random() * 4_000_000_000),
            seeders=int(chance.random() * 40),
        )
        made.append((f"indexer{number % 5}", result))
    return made


def chosen_per_second(samples: Sequence[list[tuple[str, Result]]], *, number: int) -> float:
    """Judging and ordering alone, by the processor's clock."""
    chosen = 0
    began = time.process_time()
    for place in range(number):
        judged = [(source, result, judge(PROFILE, result, now=NOW)) for source, result in samples[place % len(samples)]]
        chosen += bool(best_first(judged))
    passed_s = time.process_time() - began
    assert chosen == number
    return number / passed_s


def _choose_one(connection: Connection, chooser: CandidateChoice, want: Want, found: list[tuple[str, Result]]) -> None:
    stored = wants.want(connection, want)
    assert stored is not None
    judged = chooser.judge(stored, found, now=NOW)
    assert chooser.choose(connection, stored, judged, now=NOW) is not None


async def _chosen_in(
    database: Database, samples: Sequence[list[tuple[str, Result]]], *, first: int, number: int
) -> float:
    clock = SystemClock()
    chooser = CandidateChoice(
        profiles={"default": PROFILE},
        takes={"target": frozenset(ParcelKind)},
        is_live=True,
        make_handover=lambda want: job_for("handover", want, clock),
    )
    usual = Want(
        key="",
        kind="album",
        title="Some Album",
        artist="Some Artist",
        state=WantState.SEARCHING,
        targets=("target",),
        found_at=NOW,
        changed_at=NOW,
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(database)
        began = time.process_time()
        for place in range(first, first + number):
            await database.run(_choose_one, chooser, evolve(usual, key=f"want {place}"), samples[place % len(samples)])
        passed_s = time.process_time() - began
        database.stop()
    return number / passed_s


def choosing_part(*, rounds: int, number: int) -> list[Row]:
    """Alone, and with what is kept of it. All take turns, round by round."""
    chance = random.Random(1)
    samples = [finds(chance) for _ in range(20)]
    alone: list[float] = []
    in_line: list[float] = []
    in_file: list[float] = []
    kept = max(1, number // rounds // 10)
    with memory_gateway() as gateway, file_database() as disk:
        for turn in range(rounds):
            alone.append(chosen_per_second(samples, number=number // rounds))
            for database, rates in ((gateway, in_line), (disk, in_file)):

                async def choose(database: Database = database, first: int = turn * kept) -> float:
                    return await _chosen_in(database, samples, first=first, number=kept)

                rates.append(trio.run(choose))
    return [
        Row(f"chosen from {FINDS}: judged and ordered, {number:,} wants", "wants/s of processor time", alone),
        Row(f"  and kept, in line, {kept * rounds:,} wants", "wants/s of processor time", in_line),
        Row(f"  and kept, SQLite FULL on disk, {kept * rounds:,} wants", "wants/s of processor time", in_file),
    ]


def main(options: Options) -> int:
    """Run all parts."""
    rows, goals = tick_part(rounds=3 if options.quick else 9)
    rows += choosing_part(rounds=3 if options.quick else 5, number=2_000 if options.quick else 10_000)
    return finish(options, rows, goals)


if __name__ == "__main__":
    sys.exit(main(read_options(__doc__)))
