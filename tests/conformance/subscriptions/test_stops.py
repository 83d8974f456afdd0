"""A stop at any moment of a check, and several processes with one database: each item is wanted once, and none is lost."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import trio
from attrs import define, field
from sqlalchemy import Connection, text
from trio.testing import MockClock

from actors import SystemClock
from cormorant.rules.errors import CormorantError
from cormorant.rules.events import ChildCrashed
from cormorant.rules.watch.feeds import FetchedFeed, Subscription
from cormorant.services.watch.feeds import Feeds
from storage.database import Database, Mode, StorageOptions
from tests.bounds import WAIT_S
from tests.conformance.subscriptions.subscribing import (
    HOUR,
    SubscriptionPlace,
    page,
    prepared,
    subscribe,
    subscription_place,
)

Fetch = Callable[[Subscription], Awaitable[FetchedFeed]]
ITEMS = "abcdefghijklmnopqrstuv"
"""Two whole batches, and a bit."""
CHECKS_MIN = 10
"""How many checks two processes make at least, however slow they are."""
pytestmark = pytest.mark.slow("many short lives")


class StepCounter(trio.abc.Instrument):
    """Stops something after so many steps of all tasks."""

    def __init__(self, scope: trio.CancelScope, steps: int) -> None:
        self.scope = scope
        self.left = steps

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.left -= 1
        if self.left == 0:
            self.scope.cancel()


def kept(connection: Connection) -> tuple[list[str], int, int]:
    """What is wanted, how many items were seen, and how many checks are recorded."""
    titles = connection.execute(text("SELECT title FROM wants ORDER BY id")).scalars().all()
    seen = connection.execute(text("SELECT count(*) FROM subscription_items")).scalar_one()
    return list(titles), seen, connection.execute(text("SELECT count(*) FROM subscription_checks")).scalar_one()


async def stopped_after(place: SubscriptionPlace, steps: int) -> bool:
    """Whether the end came by itself, before so many steps."""
    with trio.CancelScope() as scope:
        counter = StepCounter(scope, steps)
        trio.lowlevel.add_instrument(counter)
        try:
            async with place.opened():
                await trio.sleep(30)
        finally:
            trio.lowlevel.remove_instrument(counter)
    return not scope.cancelled_caught


async def test_a_stop_after_any_step_of_a_check_loses_nothing_and_wants_nothing_twice(clock: MockClock) -> None:
    is_over, steps = False, 0
    with subscription_place() as place:
        place.feeds.takes_s["x.test"] = 2.0
        while not is_over:
            steps += 1
            name = f"stop-{steps}"
            place.feeds.scripts[f"http://x.test/{name}"] = [page(*(f"{name}: {each}" for each in ITEMS))]
            await prepared(place, name, first_check="take", every_s=365 * 24 * HOUR)
            is_over = await stopped_after(place, steps)
            async with place.opened():
                begun = await place.gateway.read(kept)
                await trio.sleep(1_000)
                ended = await place.gateway.read(kept)

            every, before = len(ITEMS) * steps, len(ITEMS) * (steps - 1)
            assert ended == ([f"stop-{n}: {each}" for n in range(1, steps + 1) for each in ITEMS], every, steps), name
            parts = [(ended[0][: before + some], before + some, steps - 1) for some in (0, 10, 20)]
            assert begun in (*parts, ended), name

    assert steps > 20


def shared(url: str, fetch: Fetch) -> SubscriptionPlace:
    """What one process has of a database that others use, too."""
    gateway = Database(StorageOptions(url=url), mode=Mode.THREADS, emit=lambda _: None, chance=random.Random(0))
    place = SubscriptionPlace(gateway, clock=SystemClock())  # type: ignore[arg-type]  # it is read in threads
    place.feeds = fetch  # type: ignore[assignment]  # they are asked alike
    return place


@define
class Growing:
    """Feeds in which there is more each time they are asked, whoever asks."""

    counts: Counter[str] = field(factory=Counter)
    running: set[int] = field(factory=set)
    twice: list[int] = field(factory=list)

    async def __call__(self, subscription: Subscription) -> FetchedFeed:
        """Be asked."""
        if subscription.id in self.running:
            self.twice.append(subscription.id)
        self.running.add(subscription.id)
        self.counts[subscription.name] += 1
        try:
            await trio.sleep(0.01)
        finally:
            self.running.discard(subscription.id)
        return page(*self.titles(subscription.name))

    def titles(self, name: str) -> list[str]:
        """All that it has now."""
        return [f"{name}: {number}" for number in range(self.counts[name])]


async def meddle(subscriptions: Feeds, chance: random.Random) -> None:
    """Pause, resume, check, give other times, add and remove, all at once with others who do."""
    for number in range(25):
        name = chance.choice("abc")
        one = await subscriptions.find(name)
        with suppress(CormorantError):
            match chance.choice(["pause", "resume", "check", "due", "due", "come and go"]):
                case "pause":
                    await subscriptions.pause(name)
                case "resume":
                    await subscriptions.resume(name)
                case "check":
                    await subscriptions.check_and_wait(name)
                case "due":
                    await subscriptions.reschedule(one.id)
                case _:
                    await subscribe(subscriptions, "z", host="z.test", every_s=60.0)
                    await trio.sleep(0.02 * (number % 3))
                    await subscriptions.remove("z")


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of the one kind, then of the other."""
    found: str = (
        f"sqlite:///{tmp_path}/shared.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    )
    return found


async def test_two_processes_and_whoever_meddles_want_each_item_once_and_check_none_twice_at_once(url: str) -> None:
    feeds = Growing()
    places = [shared(url, feeds), shared(url, feeds)]
    options: dict[str, Any] = {"domain_request_delay_s": 0.0}
    with trio.fail_after(WAIT_S):
        async with places[0].opened(**options) as one, places[1].opened(**options) as two:
            for name in "abc":
                await subscribe(one, name, host=f"{name}.test", first_check="take")
            seeds = count()
            while feeds.counts.total() <= CHECKS_MIN:
                async with trio.open_nursery() as nursery:
                    for each in (one, two, one, two):
                        nursery.start_soon(meddle, each, random.Random(next(seeds)))
            for name in "abc":
                await settled(two, name)
            titles, seen, _ = await places[0].gateway.read(kept)

    expected = sorted(title for name in "abc" for title in feeds.titles(name))
    assert sorted(title for title in titles if not title.startswith("z")) == expected
    assert seen >= len(expected) > CHECKS_MIN
    assert set(feeds.twice) == set()
    assert not [each for place in places for each in place.events.of(ChildCrashed)]


async def settled(subscriptions: Feeds, name: str) -> None:
    """Checked once more, by whichever process has it."""
    while True:
        with suppress(CormorantError):
            await subscriptions.pause(name)
            await subscriptions.check_and_wait(name)
            return
        await trio.sleep(0.05)
