"""What a tick could not finish is worked on by a later one, and no actor sleeps over what it has claimed itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate

import pytest
import trio
from attrs import define, field
from sqlalchemy import Connection, text
from trio.testing import MockClock
from typing_extensions import override

from cormorant.rules.events import TickCutOff
from cormorant.rules.settings.watch import FeedSettings
from cormorant.rules.watch.artists import Artist
from cormorant.rules.watch.feeds import DueFeed, FetchedFeed
from cormorant.rules.watch.handovers import Parcel, ParcelState, ParcelStatus
from cormorant.rules.watch.releases import AlbumPage
from cormorant.scripted import ScriptedCatalogue, ScriptedSource, ScriptedTarget, album
from cormorant.testing import SimulatedClock, in_line, memory_gateway, settings
from storage.database import Database
from storage.watch import artists
from supervisors import open_service
from tests.conformance.watchlist.watching import WatchPlace, watch, watch_place
from tests.environments import environment_of

HOUR = 3_600.0
DAY = 24 * HOUR

pytestmark = pytest.mark.slow("days of a whole service")


@define(eq=False)
class InterruptedTarget(ScriptedTarget):
    """A target that still works on the parcel, and calls functions after its next answer."""

    standing: ParcelState = ParcelState.RUNNING
    after_answer: list[Callable[[], None]] = field(factory=list)

    @override
    async def status(self, parcel: Parcel, receipt: ParcelStatus | None) -> ParcelStatus:
        said = await super().status(parcel, receipt)
        while self.after_answer:
            self.after_answer.pop()()
        return said


def place_with(place: WatchPlace, target: ScriptedTarget, *names: str) -> None:
    """A target, and an indexer with a release of each artist."""
    place.targets["qbittorrent"] = target
    for name in names:
        place.catalogue.scripts[name] = [[album(f"New {name}", "2026-01-01")]]
    place.sources["indexer"] = ScriptedSource([f"{name.upper()} - New {name} [FLAC]" for name in names])


async def test_a_handover_that_was_claimed_when_the_database_went_away_is_followed_afterwards(clock: MockClock) -> None:
    with watch_place("qbittorrent") as place:
        place_with(place, target := InterruptedTarget(), "a1")
        async with place.service() as service:
            await watch(service, "a1")
            await trio.sleep(100)
            target.after_answer.append(place.gateway.go_away)
            while target.after_answer:
                await trio.sleep(1)
            target.standing = ParcelState.DONE
            await trio.sleep(45)  # longer than a call waits for the database
            place.gateway.come_back()
            await trio.sleep(HOUR)

            assert [want.state.value for want in await service.wants.page()] == ["done"]


async def test_a_handover_that_a_clock_far_ahead_has_dated_is_followed_once_the_clock_is_right(
    clock: MockClock,
) -> None:
    with watch_place("qbittorrent") as place:
        place_with(place, target := InterruptedTarget(), "a1")
        async with place.service() as service:
            await watch(service, "a1")
            await trio.sleep(100)
            place.clock.jump(2 * DAY)
            await trio.sleep(300)
            place.clock.jump(-2 * DAY)
            target.looked.clear()
            await trio.sleep(120)

    assert target.looked


@define(eq=False)
class HangingTarget(InterruptedTarget):
    """A target that does not answer questions."""

    asked: list[str] = field(factory=list)

    @override
    async def status(self, parcel: Parcel, receipt: ParcelStatus | None) -> ParcelStatus:
        self.asked.append(parcel.key)
        await trio.sleep_forever()
        raise AssertionError


async def test_a_tick_begins_no_question_after_its_budget_and_the_next_tick_asks_the_others(clock: MockClock) -> None:
    names = [f"a{number}" for number in range(6)]
    with watch_place("qbittorrent") as place:
        place_with(place, target := HangingTarget(), *names)
        async with place.service() as service:
            await watch(service, *names)
            await trio.sleep(HOUR)

    assert place.events.of(TickCutOff) == []
    assert len(set(target.asked)) == len(names)


@define(eq=False)
class SlowCatalogue(ScriptedCatalogue):
    """A catalogue that takes longer than the budget of a tick, for a while."""

    is_slow: bool = True

    @override
    async def albums_page(self, artist: Artist, *, after: str | None, timeout_s: float) -> AlbumPage:
        page = await super().albums_page(artist, after=after, timeout_s=timeout_s)
        if self.is_slow:
            await trio.sleep(30)
        return page


async def test_artists_that_a_tick_could_not_release_during_an_outage_are_checked_later(clock: MockClock) -> None:
    with watch_place() as place:
        place.catalogue = catalogue = SlowCatalogue()
        async with place.service(every_s=HOUR) as service:
            await watch(service, "a1", "a2")
            while not catalogue.asked:
                await trio.sleep(0.1)
            await trio.sleep(7.5)  # just before the end of the budget
            place.gateway.go_away()
            catalogue.is_slow = False
            await trio.sleep(10)
            place.gateway.come_back()
            catalogue.asked.clear()
            await trio.sleep(2 * HOUR)

    assert {artist for _, artist in catalogue.asked} == {"a1", "a2"}


async def test_artists_whose_release_took_too_long_are_checked_later(
    clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Database.run
    with watch_place() as place:
        place.catalogue = catalogue = SlowCatalogue()

        async def late(
            self: Database, function: Callable[Concatenate[Connection, ...], Any], /, *args: Any, **words: Any
        ) -> Any:
            if function is artists.release and catalogue.is_slow:
                await trio.sleep(1.0)  # in line behind the write of another process
            return await run(self, function, *args, **words)

        monkeypatch.setattr(Database, "run", late)
        async with place.service(every_s=HOUR) as service:
            await watch(service, "a1", "a2")
            await trio.sleep(80)
            catalogue.is_slow = False
            catalogue.asked.clear()
            await trio.sleep(2 * HOUR)

    assert {artist for _, artist in catalogue.asked} == {"a1", "a2"}


@pytest.mark.parametrize("hold_s", [30.0, 120.0], ids=["an error ends the tick", "its scope ends the tick"])
async def test_a_feed_whose_check_met_an_outage_is_checked_on_time_afterwards(clock: MockClock, hold_s: float) -> None:
    asked: list[float] = []

    async def fetch(_: DueFeed) -> FetchedFeed:
        asked.append(trio.current_time())
        await trio.sleep(5)
        return FetchedFeed()

    with memory_gateway(hold_s=hold_s) as gateway:
        environment = environment_of(clock=SimulatedClock(), offload=in_line, database=gateway, feed=fetch)
        async with open_service(settings(), environment=environment) as service:
            await service.feeds.add("feed", FeedSettings(url="http://feed.test/", every_s=900.0))
            await trio.sleep(3)
            gateway.go_away()
            await trio.sleep(300)
            gateway.come_back()
            await trio.sleep(DAY)
            claims = await gateway.read(_claims)

    assert len(asked) >= DAY / 900.0
    assert claims == [None]


def _claims(connection: Connection) -> list[str | None]:
    return list(connection.execute(text("SELECT claimed_by FROM subscriptions")).scalars())
