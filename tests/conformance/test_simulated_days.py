"""Days of anything: whatever people, sources, crashes, clocks and restarts do, no limit is broken and no outcome is lost."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cormorant.rules.search.outcomes import OutcomeStatus
from cormorant.rules.search.priorities import Priority
from cormorant.rules.settings.sources import SourceSettings
from cormorant.testing import ScriptedSource, memory_gateway, simulated
from supervisors import Service
from tests.conformance.days import World
from tests.conformance.searching import SearchPlace, all_of

IS_SOAK = os.environ.get("SOAK") == "1"
EXAMPLES = 300 if IS_SOAK else 12
ACTIONS = 80 if IS_SOAK else 40
NAMES = ("a", "b", "c")

NAME = st.sampled_from(NAMES)
SEARCH = st.fixed_dictionaries(
    {
        "names": st.lists(NAME, min_size=1, max_size=3, unique=True),
        "query": st.sampled_from([f"query {number}" for number in range(6)]),
        "priority": st.sampled_from([None, *Priority]),
        "max_wait_s": st.sampled_from([None, None, 0.0, 10.0, 500.0]),
        "timeout_s": st.sampled_from([None, 2.0, 20.0]),
        "pace_s": st.sampled_from([None, None, None, 1.0, 200.0]),
    }
)
ACTION = st.one_of(
    *[st.tuples(st.just("search"), SEARCH)] * 8,
    st.tuples(st.just("cancel"), st.integers(0, 200)),
    st.tuples(st.just("crash_limiter"), NAME),
    st.tuples(st.just("crash_dispatcher"), st.none()),
    st.tuples(st.just("pause"), NAME),
    st.tuples(st.just("resume"), NAME),
    st.tuples(st.just("reset"), NAME),
    st.tuples(st.just("jump"), st.sampled_from([-7200.0, -30.0, 20.0, 3_000.0, 90_000.0])),
    st.tuples(st.just("outage"), st.sampled_from([0.5, 8.0, 45.0])),
    st.tuples(st.just("restart"), st.none()),
)
GAP_S = st.sampled_from([0.0, 0.0, 0.001, 0.7, 5.0, 40.0, 400.0])
LIMITS = st.fixed_dictionaries(
    {
        "spacing_s": st.sampled_from([0.0, 2.0, 25.0]),
        "pace_s": st.sampled_from([0.0, 60.0]),
        "per_minute": st.sampled_from([None, 2, 6]),
        "per_hour": st.sampled_from([None, 3, 20]),
        "per_day": st.sampled_from([None, 4, 30]),
        "in_flight": st.sampled_from([1, 1, 1, 2]),
    }
)


async def act(world: World, service: Service, kind: str, what: Any) -> None:
    """Do one thing."""
    match kind:
        case "search":
            how = {name: value for name, value in what.items() if value is not None and name not in {"names", "query"}}
            await world.search(service, what["names"], what["query"], **how)
        case "cancel" if world.followed:
            world.followed[what % len(world.followed)].search.cancel()
        case "crash_limiter":
            world.crash_limiter(service, what)
        case "crash_dispatcher":
            world.crash_dispatcher(service)
        case "pause":
            await service.pause_source(what)
            world.sites[what].paused_since = trio.current_time()
        case "resume":
            world.sites[what].paused_since = None
            await service.resume_source(what)
        case "reset":
            world.sites[what].vouched()
            await service.reset_source(what)
        case "jump":
            world.simulation.clock.jump(what)
        case "outage":
            world.gateway.go_away()
            await trio.sleep(what)
            world.gateway.come_back()
        case _:
            assert kind == "cancel", "and there is nothing to cancel yet"


async def live(world: World, actions: list[tuple[float, tuple[str, Any]]]) -> None:
    """Live through the actions, from restart to restart, and then let everything end."""
    left = list(actions)
    while left:
        async with world.service() as service:
            while left:
                gap_s, (kind, what) = left.pop(0)
                await trio.sleep(gap_s)
                if kind == "restart":
                    break
                await act(world, service, kind, what)
            if not left:
                await world.calm_down(service)
    world.assert_whole()


@pytest.mark.slow("whole services over simulated days; SOAK=1 for more of them")
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    seed=st.integers(0, 2**32 - 1),
    limits=st.fixed_dictionaries(dict.fromkeys(NAMES, LIMITS)),
    slots=st.integers(1, 3),
    actions=st.lists(st.tuples(GAP_S, ACTION), min_size=ACTIONS // 2, max_size=ACTIONS),
)
def test_no_limit_is_broken_and_no_outcome_is_lost_whatever_happens(
    seed: int, limits: dict[str, dict[str, Any]], slots: int, actions: list[tuple[float, tuple[str, Any]]]
) -> None:
    simulation = simulated(seed)
    named = {name: SourceSettings(url=f"http://{name}.test/api", **each) for name, each in limits.items()}
    with memory_gateway() as gateway:
        world = World(simulation, gateway, named, slots, random.Random(seed))
        simulation.run(live, world, actions)


@pytest.mark.slow("hours of a person who searches on and on")
@settings(max_examples=30 if IS_SOAK else 4, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    pace_s=st.sampled_from([30.0, 60.0, 120.0]),
    spacing_s=st.sampled_from([0.0, 2.0, 15.0]),
    every_s=st.sampled_from([3.0, 6.0, 20.0]),
    takes_s=st.sampled_from([0.0, 1.0, 8.0]),
)
def test_background_is_served_within_the_bound_whoever_else_searches(
    seed: int, pace_s: float, spacing_s: float, every_s: float, takes_s: float
) -> None:
    simulation = simulated(seed)

    async def main() -> float:
        place = SearchPlace(gateway, {"a": ScriptedSource(takes_s=takes_s)}, simulation.clock)
        limits = {"pace_s": pace_s, "spacing_s": spacing_s}
        async with place.service(limits) as service, trio.open_nursery() as nursery:
            nursery.start_soon(search_on, service, every_s)
            await trio.sleep(10)
            (outcome,) = await all_of(await service.search("x", priority=Priority.BACKGROUND, max_wait_s=9_000))
            nursery.cancel_scope.cancel()
        assert outcome.status is OutcomeStatus.FOUND
        return outcome.waited_s

    with memory_gateway() as gateway:
        waited_s = simulation.run(main)

    interval_s = max(spacing_s, 0.1 * pace_s) + takes_s
    assert waited_s <= 3 * 300 + interval_s + takes_s + 0.01


async def search_on(service: Service, every_s: float) -> None:
    """A person who never stops."""
    number = 0
    while True:
        number += 1
        await service.search(f"person {number}", priority=Priority.INTERACTIVE, max_wait_s=30.0)
        await trio.sleep(every_s)
