"""A service with a scripted catalogue, scripted sources and targets on the mock clock."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import trio
from attrs import define, field

from cormorant.clients.files import Download
from cormorant.rules.ports import ignore
from cormorant.rules.settings.settings import JobSettings
from cormorant.rules.settings.watch import ArtistOptions, ProfileSettings, TargetSettings, WatchlistSettings
from cormorant.rules.watch.artists import Artist
from cormorant.rules.watch.releases import CatalogueArtist
from cormorant.scripted import ScriptedCatalogue, ScriptedTarget
from cormorant.testing import (
    Recorder,
    ScriptedSource,
    SimulatedClock,
    in_line,
    memory_gateway,
    named_sources,
    scripted,
    settings,
)
from storage.database import Database, Mode, StorageOptions
from storage.search.sources import SourceRecord
from supervisors import Service, open_service
from tests.environments import environment_of


@define
class WatchPlace:
    """One database, its catalogue, sources and targets; any number of services, one after the other."""

    gateway: Database
    catalogue: ScriptedCatalogue = field(factory=ScriptedCatalogue)
    sources: dict[str, ScriptedSource] = field(factory=dict)
    targets: dict[str, ScriptedTarget] = field(factory=dict)
    clock: SimulatedClock = field(factory=SimulatedClock)
    events: Recorder = field(factory=Recorder)
    fetched: list[str] = field(factory=list)
    not_torrents: dict[str, Exception] = field(factory=dict)
    chance: random.Random = field(factory=lambda: random.Random(1))
    """Of all services together: two that draw the same numbers would give two jobs the same name."""

    async def fetch(self, _record: SourceRecord, link: str) -> Download:
        """What a link leads to: a torrent, unless it is to be something else."""
        await trio.lowlevel.checkpoint()
        self.fetched.append(link)
        if link in self.not_torrents:
            raise self.not_torrents[link]
        return Download(kind="torrent", body=b"d4:infod4:name1:aee", infohash=f"{abs(hash(link)):040x}"[:40])

    def service(
        self,
        *,
        mode: str = "live",
        targets: Mapping[str, TargetSettings] | None = None,
        profiles: Mapping[str, ProfileSettings] | None = None,
        **options: Any,
    ) -> Service:
        """A service; `options` are those of the watchlist."""
        names = tuple(self.targets)
        usual = {name: TargetSettings(url="http://target.test") for name in names}
        return open_service(
            settings(
                mode=mode,
                sources={
                    name: attrs.evolve(said, kind="slskd" if name.startswith("slskd") else "torznab")
                    for name, said in named_sources(*self.sources, spacing_s=0.0, pace_s=0.0).items()
                },
                jobs=JobSettings(poll_s=300.0, heartbeat_s=60.0, sweep_s=3600.0),
                watchlist=WatchlistSettings(**{"hand_to": names} | options),
                profiles=profiles or {},
                targets=usual if targets is None else targets,
            ),
            environment=environment_of(
                clock=self.clock,
                chance=self.chance,
                offload=in_line,
                database=self.gateway,
                listeners=[self.events],
                search=scripted(self.sources),
                download=self.fetch,
                catalogue=self.catalogue,
                targets=self.targets,
            ),
        )


@contextmanager
def watch_place(*targets: str) -> Iterator[WatchPlace]:
    with memory_gateway() as gateway:
        yield WatchPlace(gateway, targets={name: ScriptedTarget() for name in targets})


@contextmanager
def file_gateway(file: Path) -> Iterator[Database]:
    """A database in a file, without threads; another on the same file is another process."""
    options = StorageOptions(url=f"sqlite:///{file}")
    database = Database(options, mode=Mode.INLINE, emit=ignore, chance=random.Random(0))
    try:
        yield database
    finally:
        database.dispose()


async def watch(service: Service, *ids: str, **options: Any) -> list[Artist]:
    """Watch artists that are not watched yet, each called as its id in capitals."""
    found = [CatalogueArtist(id=each, name=each.upper()) for each in ids]
    added = await service.artists.add_new(found, ArtistOptions(**options))
    return [artist for artist in added if artist is not None]
