"""A service that is stopped with searches, jobs, an artist and feeds in progress; prints the trace of its stop.

`python -m tests.supervisors.stopping > tests/supervisors/stop_trace.txt` writes the trace that every Python must give.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import trio
from attrs import define, field

from actors.jobs.handler import JobContext
from cormorant.rules.events import fields_of
from cormorant.rules.search.requests import SearchPage, SearchRequest
from cormorant.rules.settings.settings import ServiceSettings
from cormorant.rules.settings.watch import FeedSettings, WatchlistSettings
from cormorant.rules.watch.artists import Artist
from cormorant.rules.watch.feeds import DueFeed, FetchedFeed
from cormorant.rules.watch.releases import AlbumPage, CatalogueArtist
from cormorant.scripted import ScriptedCatalogue
from cormorant.testing import Recorder, Simulation, in_line, memory_gateway, named_sources, settings, simulated
from storage.database import Database
from storage.search.sources import SourceRecord
from supervisors import Service, open_service
from tests.environments import environment_of

SEED = 16
STOPS_AT_S = 20.0
SOURCES = ("a", "b", "c")
FEEDS = 3
ARTISTS_S = 2.0
"""Artists are added so long before the stop: within the budget of a tick, so that their checks are in progress."""
LONG_S = 3_600.0


@define(eq=False)
class Work:
    """What is in progress, and the trace of how it ends."""

    simulation: Simulation
    recorder: Recorder = field(factory=Recorder)
    lines: list[str] = field(factory=list)
    running: set[str] = field(factory=set)
    stops: bool = False

    def note(self, what: str) -> None:
        """Add a line to the trace."""
        if self.stops:
            self.lines.append(f"{trio.current_time():.3f} {what}")

    @contextmanager
    def doing(self, what: str) -> Iterator[None]:
        """Something is in progress until it ends, in whatever way."""
        self.running.add(what)
        try:
            yield
        finally:
            self.running.discard(what)
            self.note(f"{what} ended")

    async def take(self, what: str) -> None:
        """Be in progress: for long, or until soon after the stop has begun."""
        with self.doing(what):
            is_long = self.simulation.chance.random() < 0.5
            await trio.sleep(LONG_S if is_long else STOPS_AT_S + self.simulation.chance.random())

    async def ask(self, record: SourceRecord, request: SearchRequest) -> SearchPage:
        """A source."""
        await self.take(f"search {request.query} at {record.name}")
        return SearchPage(results=())

    async def fetch(self, due: DueFeed) -> FetchedFeed:
        """A feed."""
        await self.take(f"feed {due.name}")
        return FetchedFeed(items=())

    async def handle(self, context: JobContext) -> None:
        """A job that tidies up when it is cancelled."""
        try:
            await self.take(f"job {context.payload}")
        finally:
            with trio.move_on_after(0.1, shield=True):
                await trio.sleep(0.05)
                self.note(f"job {context.payload} tidied up")

    def heard(self, stamped: Any) -> None:
        """An event of the service."""
        facts = {
            name: round(value, 3) if isinstance(value, float) else value
            for name, value in fields_of(stamped.event).items()
        }
        self.note(f"{stamped.event.name} {' '.join(f'{name}={value}' for name, value in facts.items())}".rstrip())


class Catalogue(ScriptedCatalogue):
    """A catalogue that takes long."""

    def __init__(self, work: Work) -> None:
        super().__init__()
        self.work = work

    async def albums_page(self, artist: Artist, *, after: str | None, timeout_s: float) -> AlbumPage:
        await self.work.take(f"artist {artist.name}")
        return AlbumPage(albums=(), next=after)


def service_of(work: Work, gateway: Database) -> Service:
    """The whole service, every client of which is slow."""
    return open_service(
        settings(
            service=ServiceSettings(worker_id="simulated"),
            sources=named_sources(*SOURCES, spacing_s=0.0, pace_s=0.0),
            watchlist=WatchlistSettings(interval_s=1.0),
            feeds={f"feed-{number}": FeedSettings(url=f"http://host{number}.test/") for number in range(FEEDS)},
        ),
        environment=environment_of(
            clock=work.simulation.clock,
            chance=work.simulation.chance,
            offload=in_line,
            database=gateway,
            listeners=[work.heard],
            search=work.ask,
            feed=work.fetch,
            catalogue=Catalogue(work),
        ),
        handlers={"tidy": work.handle},
    )


async def live(work: Work, gateway: Database) -> None:
    """Start everything, and stop in the middle of it."""
    async with service_of(work, gateway) as service:
        for number in range(3):
            await service.enqueue("tidy", number)
        searches = [await service.search(query) for query in ("one", "two", "three")]
        await trio.sleep(STOPS_AT_S - ARTISTS_S)
        for number in range(2):
            await service.artists.add(CatalogueArtist(id=f"id-{number}", name=f"artist-{number}"))
        await trio.sleep(ARTISTS_S)
        kinds = {what.split()[0] for what in work.running}
        assert kinds == {"search", "job", "artist", "feed"}, work.running
        work.stops = True
    assert all(search.is_done for search in searches)
    assert not work.running


def trace(seed: int = SEED) -> list[str]:
    """The stop of one run, line by line."""
    work = Work(simulated(seed))
    with memory_gateway() as gateway:
        work.simulation.run(live, work, gateway)
    return work.lines


if __name__ == "__main__":
    sys.stdout.write("\n".join(trace()) + "\n")
