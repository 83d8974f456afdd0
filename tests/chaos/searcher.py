"""A process that searches one source on loopback as fast as it may. Run as `python -m tests.chaos.searcher ORDERS`."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import attrs
import trio
from attrs import define, field, frozen

from cormorant.rules.search.priorities import Priority
from cormorant.rules.search.requests import SearchPage, SearchRequest
from cormorant.rules.secrets import Secret
from cormorant.rules.settings.settings import Settings, StorageSettings
from cormorant.rules.settings.sources import SourceSettings
from storage.search.sources import SourceRecord
from supervisors.service import open_service
from tests.environments import environment_of


@frozen(kw_only=True)
class SearchOrders:
    """What a searching process is to do."""

    url: str
    data: str
    port: int
    searches: int
    limits: dict[str, Any]
    dies_at: int | None = None
    """The request that it reserves and does not live to send."""

    def settings(self) -> Settings:
        """The settings of the service."""
        return Settings(
            data=str(Path(self.data)),
            storage=StorageSettings(url=Secret(self.url)),
            sources={"site": SourceSettings(url="http://site.test/api", **self.limits)},
        )


@define
class Caller:
    """Asks the source, or dies just before."""

    orders: SearchOrders
    calls: int = field(default=0)

    async def __call__(self, source: SourceRecord, request: SearchRequest) -> SearchPage:
        self.calls += 1
        if self.calls == self.orders.dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        async with await trio.open_tcp_stream("127.0.0.1", self.orders.port) as stream:
            await stream.send_all(b"?")
            await stream.receive_some()
        return SearchPage(results=())


async def main(orders: SearchOrders) -> None:
    """Search until killed."""
    async with open_service(orders.settings(), environment=environment_of(search=Caller(orders))) as service:
        for number in range(orders.searches):
            await service.search(f"{os.getpid()} {number}", priority=Priority.INTERACTIVE)
        await trio.sleep_forever()


def command(orders: SearchOrders) -> list[str]:
    """How it is started."""
    return [sys.executable, "-m", "tests.chaos.searcher", json.dumps(attrs.asdict(orders))]


if __name__ == "__main__":
    trio.run(main, SearchOrders(**json.loads(sys.argv[1])))
