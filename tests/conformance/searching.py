"""A service with scripted sources on the mock clock."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import trio
from attrs import define, field

from actors.search.search import Search
from cormorant.rules.search.outcomes import Outcome
from cormorant.rules.search.priorities import Priority
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
from tests.environments import environment_of
from tests.gateways import shared_gateway


@define
class SearchPlace:
    """One database and its scripted sources; any number of services, one after the other."""

    gateway: Database
    sources: dict[str, ScriptedSource] = field(factory=dict)
    clock: SimulatedClock = field(factory=SimulatedClock)
    events: Recorder = field(factory=Recorder)

    def service(self, limits: dict[str, Any] | None = None, **chosen: Any) -> Service:
        """A service with these sources, all with the same limits; nothing is paced unless it is said."""
        named = named_sources(*self.sources, **({"spacing_s": 0.0, "pace_s": 0.0} | (limits or {})))
        # Nothing is claimed by other processes here: looking for jobs would be most of a simulated day.
        calm = JobSettings(poll_s=300.0, heartbeat_s=60.0, sweep_s=3600.0)
        return open_service(
            settings(**{"sources": named, "jobs": calm} | chosen),
            environment=environment_of(
                clock=self.clock,
                chance=random.Random(1),
                offload=in_line,
                database=self.gateway,
                listeners=[self.events],
                search=scripted(self.sources),
            ),
        )


@contextmanager
def search_place(**sources: ScriptedSource) -> Iterator[SearchPlace]:
    with memory_gateway() as gateway:
        yield SearchPlace(gateway, dict(sources))


@contextmanager
def shared_search_place(**sources: ScriptedSource) -> Iterator[SearchPlace]:
    """A place on a database that other processes may use."""
    with shared_gateway() as gateway:
        yield SearchPlace(gateway, dict(sources))


async def all_of(search: Search) -> list[Outcome]:
    """Every outcome, as they came."""
    return [outcome async for outcome in search]


async def statuses(search: Search) -> dict[str, str]:
    """How it ended at each source."""
    return {outcome.source: outcome.status.value for outcome in await all_of(search)}


async def search_each(
    service: Service, queries: Sequence[str], *, priority: Priority | None = None, **how: Any
) -> list[list[Outcome]]:
    """Submit searches at once, and wait for all of them."""
    searches = [await service.search(query, priority=priority, **how) for query in queries]
    return [await all_of(search) for search in searches]


async def settle() -> None:
    """Let everything happen that needs no time."""
    await trio.testing.wait_all_tasks_blocked()
