"""What another process does to subscriptions is seen soon, not at the next look a minute later: on real databases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import SystemRandom

import pytest
import trio
from attrs import define, field

from actors import SystemClock
from cormorant.rules.ports import ignore
from cormorant.rules.schedules import Schedule
from cormorant.rules.settings.watch import FeedSettings, SubscriptionSettings
from cormorant.rules.watch.feeds import DueFeed, FetchedFeed, Subscription
from cormorant.testing import settings
from storage.database import Database, Mode, StorageOptions
from storage.watch import feeds as subscriptions
from storage.watch import watches
from storage.watch.feeds import FEED
from supervisors import open_service
from tests.environments import environment_of

SOON_S = 50.0
"""Shorter than the minute between two looks, which would find it too. It usually takes less than a second."""
HOURLY = Schedule(every_s=3_600)

pytestmark = pytest.mark.slow("real threads and files")


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'shared.db'}"
    else:
        yield request.getfixturevalue("postgres_url")


@define
class Feeds:
    """Notes who asks."""

    asked: list[str] = field(factory=list)

    async def __call__(self, subscription: DueFeed) -> FetchedFeed:
        await trio.lowlevel.checkpoint()
        self.asked.append(subscription.name)
        return FetchedFeed()

    async def until(self, *names: str) -> None:
        with trio.fail_after(SOON_S):
            while self.asked != list(names):
                await trio.sleep(0.005)


def database(url: str) -> Database:
    return Database(StorageOptions(url=url), mode=Mode.THREADS, emit=ignore, chance=SystemRandom())


async def test_what_another_process_subscribes_to_reschedules_or_resumes_is_checked_soon(url: str) -> None:
    feeds, other, now = Feeds(), database(url), SystemClock().now
    chosen = settings(subscriptions=SubscriptionSettings(domain_request_delay_s=0.0))
    new = Subscription(name="new", url="http://x.test/", schedule=HOURLY, next_attempt_at=now(), added_at=now())
    async with (
        open_service(chosen, environment=environment_of(database=database(url), feed=feeds)),
        trio.open_nursery() as nursery,
    ):
        await nursery.start(other)
        made = (await other.run(watches.add_all, FEED, [new]))[0]
        await feeds.until("new")
        await other.run(subscriptions.reschedule, made.id, now())
        await feeds.until("new", "new")
        await other.run(watches.set_paused, FEED, "new", is_paused=True, now=now())
        await other.run(watches.set_paused, FEED, "new", is_paused=False, now=now())
        await feeds.until("new", "new", "new")
        other.stop()


async def test_what_is_subscribed_to_in_the_same_process_is_checked_at_once(tmp_path: Path) -> None:
    feeds = Feeds()
    async with open_service(
        settings(), environment=environment_of(database=database(f"sqlite:///{tmp_path / 'own.db'}"), feed=feeds)
    ) as service:
        await service.feeds.add("first", FeedSettings(url="http://x.test/", every_s=3_600.0))
        await feeds.until("first")  # past the first look
        await service.feeds.add("own", FeedSettings(url="http://y.test/", every_s=3_600.0))
        await feeds.until("first", "own")
