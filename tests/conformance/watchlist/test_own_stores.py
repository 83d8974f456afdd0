"""A program may keep the watchlist itself, with async methods of its own."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import attrs
import pytest
import trio
from attrs import define, field
from trio.testing import MockClock

from cormorant.rules.errors import SettingsError
from cormorant.rules.settings.watch import WatchlistSettings
from cormorant.rules.watch.artists import Artist, Charge, RetryCharge
from cormorant.rules.watch.wants import Want
from cormorant.scripted import ScriptedCatalogue, album
from cormorant.testing import START, SimulatedClock, in_line, memory_gateway, settings
from supervisors import open_service
from tests.environments import environment_of


@define
class OwnStore:
    """Keeps one artist in memory."""

    artist: Artist
    wanted: list[str] = field(factory=list)

    async def claim(self, *, now: datetime, until: datetime, limit: int) -> tuple[list[Artist], list[Artist]]:
        await trio.lowlevel.checkpoint()
        return ([self.artist] if self.artist.next_attempt_at <= now else []), []

    async def release(self, artists: Sequence[Artist], *, next_attempt_at: datetime | None = None) -> None:
        await trio.lowlevel.checkpoint()

    async def succeed(
        self, artist: Artist, wanted: Sequence[Want], *, looked_at: datetime, next_attempt_at: datetime
    ) -> list[Want]:
        await trio.lowlevel.checkpoint()
        self.artist = attrs.evolve(artist, watermark=looked_at, next_attempt_at=next_attempt_at)
        self.wanted += [want.title for want in wanted]
        return list(wanted)

    async def fail(
        self, artist: Artist, charge: Charge, *, next_attempt_at: datetime, error: str, now: datetime
    ) -> RetryCharge:
        await trio.lowlevel.checkpoint()
        return charge(artist)


async def test_a_watchlist_of_the_embedding_program_is_looked_at_in_async_mode(clock: MockClock) -> None:
    store = OwnStore(Artist(source="own", artist_id="a1", name="A1", next_attempt_at=START, added_at=START))
    catalogue = ScriptedCatalogue(scripts={"a1": [[album("New", "2026-01-01")]]})
    chosen = settings(watchlist=WatchlistSettings(db_io_mode="async"))

    with memory_gateway() as gateway:
        async with open_service(
            chosen,
            environment=environment_of(
                clock=SimulatedClock(), offload=in_line, database=gateway, catalogue=catalogue, watchlist=store
            ),
        ):
            await trio.sleep(10)

    assert store.wanted == ["New"]
    assert store.artist.watermark == START


@pytest.mark.parametrize(("mode", "has_store"), [("async", False), ("thread", True)])
def test_a_mode_that_does_not_fit_is_told(mode: str, *, has_store: bool) -> None:
    store = OwnStore(Artist(source="own", artist_id="a1", name="A1", next_attempt_at=START, added_at=START))
    chosen = settings(watchlist=WatchlistSettings(db_io_mode=mode))

    with memory_gateway() as gateway, pytest.raises(SettingsError, match="watchlist.db_io_mode is"):
        open_service(chosen, environment=environment_of(database=gateway, watchlist=store if has_store else None))
