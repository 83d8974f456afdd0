"""Each search goes by its own terms: its pace, its rank while it waits, the time-out of its source, and what others found."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from actors.search.waiting import SlotWaiters
from cormorant.rules.ports import ignore
from cormorant.rules.search.outcomes import OutcomeStatus
from cormorant.rules.search.priorities import Priority
from cormorant.rules.search.slots import SlotPool
from cormorant.rules.settings.settings import SearchSettings
from cormorant.testing import TIMEOUT, ScriptedSource
from storage.database import Database, Mode, StorageOptions
from tests.conformance.searching import SearchPlace, all_of, search_place, settle

INTERACTIVE, RSS, COMPLETION, BACKGROUND = Priority


@pytest.mark.slow("two services on one file")
@pytest.mark.parametrize("own", [False, True])
async def test_what_another_process_has_found_meanwhile_is_not_asked_again(
    clock: MockClock, tmp_path: Path, *, own: bool
) -> None:
    options = StorageOptions(url=f"sqlite:///{tmp_path}/shared.db")
    gateways = [Database(options, mode=Mode.INLINE, emit=ignore, chance=random.Random(0)) for _ in range(2)]
    source = ScriptedSource(["x"], takes_s=1.0)
    places = [SearchPlace(gateway, {"a": source}) for gateway in gateways]
    execute = source if own else None
    async with places[0].service({"spacing_s": 50.0}) as one, places[1].service({"spacing_s": 50.0}) as other:
        searches = [await service.search("same", execute=execute) for service in (one, other)]
        outcomes = [(await all_of(search))[0] for search in searches]

    assert [outcome.status for outcome in outcomes] == ["found", "found"]
    assert sum(outcome.is_cached for outcome in outcomes) == (not own), "either may be the first"
    assert len(source.asked_at) == (2 if own else 1), "what an own function finds is kept for nobody"


@pytest.mark.parametrize(("timeout_s", "asked_s"), [(3.0, None), (100.0, 2.0)])
async def test_a_request_may_take_as_long_as_its_source_and_its_search_allow(
    clock: MockClock, timeout_s: float, asked_s: float | None
) -> None:
    with search_place(a=ScriptedSource(TIMEOUT)) as place:
        async with place.service({"timeout_s": timeout_s}) as service:
            (outcome,) = await all_of(await service.search("x", priority=BACKGROUND, timeout_s=asked_s))

    assert (outcome.status, outcome.took_s) == (OutcomeStatus.FAILED, asked_s or timeout_s)


async def test_when_an_urgent_follower_leaves_the_request_ranks_as_those_who_are_left(clock: MockClock) -> None:
    with search_place(a=ScriptedSource(["x"], takes_s=4.0)) as place:
        async with place.service() as service:
            await service.search("running")
            await trio.sleep(1)
            middle = await service.search("middle", priority=COMPLETION)
            shared = await service.search("shared", max_wait_s=100)
            await trio.sleep(0.01)
            person = await service.search("shared", priority=INTERACTIVE)
            await trio.sleep(0.01)
            person.cancel()
            for search in (middle, shared):
                await all_of(search)

    assert [request.query for request in place.sources["a"].requests] == ["running", "middle", "shared"]


async def test_the_slot_kept_for_people_goes_to_nobody_else_when_the_person_has_left(clock: MockClock) -> None:
    sources = {"a": ScriptedSource(takes_s=10.0), "b": ScriptedSource(), "c": ScriptedSource(takes_s=5.0)}
    with search_place(**sources) as place:
        async with place.service(search=SearchSettings(slots=2)) as service:
            await service.search("slow", sources=["a"])
            await trio.sleep(0.1)
            await service.search("now", priority=INTERACTIVE, sources=["c"])
            await trio.sleep(1)
            waits = await service.search("later", sources=["b"])
            person = await service.search("soon", priority=INTERACTIVE, sources=["b"])
            await trio.sleep(1)
            person.cancel()
            await all_of(waits)

    assert sources["b"].asked_at == [10.005]


async def test_a_slot_granted_for_a_person_who_left_at_that_moment_is_given_back(clock: MockClock) -> None:
    slots = SlotWaiters(SlotPool(slots=2))
    assert slots.acquire_nowait("a", (BACKGROUND, 1), is_for_people=False)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(slots.acquire_for, "b", ((INTERACTIVE, 3), True), lambda: ((BACKGROUND, 2), False))
        await settle()
        taken = slots.pool.taken
        slots.free("a")
    slots.free("b")

    assert (taken, slots.pool.taken) == (1, 0)


@pytest.mark.parametrize("paces_s", [(1000.0, 10.0), (10.0, 1000.0), (None, 10.0)])
async def test_each_search_is_judged_by_its_own_pace(clock: MockClock, paces_s: tuple[float | None, float]) -> None:
    with search_place(a=ScriptedSource(["x"])) as place:
        async with place.service({"pace_s": 500.0}) as service:
            await all_of(await service.search("first"))
            searches = [
                await service.search(f"with {pace_s}", pace_s=pace_s, priority=BACKGROUND, max_wait_s=50)
                for pace_s in paces_s
            ]
            await trio.sleep(1)
            told = [search.is_done for search in searches]
            outcomes = [(await all_of(search))[0].status.value for search in searches]

    expected = ["found" if pace_s == 10.0 else "rate_limited" for pace_s in paces_s]
    assert outcomes == expected
    assert told == [status == "rate_limited" for status in expected], "who cannot go in time is told at once"
