"""PlaygroundRun: the playground around a running service, and the invented person who searches.

Loaded only when the playground is enabled.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

import trio
from attrs import frozen

from cormorant.cli.console.output import write
from cormorant.playground import open_playground
from cormorant.playground.catalogue import ARTISTS, FILMS, SHOWS
from cormorant.playground.feed_site import LOOKS_AFTER_S, playground_feeds
from cormorant.playground.price_site import PRICES
from cormorant.playground.releases import SOON, WATCHED
from cormorant.playground.world import KEY, playground_sites
from cormorant.rules.errors import CormorantError
from cormorant.rules.events import PlaygroundOpened, PlaygroundSearched
from cormorant.rules.ports import Chance
from cormorant.rules.search.priorities import Priority
from cormorant.rules.search.requests import SearchRequest
from cormorant.rules.settings.settings import Settings
from cormorant.rules.settings.sources import SEARCHED
from cormorant.rules.settings.watch import ArtistOptions
from cormorant.rules.watch.releases import CatalogueArtist
from supervisors import Service

__all__ = ["LEAVE_WITH", "PlaygroundRun"]

LEAVE_WITH: Final = "cormorant init"
CONSUMER: Final = "invented person"
_WORDS: Final = (*ARTISTS, *SHOWS, *FILMS)


class PlaygroundRun:
    """The playground of a service. Enter it before the service."""

    LOOK_S: Final = 10.0
    """The longest time for putting the artists on the watchlist."""

    def __init__(self, service: Service, *, looks_after_s: Sequence[float] = LOOKS_AFTER_S) -> None:
        self._service = service
        self._looks_after_s = looks_after_s
        self._playground = open_playground(*playground_sites(service.clock), listen=service.settings.playground.listen)

    async def __aenter__(self) -> Self:
        await self._playground.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._playground.__aexit__(kind, error, trace)

    async def live(self) -> None:
        """Say where one is, and let the invented person search until cancelled."""
        service = self._service
        service.emit(
            PlaygroundOpened(
                address=self._playground.address, sites=len(_sites(service.settings)), leave_with=LEAVE_WITH
            )
        )
        await trio.to_thread.run_sync(write, self._banner())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch)
            nursery.start_soon(self._check)
            nursery.start_soon(Person(service=service, chance=service.environment.chance).live)

    async def _watch(self) -> None:
        """Watch a few artists, and look again when something has come out: nobody wants to wait for a minute."""
        await self._look()
        await trio.sleep(SOON.total_seconds())
        await self._look()

    async def _look(self) -> None:
        artists = self._service.artists
        with trio.move_on_after(self.LOOK_S), suppress(CormorantError):  # what is wrong is told by the service itself
            for artist_id, name in WATCHED.items():
                [added] = await artists.add_new([CatalogueArtist(id=artist_id, name=name)], ArtistOptions())
                if added is None:
                    await artists.check(artist_id)

    async def _check(self) -> None:
        """Check feeds and prices by hand when something is new, as somebody would who does not want to wait."""
        began = trio.current_time()
        for after_s in self._looks_after_s:
            await trio.sleep_until(began + after_s)
            with trio.move_on_after(self.LOOK_S), suppress(CormorantError):  # as above
                await self._check_all()

    async def _check_all(self) -> None:
        service = self._service
        for price in PRICES.keys() & service.settings.prices.keys():
            await service.prices.check(price)
        for feed in playground_feeds(self._playground.address):
            await service.feeds.check_and_wait(feed)

    def _banner(self) -> str:
        names = _sites(self._service.settings)
        lines = [
            f"This is the playground: {len(names)} invented sites on your machine, no account, no network.",
            f"  they are     {', '.join(names)}; an invented person searches now and then, watch the log",
            '  search       cormorant search "cold ferry"      (in another terminal)',
            f"  watched      {', '.join(WATCHED.values())}; what they release is found and handed over",
            f"  feeds        {', '.join(self._service.settings.feeds)}; what is new is wanted: cormorant subscriptions list",
            f"  prices       {', '.join(self._service.settings.prices)}; told when it is cheap: cormorant prices list",
            "  finds        cormorant wants list               cormorant downloads list",
            "  look         cormorant sources list             cormorant explain cellar",
            f"  adopt        cormorant import prowlarr {self._playground.url_of('prowlarr')}   (its key: {KEY})",
            f"  connect      cormorant connect sonarr {self._playground.url_of('sonarr')}",
            f"  leave it     {LEAVE_WITH}                     (makes settings for real sites; this one's data stays apart)",
        ]
        return "\n".join(lines)


def _sites(settings: Settings) -> list[str]:
    return [name for name, source in settings.sources.items() if source.kind in SEARCHED]


@frozen(kw_only=True)
class Person:
    """Searches one thing after the other, with a pause between; never two at once. The first few come in a hurry."""

    service: Service
    chance: Chance
    first_after_s: float = 1.0
    hurried: int = 4
    hurried_pause_s: float = 1.0
    pause_s: float = 12.0
    max_wait_s: float = 15.0

    async def live(self) -> None:
        """Search until cancelled."""
        await trio.sleep(self.first_after_s)
        for count in itertools.count():
            await self._search(_WORDS[int(self.chance.random() * len(_WORDS))])
            pause_s = self.hurried_pause_s if count < self.hurried else self.pause_s
            await trio.sleep(pause_s * (0.5 + self.chance.random()))

    async def _search(self, words: str) -> None:
        try:
            search = await self.service.sources.search(
                SearchRequest(query=words),
                sources=_sites(self.service.settings),  # what else was added is for whoever added it
                priority=Priority.INTERACTIVE,
                max_wait_s=self.max_wait_s,
                consumer=CONSUMER,
            )
            async with search:
                outcomes = [outcome async for outcome in search]
        except CormorantError:
            return  # what is wrong with the service is told by itself
        answered = [outcome for outcome in outcomes if outcome.is_answer]
        self.service.emit(
            PlaygroundSearched(
                words=words,
                found=sum(len(outcome.results) for outcome in answered),
                answered=tuple(sorted(outcome.source for outcome in answered)),
                not_answered=tuple(sorted(outcome.source for outcome in outcomes if not outcome.is_answer)),
            )
        )
