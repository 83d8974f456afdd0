"""What the commands of watches, wants, downloads and targets do."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, date, datetime
from typing import Any

import attrs
import click
from attrs import frozen

from actors.environment import Environment
from cormorant.cli.actions.job_text import as_text
from cormorant.cli.actions.watch_text import WatchText
from cormorant.cli.console.command_line import (
    EXIT_FAILED,
    EXIT_OK,
    CommandFailed,
    CommandInterrupted,
    UsageRefused,
    display_path,
)
from cormorant.cli.console.database_session import with_database
from cormorant.cli.console.preflight import load_or_refuse
from cormorant.rules.errors import CommitUnknown, CormorantError
from cormorant.rules.search.outcomes import SearchError, SourceError, SourceRefused
from cormorant.rules.search.requests import SearchRequest
from cormorant.rules.secrets import redact_secrets
from cormorant.rules.settings.settings import Settings
from cormorant.rules.settings.watch import SavedSettings
from cormorant.rules.units import format_duration, zone_of
from cormorant.rules.watch.artists import Artist, Start, artist_id_in
from cormorant.rules.watch.handovers import TargetError, UnknownTarget
from cormorant.rules.watch.releases import CatalogueArtist as FoundArtist
from cormorant.rules.watch.wants import Want, WantError, WantState
from cormorant.rules.watch.watches import FirstCheck
from cormorant.services.event_bus import EventBus
from cormorant.services.watch.views import WantViews, artist_out, saved_out
from cormorant.services.watch.watches import Watches, WatchOptions
from storage.database import Database, SystemClock
from storage.search import sources
from storage.search.sources import SourceRecord
from storage.watch.artists import ArtistExists, UnknownArtist
from storage.watch.handovers import UnknownDownload
from storage.watch.saved_searches import SavedSearchConfigured, SavedSearchExists, UnknownSavedSearch
from supervisors.assembly import ServiceAssembly, complete
from supervisors.search_assembly import SearchAssembly, configured_sources

__all__ = ["WatchActions", "assembly_of", "run_watch_action"]

WATCHED_FROM = 10
"""A file of so many artists takes a while: a bar shows how far it is."""

_NOT_DONE = (
    UnknownArtist,
    ArtistExists,
    UnknownSavedSearch,
    SavedSearchExists,
    SavedSearchConfigured,
    WantError,
    UnknownDownload,
    UnknownTarget,
    TargetError,
    SourceError,
    SearchError,
)
StartOn = tuple[Start, date | None]


@frozen(kw_only=True)
class WatchActions:
    """Where the commands meet the database."""

    settings: Settings
    config: str
    watches: Watches
    search: SearchAssembly
    """Started only to look artists up."""
    records: Sequence[SourceRecord]
    as_json: bool

    async def add_artist(  # noqa: PLR0913 - as the command
        self,
        artist: str,
        artist_id: str,
        name: str,
        *,
        start: StartOn,
        every_s: float | None,
        search: tuple[str, ...],
        choose: str,
        hand_to: tuple[str, ...],
    ) -> int:
        """Watch an artist."""
        order = WatchOptions(every_s=every_s, search=search, choose=choose, hand_to=hand_to)
        await self.watches.check_order(order)
        if artist_id:
            found = FoundArtist(id=artist_id, name=name or artist)
        else:
            looked_up = await self._look_up(artist)
            found = FoundArtist(id=looked_up.id, name=name or looked_up.name)
        [added] = await self.watches.watch_artists([found], order, start=start[0], start_on=start[1])
        if added is None:
            raise ArtistExists(found.name)
        told = f"{added.name} is watched{_since(added)}; a running service looks {self._soon()}"
        return self._tell({"added": attrs.asdict(artist_out(added))}, [told, *self._hints(hand_to)])

    async def import_artists(
        self,
        wanted: Sequence[str],
        *,
        start: StartOn,
        every_s: float | None,
        search: tuple[str, ...],
        choose: str,
        hand_to: tuple[str, ...],
    ) -> int:
        """Watch all artists of a file, after all were looked up."""
        order = WatchOptions(every_s=every_s, search=search, choose=choose, hand_to=hand_to)
        await self.watches.check_order(order)
        artists = await self.watches.artists()
        there = {each.artist_id for each in artists} | {each.name.casefold() for each in artists}
        known = [each for each in wanted if (artist_id_in(each) or each.casefold()) in there]
        found, unknown = await self._look_all_up([each for each in wanted if each not in known])
        distinct = list({each.id: each for each in found}.values())
        done = await self.watches.watch_artists(distinct, order, start=start[0], start_on=start[1])
        added = [each for each in done if each is not None]
        known += [each.name for each, artist in zip(distinct, done, strict=True) if artist is None]
        facts = {"added": [attrs.asdict(artist_out(each)) for each in added], "known": known, "not_found": unknown}
        told = [f"{len(added)} added, {len(known)} known already, {len(unknown)} not found"]
        self._tell(facts, [*told, *(f"  not found: {each}" for each in unknown), *self._hints(hand_to)])
        return EXIT_FAILED if unknown else EXIT_OK

    async def _look_up(self, wanted: str) -> FoundArtist:
        self._check_catalogue()
        async with self.search.supervisor():
            found = await self.watches.find_artist(wanted)
        return found  # noqa: RET504 - mypy cannot know that a supervisor keeps no error to itself

    async def _look_all_up(self, wanted: Sequence[str]) -> tuple[list[FoundArtist], list[str]]:
        """Those that were found, and those that were not. Raises `CommandFailed` when it breaks off."""
        found: list[FoundArtist] = []
        unknown: list[str] = []
        if not wanted:
            return found, unknown
        self._check_catalogue()
        is_watched = len(wanted) >= WATCHED_FROM and sys.stderr.isatty()
        async with self.search.supervisor():
            with click.progressbar(wanted, label="look up", file=sys.stderr, hidden=not is_watched) as each_wanted:
                for each in each_wanted:
                    try:
                        found.append(await self.watches.find_artist(each))
                    except SourceRefused:
                        unknown.append(each)
                    except (SourceError, SearchError) as error:
                        done = f"after {len(found) + len(unknown)} of {len(wanted)}"
                        raise CommandFailed(self._hidden(f"nobody was added: {error} ({done})")) from None
        return found, unknown

    def _check_catalogue(self) -> None:
        name = self.settings.watchlist.source
        if not any(each.name == name and each.kind == "spotify" for each in self.records):
            remedy = f'write [sources.{name}] with kind = "spotify", id and key in {display_path(self.config)}'
            raise UsageRefused(f"no source knows artists: {remedy}, or give --id and --name")

    async def list_artists(self) -> int:
        """Everybody on the watchlist."""
        found = [artist_out(each) for each in await self.watches.artists()]
        return self._tell({"artists": list(map(attrs.asdict, found))}, self._words().artists(found))

    async def remove_artist(self, wanted: str) -> int:
        """Watch an artist no more."""
        artist = await self.watches.unwatch_artist(wanted)
        told = f"{artist.name} is no longer watched; what was found stays"
        return self._tell({"removed": attrs.asdict(artist_out(artist))}, [told])

    async def check_artist(self, wanted: str) -> int:
        """Look at an artist soon."""
        artist = await self.watches.check_artist(wanted)
        told = f"{artist.name} is due; a running service looks {self._soon()}"
        if artist.is_paused:
            told = f"{artist.name} is paused, and is looked at after cormorant watchlist resume {artist.id}"
        return self._tell({"artist": attrs.asdict(artist_out(artist))}, [told])

    async def pause_artist(self, wanted: str, *, is_paused: bool) -> int:
        """Leave an artist alone, or go on."""
        artist = await self.watches.pause_artist(wanted, is_paused=is_paused)
        told = f"{artist.name} goes on, and is looked at when it is due"
        if is_paused:
            told = f"{artist.name} is left alone until cormorant watchlist resume {artist.id}"
        return self._tell({"artist": attrs.asdict(artist_out(artist))}, [told])

    async def add_search(  # noqa: PLR0913 - as the command
        self,
        name: str,
        words: str,
        categories: Sequence[int],
        *,
        takes_all: bool,
        every_s: float | None,
        search: tuple[str, ...],
        choose: str,
        hand_to: tuple[str, ...],
    ) -> int:
        """Repeat a search."""
        saved = await self.watches.save_search(
            name,
            SearchRequest(query=words, categories=categories),
            every_s=SavedSettings().every_s if every_s is None else every_s,
            sources=search,
            profile=choose,
            targets=hand_to,
            first_check=FirstCheck.TAKE if takes_all else FirstCheck.SKIP,
        )
        first = "all that fits is wanted" if takes_all else "what is there already at the first check is left out"
        told = [f"{name} is repeated every {format_duration(saved.every_s)}; {first}"]
        if not hand_to:
            told.append("what fits is only shown: --hand-to names nobody to hand it to")
        return self._tell({"added": attrs.asdict(saved_out(saved))}, told)

    async def list_searches(self) -> int:
        """All saved searches."""
        found = [saved_out(each) for each in await self.watches.saved()]
        return self._tell({"saved": list(map(attrs.asdict, found))}, self._words().searches(found))

    async def remove_search(self, name: str) -> int:
        """Repeat a search no more."""
        await self.watches.remove_search(name)
        return self._tell({"removed": name}, [f"{name} is no longer repeated; what was found stays"])

    async def pause_search(self, name: str, *, is_paused: bool) -> int:
        """Leave a search alone, or go on."""
        await self.watches.pause_search(name, is_paused=is_paused)
        told = f"{name} is left alone until cormorant saved resume {name}" if is_paused else f"{name} goes on"
        return self._tell({"saved": name, "paused": is_paused}, [told])

    async def check_search(self, name: str) -> int:
        """Repeat a search soon."""
        await self.watches.check_search(name)
        told = f"{name} is due; a running service repeats it soon"
        if any(each.name == name and each.is_paused for each in await self.watches.saved()):
            told = f"{name} is paused, and is repeated after cormorant saved resume {name}"
        return self._tell({"saved": name, "due": True}, [told])

    async def list_wants(self, state: WantState | None, before: int | None, limit: int) -> int:
        """The newest wants."""
        found = await self.watches.wants(state=state, before_id=before, limit=limit)
        following = found[-1].id if len(found) == limit else None
        shown = [self._shown.want(each) for each in found]
        facts = {"wants": list(map(attrs.asdict, shown)), "before": following}
        return self._tell(facts, self._words().wants(shown, before=following))

    async def show_want(self, want_id: int) -> int:
        """One want with its candidates and downloads."""
        shown = self._shown.shown(await self.watches.want(want_id))
        return self._tell(attrs.asdict(shown), self._words().want(shown))

    async def retry_want(self, want_id: int) -> int:
        """Search again."""
        return self._tell_want(await self.watches.retry(want_id), "is searched again by a running service")

    async def ignore_want(self, want_id: int) -> int:
        """Want something no more."""
        want = await self.watches.ignore(want_id)
        return self._tell_want(want, f"is ignored until cormorant wants retry {want_id}")

    async def hand_over(self, want_id: int, candidate: str | None) -> int:
        """Hand a candidate over."""
        want = await self.watches.hand_over(want_id, ref=candidate)
        return self._tell_want(want, "is handed over by a running service")

    async def list_downloads(self, before: int | None, limit: int) -> int:
        """The newest downloads."""
        found = await self.watches.downloads(before_id=before, limit=limit)
        following = found[-1].id if len(found) == limit else None
        shown = [self._shown.download(each) for each in found]
        facts = {"downloads": list(map(attrs.asdict, shown)), "before": following}
        return self._tell(facts, self._words().downloads(shown, before=following))

    async def show_download(self, number: int) -> int:
        """One download."""
        shown = self._shown.download(await self.watches.download(number))
        return self._tell(attrs.asdict(shown), self._words().download(shown))

    async def settle(self, number: int, *, has_arrived: bool) -> int:
        """Decide about what is held."""
        want = await self.watches.settle(number, has_arrived=has_arrived)
        return self._tell_want(want, "is done" if has_arrived else "is sent again by a running service")

    async def list_targets(self) -> int:
        """All targets."""
        found = self.watches.targets()
        return self._tell({"targets": list(map(attrs.asdict, found))}, self._words().targets(found))

    async def test_target(self, name: str) -> int:
        """Try a target out."""
        said = self._shown.redact(await self.watches.test_target(name))
        return self._tell({"target": name, "said": said}, [f"{name} answers: {said}"])

    @property
    def _shown(self) -> WantViews:
        return WantViews.of(self.records)

    def _words(self) -> WatchText:
        zone = zone_of(self.settings.time_zone)
        return WatchText(now=datetime.now(UTC), zone=zone, is_live=self.settings.mode == "live")

    def _hidden(self, text: str) -> str:
        return self._shown.redact(" ".join(text.split()))

    def _soon(self) -> str:
        return f"within {format_duration(self.settings.watchlist.interval_s)}"

    def _hints(self, hand_to: tuple[str, ...]) -> Iterable[str]:
        if not hand_to and not self.settings.watchlist.hand_to:
            yield "what fits is only shown: set watchlist.hand_to, or give --hand-to"
        elif self.settings.mode != "live":
            yield 'observe mode: what fits is shown and not handed over; mode = "live" changes that'

    def _tell_want(self, want: Want, what: str) -> int:
        shown = self._shown.want(want)
        return self._tell({"want": attrs.asdict(shown)}, [f"want {want.id}, {shown.title}, {what}"])

    def _tell(self, facts: dict[str, Any], lines: Iterable[str]) -> int:
        click.echo(as_text(facts) if self.as_json else "\n".join(lines))
        return EXIT_OK


def run_watch_action(
    config: str, action: Callable[[WatchActions], Awaitable[int]], *, as_json: bool, may_make: bool = False
) -> int:
    """Run a command at the database of a settings file. Returns its exit code."""
    settings = load_or_refuse(config)
    ours = configured_sources(settings)

    async def run(database: Database) -> int:
        assembly = assembly_of(settings, database)
        others = await database.read(sources.usable_sources, ours)
        names = {each.name for each in ours}
        records = [*ours, *(each for each in others if each.name not in names)]
        actions = WatchActions(
            settings=settings,
            config=config,
            watches=assembly.watching.watches,
            search=assembly.search,
            records=records,
            as_json=as_json,
        )
        return await action(actions)

    def told(error: CormorantError) -> str:
        return redact_secrets(str(error), [secret for each in ours for secret in (each.key, each.proxy)])

    try:
        return with_database(settings, run, may_make=may_make)
    except _NOT_DONE as error:
        raise CommandFailed(told(error)) from None
    except CommitUnknown as unknown:
        raise CommandFailed(f"{unknown}; look whether it happened before you repeat it") from None
    except CormorantError as error:
        raise UsageRefused(told(error)) from None
    except KeyboardInterrupt:
        raise CommandInterrupted("interrupted; nothing was changed") from None


def assembly_of(settings: Settings, database: Database) -> ServiceAssembly:
    """What commands beside a service work with; nothing of it is started."""
    return ServiceAssembly(complete(Environment(settings, database=database), EventBus(SystemClock())))


def _since(artist: Artist) -> str:
    return "" if artist.start_on is None else f" from {artist.start_on} on"
