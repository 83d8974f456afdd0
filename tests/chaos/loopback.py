"""A source on loopback that counts, and processes that ask it."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from pathlib import Path

import trio
from attrs import define, field
from sqlalchemy import create_engine, text

from tests.bounds import WAIT_S
from tests.chaos.searcher import SearchOrders, command

ROOT = Path(__file__).parents[2]
LOOK_S = 0.05
QUIET_S = 1.5
"""Nothing for so long: nothing more is to come."""


@define
class LoopbackSite:
    """When it was asked, when it had answered, and how many at once."""

    takes_s: float
    port: int = 0
    began: list[datetime] = field(factory=list)
    ended: list[datetime] = field(factory=list)
    in_flight: int = 0
    in_flight_most: int = 0

    async def serve(self, stream: trio.SocketStream) -> None:
        """Answer one request."""
        async with stream:
            if not await stream.receive_some():
                return
            self.began.append(datetime.now(UTC))
            self.in_flight += 1
            self.in_flight_most = max(self.in_flight_most, self.in_flight)
            await trio.sleep(self.takes_s)
            self.in_flight -= 1
            self.ended.append(datetime.now(UTC))
            await stream.send_all(b"!")

    async def until_quiet(self, *, least: int) -> None:
        """Wait until so many have come and no more do."""
        with trio.fail_after(WAIT_S):
            while len(self.began) < least:
                await trio.sleep(LOOK_S)
        seen = -1
        while seen != len(self.began):
            seen = len(self.began)
            await trio.sleep(QUIET_S)

    def assert_spaced(self, spacing_s: float) -> None:
        """Each began at least so long after the one before had ended."""
        gaps = [(began - ended).total_seconds() for ended, began in zip(self.ended, self.began[1:], strict=False)]
        assert min(gaps) >= spacing_s, gaps


@asynccontextmanager
async def loopback_site(*, takes_s: float = 0.01) -> AsyncIterator[LoopbackSite]:
    """A source that listens."""
    site = LoopbackSite(takes_s)
    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, site.serve, 0, host="127.0.0.1"))
        site.port = listener.socket.getsockname()[1]
        yield site
        nursery.cancel_scope.cancel()


@contextmanager
def searching(*orders: SearchOrders) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that search, and do not outlive the test."""
    started = [subprocess.Popen(command(each), cwd=ROOT) for each in orders]
    try:
        yield started
    finally:
        for process in started:
            process.kill()
            process.wait()


def least_distance_s(url: str) -> float:
    """The shortest time between two requests that were paid for, whether they were sent or not."""
    engine = create_engine(url)
    try:
        with engine.connect() as connection:
            paid = connection.execute(text("SELECT at FROM source_requests ORDER BY seq")).scalars().all()
            least: int = min(later - earlier for earlier, later in pairwise(paid))
            return least / 1_000_000
    finally:
        engine.dispose()


def reserved_at(url: str) -> int:
    """How many requests the database has seen paid for."""
    engine = create_engine(url)
    try:
        with engine.connect() as connection:
            number: int = connection.execute(text("SELECT max(query_last_seq) FROM source_state")).scalar_one()
            return number
    finally:
        engine.dispose()
