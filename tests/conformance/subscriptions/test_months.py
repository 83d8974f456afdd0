"""Months of subscriptions by chance: failures, slow hosts, restarts, crashes, jumps of the clock, pauses, checks by hand."""

from __future__ import annotations

import os
import random
from datetime import timedelta
from typing import Final

import pytest
import trio
from attrs import define, field, frozen
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, text
from trio.testing import MockClock

from cormorant.rules.errors import CormorantError
from cormorant.rules.schedules import Schedule
from cormorant.rules.search.outcomes import SourceUnavailable
from cormorant.rules.settings.watch import FeedSettings
from cormorant.rules.watch.feeds import DueFeed, FetchedFeed
from cormorant.services.watch.feeds import Feeds
from tests.conformance.subscriptions.subscribing import HOUR, SubscriptionPlace, page, subscription_place

IS_SOAK: Final = os.environ.get("SOAK") == "1"
DAY: Final = 24 * HOUR
APART_S: Final = 1.0
LATE_S: Final = 2 * HOUR
"""A claim of a ticker that crashed runs out, and the next look comes."""
QUIET_S: Final = 4 * DAY
ASKED_WITHIN_S: Final = DAY + 3 * HOUR
"""After failures the longest interval is a day."""
SCHEDULES: Final = [
    Schedule(every_s=HOUR),
    Schedule(every_s=6 * HOUR),
    Schedule(every_s=DAY),
    Schedule(cron="30 2 * * *", zone="Europe/Berlin"),
    Schedule(cron="0 */6 * * *", zone="Australia/Lord_Howe"),
]


@frozen
class Feed:
    """How one feed behaves: its host, how often something is new, how often it fails and how long it takes."""

    schedule: Schedule
    host: int
    new_every_s: float
    fails: float
    takes_s: float
    is_adaptive: bool


@define
class World:
    """All feeds. Notes what must not be."""

    place: SubscriptionPlace
    feeds: list[Feed]
    chance: random.Random
    is_calm: bool = False
    mistakes: int = 0
    wrongs: list[str] = field(factory=list)
    asked_at: dict[str, float] = field(factory=dict)
    running: set[str] = field(factory=set)
    hosts: dict[int, float] = field(factory=dict)
    """When each was left alone last; endless while it is asked."""

    def feed_of(self, name: str) -> Feed:
        return self.feeds[int(name.removeprefix("feed "))]

    def go_wrong(self, what: str) -> None:
        """A mistake fails the next check; a crash ends the ticker."""
        self.mistakes, self.place.crashes = int(what == "mistake"), int(what == "crash")

    def now_there(self, name: str) -> list[str]:
        """What a feed shows: all it ever had."""
        count = int(trio.current_time() / self.feed_of(name).new_every_s)
        return [f"{name}/{number}" for number in range(count)]

    async def fetch(self, subscription: DueFeed) -> FetchedFeed:
        """Be asked."""
        name, feed = subscription.name, self.feed_of(subscription.name)
        began = self.asked_at[name] = trio.current_time()
        if began < self.hosts.get(feed.host, -DAY) + APART_S - 1e-6:
            self.wrongs.append(f"host {feed.host} was asked too soon at {began}")
        if name in self.running:
            self.wrongs.append(f"{name} was checked twice at once at {began}")
        self.running.add(name)
        self.hosts[feed.host] = float("inf")
        try:
            await trio.sleep(0.0 if self.is_calm else feed.takes_s * self.chance.random())
        finally:
            self.running.discard(name)
            self.hosts[feed.host] = trio.current_time()
        if self.mistakes:
            self.mistakes -= 1
            raise ZeroDivisionError("a mistake")
        if not self.is_calm and self.chance.random() < feed.fails:
            raise SourceUnavailable("it is broken")
        return page(*self.now_there(name))


feeds = st.builds(
    Feed,
    st.sampled_from(SCHEDULES),
    st.integers(0, 2),
    st.sampled_from([5 * HOUR, DAY, 9 * DAY]),
    st.sampled_from([0.0, 0.2, 0.9]),
    st.sampled_from([0.0, 10.0, 45.0]),
    st.booleans(),
)
steps = st.tuples(
    st.sampled_from(["wait", "restart", "crash", "mistake", "ahead", "back", "pause", "resume", "check", "check all"]),
    st.floats(0.001, 80.0).map(lambda hours: hours * HOUR),
)


