"""May something be watched as it was asked for? What is named must be there, before anything is written."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Final

from attrs import frozen
from sqlalchemy import Connection

from cormorant.rules.search.requests import BadRequest, SearchRequest
from cormorant.rules.settings.fields import name_problem
from cormorant.rules.settings.keys import suggestion
from cormorant.rules.settings.settings import Settings
from cormorant.rules.settings.watch import DEFAULT_PROFILE
from cormorant.rules.units import format_duration
from storage.search import sources
from storage.watch import artists, feeds, watches
from storage.watch.feeds import UnknownSubscription
from storage.watch.watches import UnknownSavedSearch

EVERY_S_MIN: Final = 60.0
ARTIST_EVERY_S_MAX: Final = 30 * 86_400.0
SEARCH_EVERY_S_MAX: Final = 365 * 86_400.0
NAMES_MAX: Final = 100


@frozen(kw_only=True)
class WatchOptions:
    """What can be said of any watch."""

    every_s: float | None = None
    search: tuple[str, ...] = ()
    choose: str = ""
    hand_to: tuple[str, ...] = ()


@frozen(kw_only=True)
class WatchValidator:
    """Checks orders against the settings and the sources that are there."""

    settings: Settings
    targets: Collection[str]

    def check(self, connection: Connection, order: WatchOptions, *, every_s_max: float) -> None:
        """Raise `BadRequest` that names the part and the remedy."""
        every_s = order.every_s
        if every_s is not None and not EVERY_S_MIN <= every_s <= every_s_max:
            raise BadRequest(
                "every",
                f"it is out of range; allowed: {format_duration(EVERY_S_MIN)} to {format_duration(every_s_max)}",
            )
        if order.choose and order.choose not in {DEFAULT_PROFILE, *self.settings.profiles}:
            near = suggestion(order.choose[:40], list(self.settings.profiles))
            raise BadRequest("choose", f"there is no profile {order.choose[:40]!r}{near}; write [profiles.NAME]")
        _check_names("hand_to", order.hand_to, self.targets, what="target", table="targets")
        kinds = self._kinds(connection)
        _check_names("search", order.search, kinds, what="source", table="sources")
        for name in order.search:
            if kinds[name] == "spotify":
                raise BadRequest("search", f"{name} knows artists, and is not searched; name others")

    def check_search(self, name: str, request: SearchRequest) -> None:
        """Raise `BadRequest` unless a search can be saved like this."""
        problem = name_problem(name)
        if problem:
            raise BadRequest("name", problem)
        if name in self.settings.saved:
            raise BadRequest(
                "name", f"the settings file has [saved.{name}] already; change it there, or choose another"
            )
        if request.is_rss and not request.categories:
            raise BadRequest("query", "it asks for nothing; give words or categories")

    def targets_of(self, connection: Connection, watch: str) -> tuple[str, ...]:
        """Those that a watch, such as artist:12, hands to now, as far as they are configured."""
        kind, _, name = watch.partition(":")
        named: Sequence[str] = ()
        with suppress(UnknownSavedSearch, UnknownSubscription):
            if kind == "artist" and name.isdigit():
                artist = artists.by_id(connection, int(name))
                named = artist.targets if artist is not None else ()
            elif kind == "saved":
                named = watches.find(connection, name).targets
            elif kind == "feed":
                named = feeds.find(connection, name).targets
        there = tuple(each for each in named if each in self.targets)
        usual = self.settings.watchlist.hand_to if kind == "artist" else ()
        return there or tuple(each for each in usual if each in self.targets)

    def _kinds(self, connection: Connection) -> Mapping[str, str]:
        stored = {each.name: each.kind for each in sources.all_sources(connection)}
        return stored | {name: said.kind for name, said in self.settings.sources.items() if said.enabled}


def _check_names(part: str, given: Sequence[str], known: Collection[str], *, what: str, table: str) -> None:
    if len(given) > NAMES_MAX:
        raise BadRequest(part, f"{len(given)} are named; {NAMES_MAX} are allowed")
    for name in given:
        if name not in known:
            there = f"; there are {', '.join(sorted(known)[:NAMES_MAX])}" if known else f"; write [{table}.NAME] first"
            raise BadRequest(part, f"there is no {what} {name[:40]!r}{there}")
