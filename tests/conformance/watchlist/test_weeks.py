"""Weeks of anything: whatever fails, stops and is decided by hand, each release is wanted once and is handed over once."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cormorant.testing import memory_gateway, simulated
from supervisors import Service
from tests.conformance.watchlist.watching import watch
from tests.conformance.watchlist.weeks import (
    ARTISTS,
    CATALOGUE_MOODS,
    DAY_S,
    FATES,
    SOURCE_MOODS,
    SOURCES,
    STEP_S,
    TARGET_MOODS,
    Weeks,
)

IS_SOAK = os.environ.get("SOAK") == "1"
EXAMPLES = 150 if IS_SOAK else 4
ACTIONS = 60 if IS_SOAK else 20

NUMBER = st.integers(0, 50)
ACTION = st.one_of(
    *[st.tuples(st.just("release"), st.tuples(st.sampled_from(ARTISTS), st.integers(0, 9)))] * 4,
    st.tuples(st.just("catalogue"), st.sampled_from(CATALOGUE_MOODS)),
    *[st.tuples(st.just("source"), st.tuples(st.sampled_from(SOURCES), st.sampled_from(SOURCE_MOODS)))] * 2,
    *[st.tuples(st.just("target"), st.sampled_from(TARGET_MOODS))] * 3,
    *[st.tuples(st.just("fate"), st.tuples(st.sampled_from(FATES), st.sampled_from([0.0, 5.0])))] * 2,
    st.tuples(st.just("fine"), st.none()),
    st.tuples(st.just("retry"), NUMBER),
    st.tuples(st.just("ignore"), NUMBER),
    st.tuples(st.just("hand over"), NUMBER),
    st.tuples(st.just("settle"), st.none()),
    st.tuples(st.just("outage"), st.sampled_from([5.0, 45.0])),
    st.tuples(st.just("restart"), st.none()),
    st.tuples(st.just("crash"), st.none()),
)
GAP_S = st.sampled_from([0.0, 0.0, 0.15, 1.0, STEP_S, STEP_S, DAY_S, DAY_S, 3 * DAY_S])


async def act(weeks: Weeks, service: Service, kind: str, what: Any) -> None:
    """Let one thing happen."""
    match kind:
        case "release":
            weeks.release(what[0], late_days=what[1])
        case "catalogue":
            weeks.catalogue.mood = what
        case "source":
            weeks.moods[what[0]] = what[1]
        case "target":
            weeks.target.mood = what
        case "fate":
            weeks.target.fate, weeks.target.shows_after_s = what
        case "fine":
            weeks.catalogue.mood = weeks.target.mood = "fine"
            weeks.moods = dict.fromkeys(SOURCES, "fine")
        case "settle":
            await weeks.settle(service)
        case "outage":
            weeks.gateway.go_away()
            await trio.sleep(what)
            weeks.gateway.come_back()
        case _:
            await weeks.by_hand(service, kind, what)


async def pass_time(weeks: Weeks, gap_s: float) -> None:
    """Live for a while, and jump over the rest."""
    if gap_s > STEP_S:
        weeks.simulation.clock.jump(gap_s - STEP_S)
    await trio.sleep(min(gap_s, STEP_S))


async def live(weeks: Weeks, actions: list[tuple[float, tuple[str, Any]]]) -> None:
    """Live through the actions, from restart to restart, and then let everything end."""
    left = list(actions)
    is_new = True
    while left:
        with trio.CancelScope() as life:
            async with weeks.service() as service:
                if is_new:
                    await watch(service, *ARTISTS)
                    is_new = False
                while left:
                    gap_s, (kind, what) = left.pop(0)
                    await pass_time(weeks, gap_s)
                    await weeks.check(service)
                    if kind == "restart":
                        break
                    if kind == "crash":
                        life.cancel()
                        await trio.lowlevel.checkpoint()
                    await act(weeks, service, kind, what)
    async with weeks.service() as service:
        await weeks.calm_down(service)


@pytest.mark.slow("whole services over simulated weeks; SOAK=1 for more of them")
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    seed=st.integers(0, 2**32 - 1),
    kind=st.sampled_from(["asked", "asked", "hold", "resend"]),
    actions=st.lists(st.tuples(GAP_S, ACTION), min_size=ACTIONS // 2, max_size=ACTIONS),
)
def test_each_release_is_wanted_once_and_handed_over_once_whatever_happens(
    seed: int, kind: str, actions: list[tuple[float, tuple[str, Any]]]
) -> None:
    simulation = simulated(seed)
    with memory_gateway() as gateway:
        weeks = Weeks(simulation, gateway, kind, random.Random(seed))
        simulation.run(live, weeks, actions)
