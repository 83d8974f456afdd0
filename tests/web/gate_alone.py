"""The gate without its server, on the mock clock: for what happens between two moments."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from xml.etree import ElementTree as ET

import trio

from cormorant.rules.search.requests import Caps
from cormorant.rules.settings.service import ClientSettings
from cormorant.rules.torznab_queries import read_query
from cormorant.services.gate.gate import AppShare, GateService
from cormorant.services.gate.torznab_documents import TorznabPage
from cormorant.testing import ScriptedSource, Simulation, memory_gateway, named_sources, settings
from storage.database import Database
from storage.search.sources import SourceRecord
from supervisors.search_assembly import SearchAssembly
from tests.services.gate.test_gate_day import gate_environment, gate_of

AskCaps = Callable[[SourceRecord], Awaitable[Caps]]


@asynccontextmanager
async def gate_alone(
    simulation: Simulation, sources: dict[str, ScriptedSource], *, caps: AskCaps | None = None, **limits: Any
) -> AsyncIterator[tuple[GateService, Database]]:
    """A gate before these sources, which all have the same limits."""
    chosen = named_sources(*sources, **{"spacing_s": 0.0, "pace_s": 0.0} | limits)
    with memory_gateway() as gateway:
        environment = gate_environment(simulation, sources, gateway, settings(sources=chosen), caps=caps)
        search = SearchAssembly(environment)
        async with trio.open_nursery() as storage:
            await storage.start(gateway)
            async with search.supervisor():
                yield gate_of(environment, search.searches()), gateway
            gateway.stop()


def app(name: str = "sonarr", **chosen: Any) -> AppShare:
    """An app of a gate."""
    return AppShare(name=name, settings=ClientSettings(**chosen))


async def ask(gate: GateService, client: AppShare, where: str, words: str) -> TorznabPage:
    """Search as an app does."""
    query = read_query([("t", "search"), ("q", words)])
    assert query.request is not None
    return await gate.find(client, query, query.request, where=where, base="http://gate")


async def new_titles(gate: GateService, client: AppShare, where: str, cat: str = "") -> list[str]:
    """Ask for what is new as an app does, and read the titles in the document."""
    query = read_query([("t", "search"), ("cat", cat)])
    assert query.request is not None
    document = await gate.document(client, query, query.request, where=where, base="http://gate")
    return [item.findtext("title", "") for item in ET.fromstring(document).iter("item")]  # noqa: S314 - our own document
