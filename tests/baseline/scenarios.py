"""Three simulated runs whose events are compared between two versions: searches, a watched week and a day of feeds."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Callable
from typing import Any, Final

import trio

from cormorant.rules.search.outcomes import SourceUnavailable
from cormorant.rules.search.priorities import Priority
from cormorant.rules.settings.sources import SourceSettings
from cormorant.rules.settings.watch import FeedSettings
from cormorant.rules.watch.feeds import DueFeed, FeedEntryItem, FetchedFeed
from cormorant.testing import Recorder, in_line, memory_gateway, settings, simulated
from supervisors import open_service
from tests.conformance import days, test_simulated_days
from tests.conformance.watchlist import test_weeks, weeks
from tests.environments import environment_of

SEED: Final = 20_261_118
SEARCH_ACTIONS: Final = 60
WEEK_ACTIONS: Final = 30
FEEDS: Final = 12
DAY_S: Final = 86_400.0

Action = tuple[float, tuple[str, Any]]


def searches(seed: int = SEED) -> list[str]:
    """Searches at three sources that fail at random, with crashes, pauses, clock jumps, an outage and restarts."""
    simulation, chance = simulated(seed), random.Random(seed)
    limits = {name: SourceSettings(url=f"http://{name}.test/api", **_limits(chance)) for name in ("a", "b", "c")}
    actions = [_search_action(chance) for _ in range(SEARCH_ACTIONS)]
    with memory_gateway() as gateway:
        world = days.World(simulation, gateway, limits, 2, chance)
        simulation.run(test_simulated_days.live, world, actions)
    return world.events.lines()


def _limits(chance: random.Random) -> dict[str, Any]:
    return {
        "spacing_s": chance.choice([0.0, 2.0, 25.0]),
        "pace_s": chance.choice([0.0, 60.0]),
        "per_minute": chance.choice([None, 2, 6]),
        "per_hour": chance.choice([None, 3, 20]),
        "per_day": chance.choice([None, 4, 30]),
        "in_flight": chance.choice([1, 1, 2]),
    }


def _search_action(chance: random.Random) -> Action:
    name = chance.choice(["a", "b", "c"])
    search = {
        "names": chance.sample(["a", "b", "c"], chance.randint(1, 3)),
        "query": f"query {chance.randrange(6)}",
        "priority": chance.choice([None, *Priority]),
        "max_wait_s": chance.choice([None, None, 0.0, 10.0, 500.0]),
        "timeout_s": chance.choice([None, 2.0, 20.0]),
        "pace_s": chance.choice([None, None, None, 1.0, 200.0]),
    }
    others: list[tuple[str, Any]] = [
        ("cancel", chance.randrange(200)),
        ("crash_limiter", name),
        ("crash_dispatcher", None),
        ("pause", name),
        ("resume", name),
        ("reset", name),
        ("jump", chance.choice([-7200.0, -30.0, 20.0, 3_000.0, 90_000.0])),
        ("outage", chance.choice([0.5, 8.0, 45.0])),
        ("restart", None),
    ]
    chosen = ("search", search) if chance.random() < 0.5 else chance.choice(others)
    return chance.choice([0.0, 0.001, 0.7, 5.0, 40.0, 400.0]), chosen


def watched_week(seed: int = SEED) -> list[str]:
    """Artists that release, with a catalogue, sources and a target that fail at random, decisions by hand and restarts."""
    simulation, chance = simulated(seed), random.Random(seed)
    actions = [_week_action(chance) for _ in range(WEEK_ACTIONS)]
    with memory_gateway() as gateway:
        world = weeks.Weeks(simulation, gateway, "asked", chance)
        simulation.run(test_weeks.live, world, actions)
    return world.events.lines()


def _week_action(chance: random.Random) -> Action:
    choices: list[tuple[str, Any]] = [
        *[("release", (chance.choice(weeks.ARTISTS), chance.randrange(10)))] * 4,
        ("catalogue", chance.choice(weeks.CATALOGUE_MOODS)),
        ("source", (chance.choice(weeks.SOURCES), chance.choice(weeks.SOURCE_MOODS))),
        *[("target", chance.choice(weeks.TARGET_MOODS))] * 2,
        ("fate", (chance.choice(weeks.FATES), chance.choice([0.0, 5.0]))),
        ("fine", None),
        ("retry", chance.randrange(50)),
        ("ignore", chance.randrange(50)),
        ("hand over", chance.randrange(50)),
        ("settle", None),
        ("outage", chance.choice([5.0, 45.0])),
        ("restart", None),
        ("crash", None),
    ]
    gap_s = chance.choice([0.0, 0.15, 1.0, weeks.STEP_S, weeks.STEP_S, weeks.DAY_S])
    return gap_s, chance.choice(choices)


def feed_day(seed: int = SEED) -> list[str]:
    """A day of feeds on four hosts that fail and publish at random, with one restart at noon."""
    simulation, chance, recorder = simulated(seed), random.Random(seed), Recorder()

    async def fetch(due: DueFeed) -> FetchedFeed:
        await trio.sleep(chance.choice([0.0, 0.2, 4.0, 40.0]))
        if chance.random() < 0.2:
            raise SourceUnavailable("broken")
        count = int(trio.current_time() / 7_200)
        return FetchedFeed(items=tuple(_item(f"{due.name}-{number}") for number in range(count)))

    async def main() -> None:
        for _ in range(2):
            async with open_service(
                settings(feeds=_feeds()),
                environment=environment_of(
                    clock=simulation.clock,
                    chance=simulation.chance,
                    offload=in_line,
                    database=gateway,
                    listeners=[recorder],
                    feed=fetch,
                ),
            ):
                await trio.sleep(DAY_S / 2)

    with memory_gateway() as gateway:
        simulation.run(main)
    return recorder.lines()


def _item(key: str) -> FeedEntryItem:
    return FeedEntryItem(key=key, title=key, link=f"http://x.test/{key}")


def _feeds() -> dict[str, FeedSettings]:
    return {
        f"feed-{number}": FeedSettings(
            url=f"http://host{number % 4}.test/{number}", every_s=1_800.0 * (1 + number % 5), adaptive=number % 3 == 0
        )
        for number in range(FEEDS)
    }


def trace(scenario: Callable[[], list[str]]) -> str:
    """The events of a scenario, one per line, without the name of this process."""
    return "\n".join(scenario()).replace(f"{socket.gethostname()}.{os.getpid()}", "PROCESS") + "\n"


SCENARIOS: Final[dict[str, Callable[[], list[str]]]] = {
    "searches": searches,
    "watched_week": watched_week,
    "feed_day": feed_day,
}
