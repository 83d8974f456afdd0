"""A service with scripted sources and a real server on loopback. On a mock clock the wall clock follows it."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import trio
from attrs import define, field
from trio.testing import MockClock

from cormorant.rules.events import WebListening
from cormorant.rules.secrets import Secret
from cormorant.rules.settings.service import ClientSettings, WebSettings
from cormorant.rules.settings.settings import JobSettings
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
from storage.database import Database
from supervisors import Service, open_service
from tests.bounds import WAIT_S
from tests.environments import environment_of

KEY = "the-key-of-the-api"
SONARR = "the-key-of-sonarr"
SOURCE_KEY = "hunter2hunter2"


@define
class WebPlace:
    """One database, its scripted sources, and what was told."""

    gateway: Database
    data: Path
    sources: dict[str, ScriptedSource]
    events: Recorder = field(factory=Recorder)

    def service(
        self, limits: dict[str, Any] | None = None, given: dict[str, Any] | None = None, **chosen: Any
    ) -> Service:
        """A service with a server on a free port; nothing is paced unless it is said. `given` are parts of its own."""
        open_limits = {"spacing_s": 0.0, "pace_s": 0.0, "key": Secret(SOURCE_KEY)}
        usual = {
            "data": str(self.data),
            "sources": named_sources(*self.sources, **open_limits | (limits or {})),
            "jobs": JobSettings(poll_s=300.0, heartbeat_s=60.0, sweep_s=3600.0),
            "web": WebSettings(listen="127.0.0.1:0", key=Secret(KEY)),
            "clients": {"sonarr": ClientSettings(key=Secret(SONARR))},
        }
        is_mocked = isinstance(trio.lowlevel.current_clock(), MockClock)
        return open_service(
            settings(**usual | chosen),
            environment=environment_of(
                clock=SimulatedClock() if is_mocked else None,
                chance=random.Random(1),
                offload=in_line,
                database=self.gateway,
                listeners=[self.events],
                search=scripted(self.sources) if self.sources else None,
                **given or {},
            ),
        )

    @property
    def address(self) -> str:
        """Where the server listens."""
        return self.events.of(WebListening)[-1].address.rstrip("/")

    @asynccontextmanager
    async def served(
        self, limits: dict[str, Any] | None = None, given: dict[str, Any] | None = None, **chosen: Any
    ) -> AsyncIterator[tuple[Service, httpx2.AsyncClient]]:
        """The service, and a client that has the key of the API."""
        async with self.service(limits, given, **chosen) as service, self.client() as client:
            yield service, client

    async def torznab(self, client: httpx2.AsyncClient, source: str, /, **params: Any) -> httpx2.Response:
        """Ask as Sonarr does."""
        named = {"apikey": SONARR} | params
        return await client.get(f"/gate/{source}/api", params=named, headers={"X-Api-Key": ""})

    def client(self, **headers: str) -> httpx2.AsyncClient:
        """Somebody who asks the server."""
        return httpx2.AsyncClient(base_url=self.address, headers={"X-Api-Key": KEY} | headers, timeout=WAIT_S)


@contextmanager
def web_place(data: Path, **sources: ScriptedSource) -> Iterator[WebPlace]:
    with memory_gateway() as gateway:
        yield WebPlace(gateway, data, dict(sources))
