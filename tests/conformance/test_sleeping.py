"""Every actor sleeps until something is due, and looks again when a message says so: exact times on the mock clock."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import pytest
import trio
from attrs import define, field
from sqlalchemy import Connection
from trio.testing import MockClock

from actors.periodic import LOOK_S
from cormorant.rules.events import ClockStepped, Event
from cormorant.rules.jobs.events import WorkerDeclaredDead
from cormorant.rules.search.events import SearchesPruned
from cormorant.rules.settings.settings import SearchSettings
from cormorant.rules.settings.watch import FeedSettings, PriceSettings, SavedSettings, WatchlistSettings
from cormorant.rules.watch.events import SavedSearchChecked
from cormorant.rules.watch.feeds import DueFeed, FetchedFeed
from cormorant.rules.watch.prices import PriceCollected
from cormorant.scripted import ScriptedCatalogue
from cormorant.testing import (
    START,
    Recorder,
    ScriptedSource,
    in_line,
    memory_gateway,
    named_sources,
    scripted,
    settings,
)
from storage.database import Database
from storage.jobs import jobs
from storage.watch import artists
from supervisors import Service, open_service
from tests.conformance.watchlist.watching import watch, watch_place
from tests.environments import environment_of
from tests.leases import register

HOUR = 3_600.0
MINUTE = 60.0
SOON_S = LOOK_S + 1.0

pytestmark = pytest.mark.slow("hours in which the clocks are compared every ten seconds")


@define
class WallClock:
    """A wall clock that can be set, and does not tell: it is compared with the other."""

    offset_s: float = 0.0

    def now(self) -> datetime:
        return START + timedelta(seconds=trio.current_time() + self.offset_s)

    def stopwatch(self) -> float:
        return 0.0


@define
class Feeds:
    """Notes when each feed is asked."""

    asked: list[tuple[str, float]] = field(factory=list)

    async def __call__(self, feed: DueFeed) -> FetchedFeed:
        await trio.lowlevel.checkpoint()
        self.asked.append((feed.name, trio.current_time()))
        return FetchedFeed()


@define
class Place:
    """A service with a watch of each kind, on a clock that can be set."""

    gateway: Database
    clock: WallClock = field(factory=WallClock)
    feeds: Feeds = field(factory=Feeds)
    events: Recorder = field(factory=Recorder)
    ran: list[float] = field(factory=list)
    source: ScriptedSource = field(factory=lambda: ScriptedSource(["x"]))
    shop: ScriptedSource = field(factory=lambda: ScriptedSource(["x"]))
    catalogue: ScriptedCatalogue = field(factory=ScriptedCatalogue)

    def service(self, **chosen: Any) -> Service:
        async def work(_: Any) -> None:
            await trio.lowlevel.checkpoint()
            self.ran.append(trio.current_time())

        environment = environment_of(
            clock=self.clock,
            offload=in_line,
            database=self.gateway,
            listeners=[self.events],
            feed=self.feeds,
            search=scripted({"a": self.source, "shop": self.shop}),
            catalogue=self.catalogue,
        )
        sources = named_sources("a", spacing_s=2 * HOUR) | named_sources("shop", kind="prices")
        made = settings(sources=sources, **chosen)
        return open_service(made, environment=environment, handlers={"work": work})

    def checks(self) -> list[float]:
        """When saved searches were checked, in simulated seconds since the start."""
        return self._times_of(SavedSearchChecked)

    def collections(self) -> list[float]:
        """When prices were collected."""
        return self._times_of(PriceCollected)

    def _times_of(self, kind: type[Event]) -> list[float]:
        seen = [each.at for each in self.events.heard if isinstance(each.event, kind)]
        return [(at - START).total_seconds() - self.clock.offset_s for at in seen]


@contextmanager
def a_place() -> Iterator[Place]:
    with memory_gateway() as gateway:
        yield Place(gateway)


async def add_all(service: Service, *, every_s: float) -> None:
    """Watch one of each kind, and put off a job; all are due at once, and again after this time."""
    await watch(service, "artist")
    await service.feeds.add("feed", FeedSettings(url="http://feed.test/", every_s=every_s))
    await service.saved_searches.add("saved", SavedSettings(query="words", every_s=every_s))
    await service.prices.add("price", PriceSettings(title="coin", every_s=every_s))
    await service.enqueue("work", {}, delay_s=every_s)


@pytest.mark.parametrize(("by_s", "wait_s"), [(6 * HOUR, 4 * HOUR), (HOUR, 0.5 * HOUR)], ids=["suspend", "hour ahead"])
async def test_after_a_suspend_every_ticker_is_on_time_within_eleven_seconds(
    clock: MockClock, by_s: float, wait_s: float
) -> None:
    with a_place() as place:
        async with place.service(watchlist=WatchlistSettings(every_s=wait_s)) as service:
            await add_all(service, every_s=wait_s)
            await trio.sleep(5.0)  # less than the interval of a tick
            for asked in (place.feeds.asked, place.catalogue.asked, place.events.heard):
                asked.clear()
            place.clock.offset_s += by_s

            await trio.sleep(SOON_S)
            assert [event.by_s for event in place.events.of(ClockStepped)] == [by_s]
            assert (len(place.checks()), len(place.collections()), len(place.ran)) == (1, 1, 1)
            assert [artist for _, artist in place.catalogue.asked] == ["artist"]
            # A feed that is overdue for long waits its share of a minute, so that not all are asked together.
            await trio.sleep(60.0)
            assert [name for name, _ in place.feeds.asked] == ["feed"]


async def test_after_the_clock_was_set_back_what_is_due_keeps_its_wall_time(clock: MockClock) -> None:
    with a_place() as place:
        async with place.service() as service:
            await add_all(service, every_s=HOUR)
            await trio.sleep(5 * MINUTE)
            place.feeds.asked.clear()
            place.events.heard.clear()
            place.clock.offset_s -= HOUR

            await trio.sleep(2 * HOUR - 5 * MINUTE - 10.0)
            assert (place.feeds.asked, place.collections(), place.checks(), place.ran) == ([], [], [], [])
            await trio.sleep(SOON_S)

    times = [*[at for _, at in place.feeds.asked], *place.collections(), *place.checks(), *place.ran]
    assert len(times) == 4
    assert all(2 * HOUR <= at <= 2 * HOUR + SOON_S for at in times)


async def test_a_source_that_opens_while_the_machine_sleeps_is_asked_soon_afterwards(clock: MockClock) -> None:
    with a_place() as place:
        async with place.service() as service:
            await service.search("one", sources=["a"])
            await trio.sleep(1.0)
            asked = len(place.source.asked_at)
            place.clock.offset_s += 6 * HOUR
            await service.search("two", sources=["a"])
            await trio.sleep(SOON_S)
            assert len(place.source.asked_at) == asked + 1


async def test_old_searches_are_pruned_a_minute_after_the_clock_was_set(clock: MockClock) -> None:
    with a_place() as place:
        async with place.service(search=SearchSettings(history_keep_s=24 * HOUR)) as service:
            await service.search("one")
            await trio.sleep(120.0)
            place.clock.offset_s += 48 * HOUR
            await trio.sleep(60.0 + SOON_S)

    assert [event.history for event in place.events.of(SearchesPruned)] == [1]


async def test_an_artist_that_is_added_is_looked_at_within_the_interval(clock: MockClock) -> None:
    with watch_place() as place:
        async with place.service() as service:
            await trio.sleep(10 * HOUR)
            asked_at = trio.current_time()
            await watch(service, "a1")
            await trio.sleep(61.0)

    assert [artist for _, artist in place.catalogue.asked] == ["a1"]
    assert place.catalogue.asked[0][0] - asked_at <= 60.0


async def test_an_artist_is_looked_at_by_hand_whatever_the_interval(clock: MockClock) -> None:
    with watch_place() as place:
        async with place.service() as service:
            await watch(service, "a1")
            await trio.sleep(1.0)
            before = len(place.catalogue.asked)
            await service.artists.check("A1")
            await trio.sleep(1.0)

    assert len(place.catalogue.asked) == before + 1


async def test_a_saved_search_that_is_added_is_checked_at_once(clock: MockClock) -> None:
    with a_place() as place:
        async with place.service() as service:
            await trio.sleep(10 * HOUR)
            await service.saved_searches.add("saved", SavedSettings(query="words"))
            await trio.sleep(1.0)

    assert place.checks() == [pytest.approx(10 * HOUR, abs=0.1)]


async def test_a_price_that_is_resumed_is_collected_at_once(clock: MockClock) -> None:
    with a_place() as place:
        async with place.service() as service:
            await service.prices.add("coin", PriceSettings(title="coin", every_s=HOUR))
            await service.prices.pause("coin")
            await trio.sleep(10 * HOUR)
            before = len(place.shop.asked_at)
            await service.prices.resume("coin")
            await trio.sleep(2.0)

    assert len(place.shop.asked_at) == before + 1


async def test_a_feed_that_is_moved_forward_is_checked_then(clock: MockClock) -> None:
    with a_place() as place:
        async with place.service() as service:
            feed = await service.feeds.add("feed", FeedSettings(url="http://feed.test/", every_s=24 * HOUR))
            await trio.sleep(10 * HOUR)
            await service.feeds.reschedule(feed.id, place.clock.now() + timedelta(seconds=90))
            await trio.sleep(100.0)

    assert place.feeds.asked == [("feed", 1.0), ("feed", 10 * HOUR + 90.0)]


def die_with_a_job(connection: Connection) -> None:
    """What an earlier service did before it was killed: it registered and claimed a job."""
    register(connection, "an earlier service")
    assert jobs.claim(connection, owner="an earlier service", kinds=["work"], priorities=[5], limit=1, now=START)


async def test_the_sweeper_begins_when_this_process_is_registered(clock: MockClock) -> None:
    with a_place() as place:
        async with place.service() as service:
            await service.pause()
            await service.enqueue("work", {})
            await service.transaction(die_with_a_job)
            await service.resume()
        async with place.service():
            await trio.sleep(1.0)

    assert [event.worker for event in place.events.of(WorkerDeclaredDead)] == ["an earlier service"]
    assert len(place.ran) == 1


def die_with_an_artist(connection: Connection) -> None:
    """What an earlier service did before it was killed: it registered and claimed an artist."""
    register(connection, "an earlier service")
    assert artists.claim(connection, worker="an earlier service", now=START + timedelta(days=1), limit=1)


async def test_an_artist_that_a_dead_process_had_claimed_is_checked_at_once(clock: MockClock) -> None:
    with watch_place() as place:
        async with place.service(interval_s=HOUR) as service:
            await watch(service, "a1")
            await service.transaction(die_with_an_artist)
        place.catalogue.asked.clear()
        async with place.service(interval_s=HOUR):
            await trio.sleep(2.0)

    assert [artist for _, artist in place.catalogue.asked] == ["a1"]
