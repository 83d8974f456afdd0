"""The share of an app is a reason like any other: told at once, explained, and no other app waits for it."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio
from attrs import evolve
from trio.testing import MockClock

from actors.search.search import Terms
from cormorant.rules.search.limits import Lane
from cormorant.rules.search.outcomes import Outcome, OutcomeStatus, RateLimitWaitError
from cormorant.rules.search.priorities import Priority
from cormorant.rules.search.requests import SearchRequest
from cormorant.rules.settings.settings import SearchSettings
from cormorant.testing import ScriptedSource
from supervisors import Service
from tests.conformance.searching import search_place

DAY_S = 86_400.0
UNCACHED = {"search": SearchSettings(cache_enabled=False)}


async def ask(service: Service, words: str, app: str, share: float = 1.0, **chosen: Any) -> Outcome:
    """Search as an app whose share is limited."""
    terms = Terms(timeout_s=60.0, consumer=app, share=share)
    (outcome,) = await service.sources.outcomes(
        SearchRequest(query=words), evolve(terms, **({"max_wait_s": 60.0} | chosen)), sources=["a"]
    )
    return outcome


def reasons(service: Service, app: str, share: float) -> list[str]:
    return [reason.name.value for reason in service.sources.explain("a", app=app, share=share).reasons]


async def test_an_app_that_has_used_its_share_is_told_at_once_until_when(clock: MockClock) -> None:
    with search_place(a=ScriptedSource(["x"])) as place:
        async with place.service({"per_day": 8, "spacing_s": 30.0}) as service:
            answered = [(await ask(service, words, "sonarr", 0.25)).status for words in ("one", "two")]
            explained = service.sources.explain("a", app="sonarr", share=0.25)
            began = trio.current_time()
            refused = await ask(service, "three", "sonarr", 0.25)
            took_s = trio.current_time() - began
            other = await ask(service, "three", "radarr", 0.25)

    assert answered == [OutcomeStatus.FOUND] * 2
    assert explained.lines[-1].endswith(": sonarr has spent its share, 2 of 8 queries per day")
    assert explained.opens_at is not None
    assert (explained.opens_at - place.clock.start).total_seconds() == pytest.approx(DAY_S + 0.005)
    assert refused.status is OutcomeStatus.RATE_LIMITED
    assert isinstance(refused.error, RateLimitWaitError)
    assert refused.error.wait_s == pytest.approx(DAY_S - 30.005, abs=0.1)
    assert took_s == pytest.approx(0.005), "not only when its turn has come, 30 s later"
    assert other.status is OutcomeStatus.FOUND


async def test_an_app_is_told_at_once_also_after_a_restart(clock: MockClock) -> None:
    limits = {"per_day": 8, "spacing_s": 30.0}
    with search_place(a=ScriptedSource(["x"])) as place:
        async with place.service(limits) as service:
            await ask(service, "one", "sonarr", 0.125)
        async with place.service(limits) as service:
            began = trio.current_time()
            outcome = await ask(service, "two", "sonarr", 0.125)
            took_s = trio.current_time() - began

    assert outcome.status is OutcomeStatus.RATE_LIMITED
    assert took_s == pytest.approx(0.005), "not only when its turn has come, 30 s later"


@pytest.mark.slow("an hour of a service")
async def test_a_search_that_waits_for_the_share_holds_up_nobody_and_goes_when_it_opens(clock: MockClock) -> None:
    with search_place(a=ScriptedSource(["x"])) as place:
        async with place.service({"per_hour": 4}) as service:
            await ask(service, "first", "sonarr", 0.25)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(partial(ask, service, "patient", "sonarr", 0.25, max_wait_s=None))
                await trio.sleep(10)
                waiting = reasons(service, "sonarr", 0.25)
                await ask(service, "other", "radarr", 0.25)
                await ask(service, "person", "", priority=Priority.INTERACTIVE)

    assert waiting == ["app_share"]
    assert place.sources["a"].asked_at == [0.005, 10.01, 10.015, 3600.005]


async def test_a_larger_share_holds_at_once(clock: MockClock) -> None:
    with search_place(a=ScriptedSource(["x"])) as place:
        async with place.service({"per_day": 8}) as service:
            await ask(service, "one", "sonarr", 0.125)
            small = await ask(service, "two", "sonarr", 0.125)
            large = await ask(service, "two", "sonarr", 0.5)

    assert (small.status, large.status) == (OutcomeStatus.RATE_LIMITED, OutcomeStatus.FOUND)


async def test_downloads_have_a_share_of_their_own(clock: MockClock) -> None:
    async def fetched(_: object) -> str:
        return "torrent"

    with search_place(a=ScriptedSource(["x"])) as place:
        async with place.service({"per_day": 4, "grabs_per_day": 8}) as service:
            await ask(service, "one", "sonarr", 0.25)
            grab = {"lane": Lane.GRAB, "function": fetched}
            ends = [(await ask(service, "", "sonarr", 0.25, **grab)).status for _ in range(3)]

    assert ends == [OutcomeStatus.FOUND, OutcomeStatus.FOUND, OutcomeStatus.RATE_LIMITED]


@pytest.mark.parametrize("shares", [(0.5, 1.0), (1.0, 0.5), (0.5, 0.25)])
async def test_equal_searches_of_two_apps_are_one_request_of_whose_turn_comes_first(
    clock: MockClock, shares: tuple[float, float]
) -> None:
    with search_place(a=ScriptedSource(["x"], takes_s=1.0)) as place:
        async with place.service({"per_day": 8}, **UNCACHED) as service:
            found: list[Outcome] = []

            async def search(app: str, share: float) -> None:
                found.append(await ask(service, "same", app, share))

            async with trio.open_nursery() as nursery:
                for app, share in zip(("sonarr", "radarr"), shares, strict=True):
                    nursery.start_soon(search, app, share)
                await trio.sleep(0.5)
                nursery.start_soon(search, "lidarr", 0.1)  # joins what runs

    assert [outcome.status for outcome in found] == [OutcomeStatus.FOUND] * 3
    assert place.sources["a"].asked_at == [0.005]


async def test_an_app_without_a_share_left_gets_the_answer_of_an_equal_search_that_runs(clock: MockClock) -> None:
    with search_place(a=ScriptedSource(["x"], takes_s=1.0)) as place:
        async with place.service({"per_day": 8}, **UNCACHED) as service:
            await ask(service, "first", "sonarr", 0.1)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask, service, "same", "radarr")
                await trio.sleep(0.5)
                joined = await ask(service, "same", "sonarr", 0.1)

    assert joined.status is OutcomeStatus.FOUND
    assert len(place.sources["a"].asked_at) == 2


async def test_who_shares_a_request_of_another_app_keeps_no_wait_of_its_own_while_it_runs(clock: MockClock) -> None:
    with search_place(a=ScriptedSource(["x"], takes_s=20.0)) as place:
        async with place.service({"per_day": 80}, **UNCACHED) as service:
            found: list[Outcome] = []

            async def search(app: str, wait_s: float) -> None:
                found.append(await ask(service, "same", app, 0.5, max_wait_s=wait_s))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask, service, "slow", "person")
                await trio.sleep(1)
                for app, wait_s in (("sonarr", 30.0), ("sonarr", 31.0), ("radarr", 22.0), ("radarr", 25.0)):
                    nursery.start_soon(search, app, wait_s)

    assert [outcome.status for outcome in found] == [OutcomeStatus.FOUND] * 4
    assert len(place.sources["a"].asked_at) == 2
