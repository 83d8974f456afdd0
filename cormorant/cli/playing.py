"""What is different when `cormorant run` runs on the playground? Invented sites around the service, a banner, and somebody who searches."""

from __future__ import annotations

from types import TracebackType
from typing import Final, Self

import trio

from cormorant.cli.streams import say
from cormorant.playground import open_playground
from cormorant.playground.person import Person
from cormorant.playground.town import KEY, sites_of_the_town
from cormorant.rules.events import PlaygroundOpened
from supervisors import Service

__all__ = ["LEAVE_WITH", "Playing"]

LEAVE_WITH: Final = "cormorant init"


class Playing:
    """The playground of a service. Enter it before the service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._playground = open_playground(*sites_of_the_town(service.clock), listen=service.settings.playground.listen)

    async def __aenter__(self) -> Self:
        await self._playground.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._playground.__aexit__(kind, error, trace)

    async def serve_until(self, told: trio.Event) -> None:
        """Say where one is, and let the invented person search until the service is told to stop."""
        service = self._service
        service.emit(
            PlaygroundOpened(
                address=self._playground.address, sites=len(service.settings.sources), leave_with=LEAVE_WITH
            )
        )
        await trio.to_thread.run_sync(say, self._banner())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Person(service=service, chance=service.chance).live)
            await told.wait()
            nursery.cancel_scope.cancel()

    def _banner(self) -> str:
        names = list(self._service.settings.sources)
        lines = [
            f"This is the playground: {len(names)} invented sites on your machine, no account, no network.",
            f"  they are     {', '.join(names)}; an invented person searches now and then, watch the log",
            '  search       cormorant search "cold ferry"      (in another terminal)',
            "  look         cormorant sources list             cormorant explain cellar",
            f"  adopt        cormorant import prowlarr {self._playground.url_of('prowlarr')}   (its key: {KEY})",
            f"  connect      cormorant connect sonarr {self._playground.url_of('sonarr')}",
            f"  leave it     {LEAVE_WITH}                     (makes settings for real sites; this one's data stays apart)",
        ]
        return "\n".join(lines)
