"""A service with handlers on the mock clock, and what a test wants to know about its jobs."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import trio
from attrs import define, evolve, field
from sqlalchemy import Connection, text

from actors.jobs.handler import Handler, JobContext, Run
from cormorant.rules.settings.settings import JobSettings
from cormorant.testing import Recorder, SimulatedClock, in_line, settings
from storage.database import Database
from supervisors.service import Service, open_service
from tests.environments import environment_of
from tests.gateways import gateway


@define
class Handled:
    """A handler that remembers when it ran, and then does what it is told."""

    runs: list[float] = field(factory=list)
    contexts: list[JobContext] = field(factory=list)
    takes_s: float = 0.0
    raises: list[BaseException | None] = field(factory=list)

    async def __call__(self, context: JobContext) -> None:
        self.runs.append(trio.current_time())
        self.contexts.append(context)
        await trio.sleep(self.takes_s)
        error = self.raises.pop(0) if self.raises else None
        if error is not None:
            raise error


class Middle(random.Random):
    """Chance whose jitter is always one half, so that a delay is exactly its whole."""

    def random(self) -> float:
        return 0.5


@define
class Workplace:
    """One database, any number of services on it, one after the other or at the same time."""

    gateway: Database
    clock: SimulatedClock = field(factory=SimulatedClock)
    events: Recorder = field(factory=Recorder)
    chance: Middle = field(factory=lambda: Middle(3))

    def service(self, handlers: dict[str, Run | Handler], **chosen: object) -> Service:
        jobs = evolve(JobSettings(), **chosen)  # type: ignore[arg-type]  # the names are those of the settings
        return open_service(
            settings(jobs=jobs),
            environment=environment_of(
                clock=self.clock, chance=self.chance, offload=in_line, database=self.gateway, listeners=[self.events]
            ),
            handlers=handlers,
        )


@contextmanager
def workplace(*, is_shared: bool = False) -> Iterator[Workplace]:
    with gateway(is_shared=is_shared) as database:
        yield Workplace(database)


def states(connection: Connection) -> dict[int, str]:
    return {row.id: row.state for row in connection.execute(text("SELECT id, state FROM jobs ORDER BY id"))}
