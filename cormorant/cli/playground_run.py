"""PlaygroundRun: the playground around a running service. Loaded only when the playground is enabled."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

import trio

from cormorant.cli.console.output import write
from cormorant.playground import open_playground
from cormorant.playground.feed_site import LOOKS_AFTER_S, playground_feeds
from cormorant.playground.person import Person
from cormorant.playground.price_site import PRICES
from cormorant.playground.releases import SOON, WATCHED
from cormorant.playground.world import KEY, playground_sites
from cormorant.rules.errors import CormorantError
from cormorant.rules.events import PlaygroundOpened
from cormorant.rules.settings.sources import SEARCHED
from cormorant.rules.settings.watch import ArtistOptions
from cormorant.rules.watch.releases import CatalogueArtist
from supervisors import Service

__all__ = ["LEAVE_WITH", "PlaygroundRun"]

LEAVE_WITH: Final = "cormorant init"


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
            PlaygroundOpened(address=self._playground.address, sites=len(self._sites()), leave_with=LEAVE_WITH)
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

    def _sites(self) -> list[str]:
        return [name for name, source in self._service.settings.sources.items() if source.kind in SEARCHED]

    def _banner(self) -> str:
        names = self._sites()
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