ONE_HOST = Feed(Schedule(every_s=HOUR), 0, 5 * HOUR, 0.0, 0.0, is_adaptive=False)
"""Two of these and a crash: the host is left alone, although another ticker asks next."""


@pytest.mark.slow("some months of some feeds")
@settings(max_examples=50 if IS_SOAK else 3, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(feeds, min_size=2, max_size=8),
    st.lists(steps, min_size=5, max_size=30 if IS_SOAK else 10),
    st.integers(0, 2**32),
)
@example(
    known=[ONE_HOST] * 2, told=[("wait", 3_600.036), *[("wait", HOUR)] * 2, ("crash", HOUR), ("wait", HOUR)], seed=0
)
def test_for_months_none_is_forgotten_or_checked_twice_and_every_item_is_taken_once(
    known: list[Feed], told: list[tuple[str, float]], seed: int
) -> None:
    trio.run(live, known, told, seed, clock=MockClock(autojump_threshold=0))


def name_of(number: int) -> str:
    return f"feed {number}"


async def live(known: list[Feed], told: list[tuple[str, float]], seed: int) -> None:
    with subscription_place() as place:
        world = World(place, known, random.Random(seed))
        place.feeds = world.fetch  # type: ignore[assignment]  # they are asked alike
        async with place.opened() as subscriptions:
            for number, feed in enumerate(known):
                options = FeedSettings(
                    url=f"http://h{feed.host}.test/{number}",
                    every_s=feed.schedule.every_s,
                    cron=feed.schedule.cron or "",
                    zone=feed.schedule.zone,
                    first_check="take",
                    adaptive=feed.is_adaptive,
                )
                await subscriptions.add(name_of(number), options)
        left = list(told)
        while left:
            world.hosts.clear()  # a new ticker does not know when the old one asked
            async with place.opened() as subscriptions, trio.open_nursery() as nursery:
                await play(world, subscriptions, nursery, left)
                nursery.cancel_scope.cancel()
        world.hosts.clear()
        async with place.opened() as subscriptions:
            await end_well(world, subscriptions)
        assert world.wrongs == []


async def play(world: World, subscriptions: Feeds, nursery: trio.Nursery, left: list[tuple[str, float]]) -> None:
    """Do what comes until a restart."""
    while left:
        what, wait_s = left.pop(0)
        name = name_of(world.chance.randrange(len(world.feeds)))
        match what:
            case "restart":
                return
            case "mistake" | "crash":
                world.go_wrong(what)
            case "ahead" | "back":
                world.place.clock.jump(wait_s if what == "ahead" else -wait_s)
            case "pause":
                await subscriptions.pause(name)
            case "resume":
                await subscriptions.resume(name)
            case "check" | "check all":
                for each in [name] if what == "check" else map(name_of, range(len(world.feeds))):
                    nursery.start_soon(by_hand, subscriptions, each)
            case _:
                assert what == "wait"
        await trio.sleep(wait_s)
        if wait_s > 2 * LATE_S:
            await none_is_late(world, subscriptions)


async def by_hand(subscriptions: Feeds, name: str) -> None:
    try:
        await subscriptions.check_and_wait(name)
    except CormorantError:
        return


async def none_is_late(world: World, subscriptions: Feeds) -> None:
    now = world.place.clock.now()
    for each in await subscriptions.page():
        if each.is_paused:
            assert each.paused_because
        elif each.next_attempt_at < now - timedelta(seconds=LATE_S):
            world.wrongs.append(f"{each.name} was due at {each.next_attempt_at}, now it is {now}")


async def end_well(world: World, subscriptions: Feeds) -> None:
    """When all is calm, all are checked, and what they show is wanted, once."""
    world.is_calm, world.mistakes, world.place.crashes = True, 0, 0
    await trio.sleep(QUIET_S)
    await none_is_late(world, subscriptions)
    expected = set()
    for each in await subscriptions.page():
        if not each.is_paused:
            assert trio.current_time() - world.asked_at[each.name] <= ASKED_WITHIN_S
        check = await subscriptions.check_and_wait(each.name)
        assert check.error is None
        expected |= set(world.now_there(each.name))
    assert set(await world.place.gateway.read(wanted)) == expected
    assert sorted(world.place.taken) == sorted(expected)


def wanted(connection: Connection) -> list[str]:
    return list(connection.execute(text("SELECT title FROM wants")).scalars())
