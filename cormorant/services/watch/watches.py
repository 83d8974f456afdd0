"""The verbs of all kinds of watches, and what artists and saved searches have besides."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar

from attrs import define, evolve, field

from actors.actor import Address, Recheck
from actors.environment import Environment
from actors.watch.watch_jobs import saved_search_jobs
from actors.watch.watchlist_ticker import TickNow
from cormorant.rules.schedules import HostPacing, Schedule, ScheduledWatch
from cormorant.rules.search.requests import BadRequest
from cormorant.rules.settings.fields import name_problem
from cormorant.rules.settings.watch import (
    ArtistOptions,
    SavedSettings,
    artist_of,
    checked,
    name_conflicts,
    refuse,
    saved_conflicts,
    saved_search_of,
    watch_conflicts,
)
from cormorant.rules.watch.artists import LINE_LENGTH_MAX, Artist, artist_id_in
from cormorant.rules.watch.releases import CatalogueArtist as FoundArtist
from cormorant.rules.watch.watches import TAKEN_OUT, SavedSearch, Watch
from cormorant.services.watch.views import ArtistOut, SavedOut, artist_out, saved_out
from storage.jobs.jobs import NewJob
from storage.search import sources
from storage.search.sources import SourceRecord
from storage.watch import watches
from storage.watch.artists import ARTIST
from storage.watch.saved_searches import SAVED
from storage.watch.watches import WatchKind

FIND_WAIT_S = 90.0
"""How long looking an artist up may wait for its turn."""

W = TypeVar("W", bound=Watch)


@define(eq=False, kw_only=True)
class WatchService(Generic[W]):
    """The verbs of one kind of watch. `wanted` is the name of a watch, or its number where the kind shows numbers."""

    environment: Environment = field(kw_only=False)
    kind: ClassVar[WatchKind[Any]]

    @property
    def configured(self) -> Mapping[str, Any]:
        """The options of the watches of the settings file, by name."""
        return {}

    def make(self, name: str, options: Any, *, now: datetime) -> W:
        """The watch that options mean."""
        raise NotImplementedError

    def from_settings(self) -> list[W]:
        """The watches of the settings file."""
        now = self.environment.now()
        return [self.make(name, options, now=now) for name, options in sorted(self.configured.items())]

    async def view(self, watch: W) -> Any:
        """One as it is shown."""
        raise NotImplementedError

    async def page(self, *, after_id: int = 0, limit: int = 100) -> list[W]:
        """Some of them, in the order they came."""
        return await self.environment.database.read(watches.page, self.kind, after_id=after_id, limit=limit)

    async def all(self) -> list[W]:
        """All of them, by name."""
        return await self.environment.database.read(watches.all_of, self.kind)

    async def find(self, wanted: str) -> W:
        """One of them, or `NotFound`."""
        found: W = await self.environment.database.read(watches.find, self.kind, wanted)
        return found

    async def remove(self, wanted: str) -> W:
        """Watch it no more. Raises `NotFound`, or `SetInFile` for a watch of the settings file."""
        gone: W = await self.environment.database.run(watches.remove, self.kind, wanted, configured=self.configured)
        return gone

    async def pause(self, wanted: str) -> W:
        """Leave it alone until it is resumed, also after a restart. Raises `NotFound`, or `WatchTakenOut`."""
        return await self._set_paused(wanted, is_paused=True)

    async def resume(self, wanted: str) -> W:
        """End a pause. Raises `NotFound`, or `WatchTakenOut`."""
        return await self._set_paused(wanted, is_paused=False)

    async def _set_paused(self, wanted: str, *, is_paused: bool) -> W:
        changed: W = await self.environment.database.run(
            watches.set_paused, self.kind, wanted, is_paused=is_paused, now=self.environment.now()
        )
        return changed

    async def check(self, wanted: str) -> W:
        """Check it as soon as possible. Raises `NotFound`, or `WatchTakenOut`."""
        due: W = await self.environment.database.run(watches.make_due, self.kind, wanted, now=self.environment.now())
        return due

    async def check_by_jobs(self, wanted: str, make_jobs: Callable[[W], Sequence[NewJob]]) -> W:
        """As `check`, for a kind that is checked by jobs: also while it is paused."""
        checked: W = await self.environment.database.run(
            watches.check_now, self.kind, wanted, make_jobs=make_jobs, now=self.environment.now()
        )
        return checked

    async def planned(self, *, until: datetime, most: int) -> list[ScheduledWatch]:  # noqa: ARG002 - for kinds with many
        """When they are checked by themselves, as far as it is known now."""
        now = self.environment.now()
        return [self.plan(each, now) for each in await self.all() if not each.is_paused and each.origin != TAKEN_OUT]

    def plan(self, watch: W, now: datetime) -> ScheduledWatch:
        """When one is checked by itself."""
        return ScheduledWatch(
            kind=self.kind.what,
            name=watch.name,
            first=max(now, watch.next_attempt_at),
            schedule=self.schedule_of(watch),
        )

    def schedule_of(self, watch: Any) -> Schedule:
        """How often one is checked."""
        return Schedule(every_s=watch.every_s)

    def refuse_name(self, name: str) -> None:
        """Raise `BadRequest` unless a watch can have this name."""
        problem = name_problem(name)
        if problem:
            raise BadRequest("name", problem)
        if name in self.configured:
            raise BadRequest(
                "name",
                f"the settings file has [{self.kind.section}.{name}] already; change it there, or choose another",
            )

    def refuse_sources(self, named: Sequence[str], stored: Sequence[SourceRecord]) -> None:
        """Raise `BadRequest` unless all these sources can be searched."""
        configured = {name: said.kind for name, said in self.environment.settings.sources.items() if said.enabled}
        kinds: Mapping[str, str] = {each.name: each.kind for each in stored} | configured
        refuse(name_conflicts("search", named, kinds, what="source", table="sources"))
        for name in named:
            if kinds[name] == "spotify":
                raise BadRequest("search", f"{name} knows artists, and is not searched; name others")


@define(eq=False, kw_only=True)
class Artists(WatchService[Artist]):
    """The artists of a service. One is named by its number, its id at the source or its name."""

    targets: Collection[str]
    ticker: Address[TickNow | Recheck]
    kind: ClassVar[WatchKind[Any]] = ARTIST

    async def check(self, wanted: str) -> Artist:
        """Look at an artist at once, whatever the interval of the ticks. Raises `NotFound`."""
        due = await super().check(wanted)
        self.ticker.tell_once(TickNow())
        return due

    async def view(self, watch: Artist) -> ArtistOut:
        """An artist as it is shown."""
        return artist_out(watch)

    async def look_up(self, wanted: str) -> FoundArtist:
        """Who is meant by a name, an id or a link; asked at the source that knows artists, or `SourceRefused`."""
        if not wanted.strip() or len(wanted) > LINE_LENGTH_MAX or not wanted.isprintable():
            raise BadRequest("artist", f"give a name, an id or a link of at most {LINE_LENGTH_MAX} characters")
        options = self.environment.settings.watchlist
        return await self.environment.clients.catalogue.find_artist(
            options.source,
            artist_id_in(wanted) or wanted.strip(),
            timeout_s=options.spotify_timeout_s,
            max_wait_s=FIND_WAIT_S,
        )

    async def add(self, found: FoundArtist, options: ArtistOptions = ArtistOptions()) -> Artist:  # noqa: B008 - frozen, so that sharing it is harmless
        """Watch an artist. What comes out from `options.start` on is wanted. Raises `BadRequest` or `AlreadyExists`."""
        [artist] = await self.add_new([found], options)
        if artist is None:
            raise ARTIST.already_exists(found.name)
        return artist

    async def add_new(self, found: Sequence[FoundArtist], options: ArtistOptions) -> list[Artist | None]:
        """Watch artists, all or none; None for each that is watched already."""
        options, source, now = checked(options), self.environment.settings.watchlist.source, self.environment.now()
        made = [artist_of(_checked(each), options, source=source, now=now) for each in found]
        check = partial(self._check, options)
        added: list[Artist | None] = await self.environment.database.run(
            watches.add_checked, self.kind, made, check=check
        )
        return added

    def schedule_of(self, watch: Artist) -> Schedule:
        """How often an artist is looked at."""
        return Schedule(every_s=watch.every_s or self.environment.settings.watchlist.every_s)

    def plan(self, watch: Artist, now: datetime) -> ScheduledWatch:
        """A tick takes only so many in hand; the others wait for the next."""
        options = self.environment.settings.watchlist
        turns = HostPacing(name="watchlist", room=options.max_per_tick, apart_s=options.interval_s)
        planned = super().plan(watch, now)
        return evolve(planned, first=max(planned.first, watch.retry_block_until or now), turns=turns)

    async def check_options(self, options: ArtistOptions) -> None:
        """Raise `BadRequest` unless an artist can be watched like this: before one is looked up."""
        self._check(options, await self.environment.database.read(sources.all_sources))

    def _check(self, options: ArtistOptions, stored: Sequence[SourceRecord]) -> None:
        refuse(watch_conflicts("", options, self.environment.settings.profiles, self.targets))
        self.refuse_sources(options.search, stored)


def _checked(found: FoundArtist) -> FoundArtist:
    for part, text in (("id", found.id), ("name", found.name)):
        if not text.strip() or len(text) > LINE_LENGTH_MAX or not text.isprintable():
            raise BadRequest(part, f"it is empty, or no single line of at most {LINE_LENGTH_MAX} characters")
    return FoundArtist(id=found.id.strip(), name=found.name.strip())


@define(eq=False, kw_only=True)
class SavedSearches(WatchService[SavedSearch]):
    """The saved searches of a service."""

    targets: Collection[str]
    kind: ClassVar[WatchKind[Any]] = SAVED

    @property
    def configured(self) -> Mapping[str, SavedSettings]:
        """[saved]."""
        return self.environment.settings.saved

    def make(self, name: str, options: SavedSettings, *, now: datetime) -> SavedSearch:
        """The saved search that options mean."""
        return saved_search_of(name, options, now=now)

    async def view(self, watch: SavedSearch) -> SavedOut:
        """A saved search as it is shown."""
        return saved_out(watch)

    async def add(self, name: str, options: SavedSettings) -> SavedSearch:
        """Repeat a search from now on; what is new in it is wanted. Raises `BadRequest` or `AlreadyExists`."""
        self.refuse_name(name)
        options = checked(options)
        refuse(watch_conflicts("", options, self.environment.settings.profiles, self.targets))
        refuse(saved_conflicts("", options))
        check = partial(self.refuse_sources, options.search)
        saved = self.make(name, options, now=self.environment.now())
        made: list[SavedSearch | None] = await self.environment.database.run(
            watches.add_checked, self.kind, [saved], check=check
        )
        if made[0] is None:
            raise SAVED.already_exists(name)
        return made[0]

    async def check(self, wanted: str) -> SavedSearch:
        """Repeat a saved search now, also while it is paused."""
        return await self.check_by_jobs(wanted, partial(saved_search_jobs, self.environment, by_hand=True))
