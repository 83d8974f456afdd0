"""Operations on artists, saved searches, wants, downloads and targets."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import date
from functools import partial
from typing import Final

from attrs import define, field, frozen

from actors.environment import Environment
from actors.jobs.working_set import JobWakeUp
from actors.watch.handover_tracker import ConfiguredTarget
from actors.watch.watch_jobs import handover_job_by_hand, saved_search_job, search_job
from cormorant.rules.search.requests import BadRequest, SearchRequest
from cormorant.rules.settings.fields import name_problem
from cormorant.rules.settings.keys import suggestion
from cormorant.rules.settings.watch import DEFAULT_PROFILE
from cormorant.rules.units import format_duration
from cormorant.rules.watch.artists import LINE_LENGTH_MAX, Artist, Start, artist_id_in
from cormorant.rules.watch.handovers import Handover, TargetView, no_target
from cormorant.rules.watch.releases import CatalogueArtist as FoundArtist
from cormorant.rules.watch.wants import Want, WantState
from cormorant.rules.watch.watches import FirstCheck, SavedSearch, WatchOptions
from storage.search import sources
from storage.search.sources import SourceRecord
from storage.watch import artists as watchlist
from storage.watch import choice, saved_searches, wants, watches
from storage.watch import handovers as downloads
from storage.watch.artists import ARTIST
from storage.watch.choice import CandidateChoice, WatchTargets
from storage.watch.saved_searches import SAVED
from storage.watch.wants import WantView

FIND_WAIT_S = 90.0
"""How long looking an artist up may wait for its turn."""


@define(eq=False, kw_only=True)
class Watches:
    """The watches of a service."""

    environment: Environment = field(kw_only=False)
    chooser: CandidateChoice
    places: Mapping[str, ConfiguredTarget]
    orders: WatchValidator
    producer: JobWakeUp

    async def find_artist(self, wanted: str) -> FoundArtist:
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

    async def watch_artist(  # noqa: PLR0913 - what can be said of an artist, all but two with a default
        self,
        artist_id: str,
        *,
        name: str,
        source: str | None = None,
        start: Start = Start.NOW,
        start_on: date | None = None,
        every_s: float | None = None,
        sources: Sequence[str] = (),
        profile: str = "",
        targets: Sequence[str] = (),
    ) -> Artist | None:
        """Watch an artist; None when it is watched already. What comes out from `start` on is wanted."""
        order = WatchOptions(every_s=every_s, search=tuple(sources), choose=profile, hand_to=tuple(targets))
        found = FoundArtist(id=artist_id, name=name)
        [artist] = await self.watch_artists([found], order, source=source, start=start, start_on=start_on)
        return artist

    async def watch_artists(
        self,
        found: Sequence[FoundArtist],
        order: WatchOptions,
        *,
        source: str | None = None,
        start: Start = Start.NOW,
        start_on: date | None = None,
    ) -> list[Artist | None]:
        """Watch artists, all or none; None for each that is watched already."""
        now = self.environment.now()
        since = {Start.NOW: now.date(), Start.ALL: None, Start.DATE: start_on}[start]
        made = [
            Artist(
                source=source or self.environment.settings.watchlist.source,
                artist_id=_checked("id", each.id),
                name=_checked("name", each.name),
                start=start,
                start_on=since,
                every_s=order.every_s,
                sources=order.search,
                profile=order.choose,
                targets=order.hand_to,
                next_attempt_at=now,
                added_at=now,
            )
            for each in found
        ]
        check = partial(self._check, order, every_s_max=ARTIST_EVERY_S_MAX)
        return await self.environment.database.run(watchlist.add_all, made, check=check)

    async def check_order(self, order: WatchOptions) -> None:
        """Raise `BadRequest` unless an artist can be watched like this: before anybody is looked up."""
        self._check(order, await self.environment.database.read(sources.all_sources), every_s_max=ARTIST_EVERY_S_MAX)

    def _check(self, order: WatchOptions, stored: Sequence[SourceRecord], *, every_s_max: float) -> None:
        configured = {name: said.kind for name, said in self.environment.settings.sources.items() if said.enabled}
        kinds = {each.name: each.kind for each in stored} | configured
        self.orders.check(order, kinds, every_s_max=every_s_max)

    async def unwatch_artist(self, wanted: str) -> Artist:
        """Watch an artist no more; by number, id or name."""
        return await self.environment.database.run(watchlist.unwatch, wanted)

    async def artists(self) -> list[Artist]:
        """Everybody on the watchlist."""
        return await self.environment.database.read(watches.page, ARTIST)

    async def check_artist(self, wanted: str) -> Artist:
        """Look at an artist at the next tick."""
        return await self.environment.database.run(watchlist.check_soon, wanted, now=self.environment.now())

    async def pause_artist(self, wanted: str, *, is_paused: bool = True) -> Artist:
        """Leave an artist alone, or go on. What was found already goes its way."""
        return await self.environment.database.run(watchlist.pause, wanted, is_paused=is_paused)

    async def save_search(  # noqa: PLR0913 - what can be said of a search, all but three with a default
        self,
        name: str,
        request: SearchRequest,
        *,
        every_s: float,
        sources: Sequence[str] = (),
        profile: str = "",
        targets: Sequence[str] = (),
        first_check: FirstCheck = FirstCheck.SKIP,
    ) -> SavedSearch:
        """Repeat a search from now on; what is new in it is wanted."""
        now = self.environment.now()
        saved = SavedSearch(
            name=name,
            request=request,
            every_s=every_s,
            sources=tuple(sources),
            profile=profile,
            targets=tuple(targets),
            first_check=first_check,
            next_attempt_at=now,
            added_at=now,
        )
        order = WatchOptions(every_s=saved.every_s, search=saved.sources, choose=saved.profile, hand_to=saved.targets)
        self.orders.check_search(saved.name, saved.request)
        check = partial(self._check, order, every_s_max=SEARCH_EVERY_S_MAX)
        return await self.environment.database.run(saved_searches.add_checked, saved, check=check)

    async def remove_search(self, name: str) -> None:
        """Repeat a search no more. One of the settings file stays until it is taken out there."""
        await self.environment.database.run(watches.remove_added, SAVED, name)

    async def saved(self) -> list[SavedSearch]:
        """All saved searches, by name."""
        return await self.environment.database.read(watches.all_of, SAVED)

    async def pause_search(self, name: str, *, is_paused: bool = True) -> None:
        """Leave a saved search alone, or go on."""
        await self.environment.database.run(watches.set_paused, SAVED, name, is_paused=is_paused)

    async def check_search(self, name: str) -> None:
        """Repeat a saved search now, also while it is paused."""
        await self.environment.database.run(
            saved_searches.check_now,
            name,
            make_job=partial(saved_search_job, self.environment, by_hand=True),
            now=self.environment.now(),
        )
        self.producer.set()

    async def wants(
        self,
        *,
        state: WantState | None = None,
        has_ignored: bool = True,
        before_id: int | None = None,
        limit: int = 100,
    ) -> list[Want]:
        """The latest wants, newest first."""
        return await self.environment.database.read(
            wants.recent, state=state, has_ignored=has_ignored, before_id=before_id, limit=limit
        )

    async def want(self, want_id: int) -> WantView:
        """One want with its candidates and their reasons, or `NotFound`."""
        return await self.environment.database.read(choice.view, want_id)

    async def counts(self) -> dict[WantState, int]:
        """How many wants are in each state."""
        return await self.environment.database.read(wants.counts)

    async def retry(self, want_id: int) -> Want:
        """Search for something again that was given up or ignored, or has not been found yet."""
        want = await self.environment.database.run(
            choice.search_again,
            want_id,
            targets=self._targets,
            make_job=partial(search_job, self.environment),
            now=self.environment.now(),
        )
        self.producer.set()
        return want

    async def ignore(self, want_id: int) -> Want:
        """Want something no more."""
        return await self.environment.database.run(
            wants.change, want_id, WantState.IGNORED, reason="by hand", now=self.environment.now()
        )

    async def hand_over(self, want_id: int, *, ref: str | None = None) -> Want:
        """Hand a chosen find over by hand, also in observe mode; or another of its candidates."""
        want = await self.environment.database.run(
            choice.hand_over,
            want_id,
            ref,
            chooser=self.chooser,
            targets=self._targets,
            make_job=partial(handover_job_by_hand, self.environment),
            now=self.environment.now(),
        )
        self.producer.set()
        return want

    async def downloads(self, *, before_id: int | None = None, limit: int = 100) -> list[Handover]:
        """What was handed over, newest first."""
        return await self.environment.database.read(downloads.recent, before_id=before_id, limit=limit)

    async def download(self, number: int) -> Handover:
        """One of them, or `NotFound`."""
        return await self.environment.database.read(downloads.find, number)

    def targets(self) -> list[TargetView]:
        """Those that finds can be handed to, by name."""
        said = self.environment.settings.targets
        return [
            TargetView(
                name=name,
                kind=said[name].kind if name in said else "given by the program",
                takes=tuple(sorted(kind.value for kind in place.target.takes)),
                can_be_asked=place.target.can_be_asked,
                in_doubt=place.in_doubt.value,
            )
            for name, place in sorted(self.places.items())
        ]

    async def test_target(self, name: str) -> str:
        """Try address and credentials of a target without giving it anything. Raises `TargetError`."""
        if name not in self.places:
            raise no_target(name, list(self.places))
        return await self.places[name].target.test()

    async def settle(self, number: int, *, has_arrived: bool) -> Want:
        """Decide about a handover that is held: it has arrived, or it is to be sent again."""
        want = await self.environment.database.run(
            choice.settle,
            number,
            has_arrived=has_arrived,
            make_job=partial(handover_job_by_hand, self.environment),
            now=self.environment.now(),
        )
        self.producer.set()
        return want

    @property
    def _targets(self) -> WatchTargets:
        usual = self.environment.settings.watchlist.hand_to
        return WatchTargets(configured=frozenset(self.orders.targets), usual=usual)


def _checked(part: str, text: str) -> str:
    if not text.strip() or len(text) > LINE_LENGTH_MAX or not text.isprintable():
        raise BadRequest(part, f"it is empty, or no single line of at most {LINE_LENGTH_MAX} characters")
    return text.strip()


EVERY_S_MIN: Final = 60.0
ARTIST_EVERY_S_MAX: Final = 30 * 86_400.0
SEARCH_EVERY_S_MAX: Final = 365 * 86_400.0
NAMES_MAX: Final = 100


@frozen(kw_only=True)
class WatchValidator:
    """Checks orders against the settings and the sources that are there."""

    environment: Environment = field(kw_only=False)
    targets: Collection[str]

    def check(self, order: WatchOptions, kinds: Mapping[str, str], *, every_s_max: float) -> None:
        """Raise `BadRequest` that names the part and the remedy."""
        every_s = order.every_s
        if every_s is not None and not EVERY_S_MIN <= every_s <= every_s_max:
            raise BadRequest(
                "every",
                f"it is out of range; allowed: {format_duration(EVERY_S_MIN)} to {format_duration(every_s_max)}",
            )
        if order.choose and order.choose not in {DEFAULT_PROFILE, *self.environment.settings.profiles}:
            near = suggestion(order.choose[:40], list(self.environment.settings.profiles))
            raise BadRequest("choose", f"there is no profile {order.choose[:40]!r}{near}; write [profiles.NAME]")
        _check_names("hand_to", order.hand_to, self.targets, what="target", table="targets")
        _check_names("search", order.search, kinds, what="source", table="sources")
        for name in order.search:
            if kinds[name] == "spotify":
                raise BadRequest("search", f"{name} knows artists, and is not searched; name others")

    def check_search(self, name: str, request: SearchRequest) -> None:
        """Raise `BadRequest` unless a search can be saved like this."""
        problem = name_problem(name)
        if problem:
            raise BadRequest("name", problem)
        if name in self.environment.settings.saved:
            raise BadRequest(
                "name", f"the settings file has [saved.{name}] already; change it there, or choose another"
            )
        if request.is_rss and not request.categories:
            raise BadRequest("query", "it asks for nothing; give words or categories")


def _check_names(part: str, given: Sequence[str], known: Collection[str], *, what: str, table: str) -> None:
    if len(given) > NAMES_MAX:
        raise BadRequest(part, f"{len(given)} are named; {NAMES_MAX} are allowed")
    for name in given:
        if name not in known:
            there = f"; there are {', '.join(sorted(known)[:NAMES_MAX])}" if known else f"; write [{table}.NAME] first"
            raise BadRequest(part, f"there is no {what} {name[:40]!r}{there}")
