"""The messages between callers, dispatcher and limiters: every promise holds, whatever fails at whichever step."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cormorant.rules.search.priorities import Priority
from cormorant.rules.settings.sources import SourceSettings
from cormorant.testing import memory_gateway, simulated
from supervisors import Service
from tests.conformance.protocol import QUEUE_MAX, Protocol

IS_SOAK = os.environ.get("SOAK") == "1"
EXAMPLES = 1_500 if IS_SOAK else 60
ACTIONS = 80 if IS_SOAK else 40
NAMES = ("a", "b", "c")
STEPS = 24
"""The steps of the scene, about. Each fault is tried at each of them."""
ONE_AT_A_TIME = {"spacing_s": 0.0, "pace_s": 0.0, "in_flight": 1}
UNLIMITED = {"spacing_s": 0.0, "pace_s": 0.0}

Gap = tuple[str, float]
"""Steps of the scheduler, or seconds."""
Action = tuple[Gap, tuple[str, Any]]

CHANGES = (("pause",), ("resume",), ("reset",), ("pause", "resume"), ("resume", "pause"))
"""What people do to a source at the same moment."""

NAME = st.sampled_from(NAMES)
SEARCH = st.fixed_dictionaries(
    {
        "names": st.lists(NAME, min_size=1, max_size=3, unique=True),
        "query": st.sampled_from(["one", "two", "three"]),
        "priority": st.sampled_from([None, *Priority]),
        "max_wait_s": st.sampled_from([None, None, 0.0, 0.3, 20.0]),
        "timeout_s": st.sampled_from([None, 2.0]),
        "waits": st.booleans(),
    }
)
ACTION = st.one_of(
    *[st.tuples(st.just("search"), SEARCH)] * 6,
    *[st.tuples(st.sampled_from(["cancel", "leave"]), st.integers(0, 50))] * 2,
    *[st.tuples(st.just("change"), st.tuples(NAME, st.sampled_from(CHANGES)))] * 3,
    *[st.tuples(st.just("crash_limiter"), NAME)] * 2,
    st.tuples(st.sampled_from(["crash_dispatcher", "crash_callbacks", "recheck"]), st.none()),
    st.tuples(st.just("set_aside"), NAME),
    st.tuples(st.just("edit"), st.sampled_from(["add", "remove", "change"])),
    st.tuples(st.sampled_from(["go_away", "come_back"]), st.none()),
    st.tuples(st.just("doubt"), st.booleans()),
)
GAP = st.one_of(
    *[st.tuples(st.just("steps"), st.integers(0, 6).map(float))] * 2,
    st.tuples(st.just("seconds"), st.sampled_from([0.001, 0.005, 0.1, 0.6, 3.0, 35.0])),
)
LIMITS = st.fixed_dictionaries(
    {
        "spacing_s": st.sampled_from([0.0, 0.0, 2.0]),
        "pace_s": st.just(0.0),
        "per_minute": st.sampled_from([None, None, 3]),
        "in_flight": st.sampled_from([1, 1, 2]),
    }
)


def act(world: Protocol, service: Service, doing: trio.Nursery, kind: str, what: Any) -> None:
    """Begin to do one thing. What takes time goes on beside the others."""
    match kind:
        case "search":
            how = {name: value for name, value in what.items() if value is not None}
            doing.start_soon(lambda: world.submit(service, how.pop("names"), how.pop("query"), **how))
        case "cancel" if world.searches:
            world.searches[what % len(world.searches)].cancel()
        case "leave" if world.callers:
            world.callers[what % len(world.callers)].cancel()
        case "change":
            name, verbs = what
            for verb in verbs:
                doing.start_soon(world.change, service, name, verb)
        case "edit":
            doing.start_soon(world.edit, service, what)
        case "crash_limiter" | "set_aside" | "crash_dispatcher" | "crash_callbacks" | "recheck":
            getattr(world, kind)(service, *([] if what is None else [what]))
        case "go_away" | "come_back":
            getattr(world.gateway, kind)()
        case "doubt":
            world.doubts.append(what)
        case _:
            assert kind in {"cancel", "leave"}, "and there is nothing to cancel yet"


async def pass_gap(gap: Gap) -> None:
    """Let the others take so many steps, or let time pass."""
    kind, amount = gap
    if kind == "seconds":
        await trio.sleep(amount)
        return
    for _ in range(int(amount)):
        await trio.lowlevel.checkpoint()


async def live(world: Protocol, actions: list[Action], *, is_calm_at_end: bool) -> None:
    """Do everything at its step; then let all end, or stop in the middle of it."""
    trio.lowlevel.add_instrument(world.steps)
    async with world.service() as service:
        await world.edit(service, "add")
        await trio.sleep(1)
        async with trio.open_nursery() as doing:
            for gap, (kind, what) in actions:
                await pass_gap(gap)
                act(world, service, doing, kind, what)
            if is_calm_at_end:
                await world.calm_down(service)
            doing.cancel_scope.cancel()
    world.assert_ended()


def run(  # noqa: PLR0913 - what differs between two runs
    actions: list[Action],
    *,
    seed: int = 1,
    limits: dict[str, dict[str, Any]] | None = None,
    slots: int = 2,
    lag_s: float = 0.0,
    has_cache: bool = False,
    is_calm_at_end: bool = True,
) -> Protocol:
    """One run of the protocol."""
    simulation = simulated(seed)
    named = {
        name: SourceSettings(url=f"http://{name}.test/api", **each)
        for name, each in (limits or dict.fromkeys(NAMES, UNLIMITED)).items()
    }
    with memory_gateway() as gateway:
        world = Protocol(simulation, gateway, named, slots, random.Random(seed), lag_s=lag_s, has_cache=has_cache)
        simulation.run(lambda: live(world, actions, is_calm_at_end=is_calm_at_end))
    return world


@pytest.mark.slow("whole services, each with dozens of faults; SOAK=1 for more of them")
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    seed=st.integers(0, 2**32 - 1),
    limits=st.fixed_dictionaries(dict.fromkeys(NAMES, LIMITS)),
    slots=st.integers(1, 3),
    lag_s=st.sampled_from([0.0, 0.0, 0.05, 0.7]),
    has_cache=st.booleans(),
    is_calm_at_end=st.sampled_from([True, True, False]),
    actions=st.lists(st.tuples(GAP, ACTION), min_size=ACTIONS // 2, max_size=ACTIONS),
)
def test_every_promise_of_the_protocol_holds_whatever_happens(actions: list[Action], **chosen: Any) -> None:
    run(actions, **chosen)


SCENE: list[Action] = [
    (("steps", 0), ("search", {"names": ["a", "c"], "query": "one", "waits": True, "max_wait_s": 20.0})),
    (("steps", 1), ("search", {"names": ["a"], "query": "one", "waits": True, "priority": Priority.INTERACTIVE})),
    (("steps", 1), ("search", {"names": ["c", "b"], "query": "two", "waits": False})),
    (("seconds", 0.004), ("search", {"names": ["a", "b", "c"], "query": "three", "waits": False})),
]
FAULTS: list[tuple[str, Any]] = [
    ("crash_limiter", "a"),
    ("crash_dispatcher", None),
    ("crash_callbacks", None),
    ("set_aside", "c"),
    ("leave", 0),
    ("cancel", 0),
    ("change", ("a", ("pause", "resume"))),
    ("edit", "remove"),
    ("edit", "change"),
    ("go_away", None),
    ("doubt", False),
    ("doubt", True),
]


@pytest.mark.slow("a whole service for each step")
@pytest.mark.parametrize(("kind", "what"), FAULTS)
def test_every_promise_holds_when_one_thing_fails_at_any_step(kind: str, what: Any) -> None:
    for step in range(STEPS):
        run([*SCENE, (("steps", step), (kind, what))], seed=step, slots=1, limits=dict.fromkeys(NAMES, ONE_AT_A_TIME))


@pytest.mark.slow("a whole service for each number of crashes")
@pytest.mark.parametrize("crashes", [1, 2, 4])
def test_a_limiter_that_restarts_reads_all_that_came_meanwhile_before_it_decides(crashes: int) -> None:
    search = {"names": ["a"], "waits": False, "max_wait_s": None}
    each = [(("seconds", 0.006), ("search", {**search, "query": f"{number}"})) for number in range(QUEUE_MAX)]

    world = run([*[(("steps", 0), ("crash_limiter", "a"))] * crashes, *each, (("seconds", 0.006), ("cancel", 0))])

    assert len(world.sites["a"].asked) == QUEUE_MAX - 1


def test_a_run_without_faults_asks_once_for_equal_searches_and_answers_all() -> None:
    search = {"names": ["a", "b"], "query": "one", "priority": None, "max_wait_s": None, "waits": False}

    world = run([(("steps", 0), ("search", search))] * 3)

    assert [outcome.status.value for each in world.searches for outcome in each.outcomes] == ["found"] * 6
    assert [len(world.sites[name].asked) for name in NAMES] == [1, 1, 0]
