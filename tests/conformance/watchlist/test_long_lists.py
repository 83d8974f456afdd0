"""An artist with more releases than fit into one tick: what was read stays read, on the mock clock with exact times."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trio
from attrs import define, field
from trio.testing import MockClock

from actors.jobs.working_set import OwnerLease
from actors.watch.watchlist_ticker import WatchlistTicker
from cormorant.rules.ports import ignore
from cormorant.rules.search.outcomes import SourceLimited, SourceUnavailable
from cormorant.rules.watch.artists import PAGES_MAX, Artist, CatalogueProgress, Charge, RetryCharge, Start
from cormorant.rules.watch.events import WatchlistProcess
from cormorant.rules.watch.releases import Album
from cormorant.scripted import ScriptedCatalogue, album
from cormorant.testing import START, SimulatedClock
from storage import Database
from storage.watch import artists
from storage.watch.artists import Key
from supervisors import Service
from tests.conformance.watchlist.test_own_stores import OwnStore
from tests.conformance.watchlist.watching import WatchPlace, file_gateway, watch, watch_place
from tests.environments import environment_of

BROKEN = SourceUnavailable("it is broken")


def long_list(number: int) -> list[Album]:
    return [album(f"Number {each}", "2001-01-02") for each in range(number)]


def statuses(place: WatchPlace) -> list[str]:
    return [event.status for event in place.events.of(WatchlistProcess)]


async def titles(service: Service) -> set[str]:
    return {want.title for want in await service.wants.page(limit=2_000)}


@pytest.mark.slow("a thousand wants and the jobs that search for them")
async def test_a_thousand_releases_are_read_over_several_ticks_and_each_page_once(clock: MockClock) -> None:
    with watch_place() as place:
        place.catalogue.scripts["a1"] = [long_list(1_000)]
        place.catalogue.page_size, place.catalogue.takes_s = 10, 0.3
        async with place.service() as service:
            await watch(service, "a1", start="all")
            await trio.sleep(300)

            # 26 pages of 0.3 s fit into the 8 s of a tick, and the one that is cut off is asked for again.
            assert len(place.catalogue.asked) == 100 + 3
            assert [time for time, _ in place.catalogue.asked[::27]] == [60.0, 120.0, 180.0, 240.0]
            assert statuses(place) == ["out of time"] * 3 + ["ok"]
            assert len(await titles(service)) == 1_000
            [artist] = await service.artists.all()
            assert artist.watermark == START + timedelta(seconds=60)
            assert artist.next_attempt_at == START + timedelta(seconds=240 + 12 * 3_600)
            assert await place.gateway.read(artists.find_progress, [artist]) == {}
        assert place.events.of(WatchlistProcess)[0].error == "260 releases so far; the next tick goes on from there"


async def test_a_limit_in_the_middle_of_a_list_costs_none_of_its_pages(clock: MockClock) -> None:
    with watch_place() as place:
        place.catalogue.scripts["a1"] = [long_list(5)]
        place.catalogue.page_size = 1
        place.catalogue.between = [SourceLimited("asked too fast", retry_after_s=86_400.0)]
        async with place.service() as service:
            await watch(service, "a1", start="all")
            await trio.sleep(65)
            [artist] = await service.artists.all()
            assert artist.next_attempt_at == START + timedelta(seconds=86_460)
            place.clock.jump(86_400)
            await trio.sleep(60)

            assert [time for time, _ in place.catalogue.asked] == [60.0] * 2 + [65.0] * 4
            assert len(await titles(service)) == 5
        assert statuses(place) == ["waiting", "ok"]


async def test_a_page_that_fails_is_tried_again_without_those_before_it(clock: MockClock) -> None:
    with watch_place() as place:
        place.catalogue.scripts["a1"] = [long_list(3)]
        place.catalogue.page_size = 1
        place.catalogue.between = [BROKEN] * 4
        async with place.service(jitter=0.0) as service:
            await watch(service, "a1", start="all")
            await trio.sleep(130)

            assert len(await titles(service)) == 3
        assert [time for time, _ in place.catalogue.asked] == [60.0, 60.0, 60.25, 60.75, 120.0, 120.25, 120.25]


async def test_what_was_read_survives_a_restart(clock: MockClock, tmp_path: Path) -> None:
    catalogue = ScriptedCatalogue(scripts={"a1": [long_list(30)]}, page_size=1, takes_s=0.3)
    found: set[str] = set()
    for _ in range(2):
        with file_gateway(tmp_path / "one.db") as gateway:
            async with WatchPlace(gateway, catalogue=catalogue).service() as service:
                await watch(service, "a1", start="all")
                await trio.sleep(70)
                found = await titles(service)

    assert len(found) == 30
    assert len(catalogue.asked) == 30 + 1  # the one that was cut off


async def test_a_release_that_comes_out_while_a_list_is_read_is_found_by_the_next_look(clock: MockClock) -> None:
    with watch_place() as place:
        old, new = long_list(30), album("New", "2026-01-01")
        place.catalogue.scripts["a1"] = [old, [new, *old]]
        place.catalogue.page_size, place.catalogue.takes_s = 1, 0.3
        async with place.service(every_s=600.0) as service:
            await watch(service, "a1")
            await trio.sleep(130)
            assert statuses(place) == ["out of time", "ok"]
            assert await titles(service) == set()

            await trio.sleep(700)
            assert await titles(service) == {"New"}


async def test_pages_that_were_kept_too_long_are_read_anew(clock: MockClock) -> None:
    with watch_place() as place:
        place.catalogue.scripts["a1"] = [long_list(2), long_list(3)]
        place.catalogue.page_size = 1
        place.catalogue.between = [SourceLimited("asked too fast", retry_after_s=86_400.0)]
        async with place.service() as service:
            await watch(service, "a1", start="all")
            await trio.sleep(65)
            place.clock.jump(8 * 86_400.0)
            await trio.sleep(60)

            assert len(await titles(service)) == 3


async def test_a_list_that_does_not_end_is_left_alone_until_the_next_look(clock: MockClock) -> None:
    with watch_place() as place:
        place.catalogue.scripts["a1"] = [long_list(PAGES_MAX + 50)]
        place.catalogue.page_size = 1
        async with place.service() as service:
            await watch(service, "a1", start="all")
            await trio.sleep(200)

            [artist] = await service.artists.all()
            assert artist.last_error is not None
            assert "does not end: 1001 releases on 1001 pages" in artist.last_error
            assert await place.gateway.read(artists.find_progress, [artist]) == {}
        assert len(place.catalogue.asked) == PAGES_MAX + 1


class KeptWalks(Database):
    """A database that keeps walks in memory, and in which nothing is paused. One that is away keeps nothing."""

    def __init__(self) -> None:
        """Nothing is opened."""
        self.kept: dict[Key, CatalogueProgress] = {}
        self.is_away = False

    async def read(self, *asked: Any, **_: Any) -> Any:
        await trio.lowlevel.checkpoint()
        return dict(self.kept) if asked[0] is artists.find_progress else False

    async def run(self, *asked: Any, **_: Any) -> Any:
        change, walks, ended = asked
        assert change is artists.keep_progress
        await trio.sleep(math.inf if self.is_away else 0)
        self.kept |= walks
        for key in ended:
            del self.kept[key]


@define
class WatchedStore(OwnStore):
    """Remembers how many releases were kept whenever an artist was given back."""

    walks: KeptWalks = field(factory=KeptWalks)
    kept_then: list[int] = field(factory=list)

    async def release(self, artists: Sequence[Artist], *, next_attempt_at: datetime | None = None) -> None:
        await trio.lowlevel.checkpoint()
        self.kept_then += [sum(len(walk.albums) for walk in self.walks.kept.values()) for _ in artists]

    async def fail(
        self, artist: Artist, charge: Charge, *, next_attempt_at: datetime, error: str, now: datetime
    ) -> RetryCharge:
        await self.release([artist])
        return charge(artist)


def a_ticker(store: WatchedStore, catalogue: ScriptedCatalogue) -> WatchlistTicker:
    environment = environment_of(
        database=store.walks, clock=SimulatedClock(), chance=random.Random(1), emit=ignore, catalogue=catalogue
    )
    return WatchlistTicker(environment, lease=OwnerLease(), store=store)


@pytest.mark.parametrize(
    ("takes_s", "page_size", "between"),
    [(3.0, 1, []), (0.0, 2, [SourceLimited("too fast", retry_after_s=0.0)]), (0.0, 2, [BROKEN] * 3)],
)
async def test_what_was_read_of_an_artist_is_kept_before_another_process_may_take_it(
    clock: MockClock, takes_s: float, page_size: int, between: list[Exception]
) -> None:
    artist = Artist(source="own", artist_id="a1", name="A1", next_attempt_at=START, added_at=START, start=Start.ALL)
    store = WatchedStore(artist)
    catalogue = ScriptedCatalogue(
        scripts={"a1": [long_list(4)]}, page_size=page_size, takes_s=takes_s, between=list(between)
    )
    ticker = a_ticker(store, catalogue)

    await ticker.tick()
    assert store.kept_then == [2]
    await ticker.tick()
    assert (len(store.wanted), store.walks.kept) == (4, {})


async def test_artists_are_given_back_also_when_nothing_can_be_kept(clock: MockClock) -> None:
    artist = Artist(source="own", artist_id="a1", name="A1", next_attempt_at=START, added_at=START)
    store = WatchedStore(artist)
    store.walks.is_away = True

    await a_ticker(store, ScriptedCatalogue(scripts={"a1": [long_list(9)]}, page_size=1, takes_s=3.0)).tick()

    assert store.kept_then == [0]
