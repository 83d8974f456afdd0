"""Polls for new releases: those of one kind are one request, with the categories of all who wait for it."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import pytest
import trio
from attrs import define, field
from trio.testing import MockClock

from actors.search.search import Terms
from cormorant.rules.ports import ignore
from cormorant.rules.search.outcomes import Outcome, OutcomeStatus
from cormorant.rules.search.priorities import Priority
from cormorant.rules.search.requests import CATEGORIES_MAX, SearchRequest
from cormorant.rules.settings.settings import SearchSettings
from cormorant.testing import BROKEN, ScriptedSource
from storage.database import Database, Mode, StorageOptions
from supervisors import Service
from tests.conformance.searching import SearchPlace, search_place


@define
class Polls:
    """Polls of one service, and what came of them."""

    service: Service
    outcomes: list[Outcome] = field(factory=list)

    async def poll(
        self, *categories: int, app: str = "sonarr", share: float = 1.0, kind: str = "known", wait_s: float = 60.0
    ) -> Outcome:
        """Poll as an app."""
        terms = Terms(priority=Priority.RSS, max_wait_s=wait_s, timeout_s=15.0, consumer=app, share=share, poll=kind)
        (outcome,) = await self.service.sources.outcomes(SearchRequest(categories=categories), terms, sources=["a"])
        self.outcomes.append(outcome)
        return outcome


def asked(source: ScriptedSource) -> list[tuple[int, ...]]:
    return [request.categories for request in source.requests]


@pytest.mark.parametrize("share", [1.0, 0.5])
async def test_polls_that_wait_are_one_request_with_the_categories_of_all(clock: MockClock, share: float) -> None:
    with search_place(a=ScriptedSource(["x"], takes_s=1.0)) as place:
        async with place.service({"per_day": 10}) as service, trio.open_nursery() as nursery:
            polls = Polls(service)
            for number, categories in enumerate(((5030, 5040), (2000,), (5040, 3000))):
                poll = partial(polls.poll, app=f"app{number}", share=share)
                nursery.start_soon(poll, *categories)

    assert asked(place.sources["a"]) == [(2000, 3000, 5030, 5040)]
    assert place.sources["a"].asked_at == [0.005]
    assert [outcome.status for outcome in polls.outcomes] == [OutcomeStatus.FOUND] * 3
    assert len({id(outcome.results) for outcome in polls.outcomes}) == 1, "so that they are merged once"


async def test_a_poll_joins_one_that_runs_only_if_that_asks_for_its_categories(clock: MockClock) -> None:
    with search_place(a=ScriptedSource(["x"], takes_s=1.0)) as place:
        async with place.service({"per_day": 10}) as service, trio.open_nursery() as nursery:
            polls = Polls(service)
            nursery.start_soon(polls.poll, 5030, 2000)
            await trio.sleep(0.5)
            nursery.start_soon(partial(polls.poll, 2000, app="radarr", share=0.1))
            nursery.start_soon(polls.poll, 3000)

    assert asked(place.sources["a"]) == [(5030, 2000), (3000,)]
    assert place.sources["a"].asked_at == [0.005, 1.005]


async def test_polls_of_another_kind_and_searches_are_requests_of_their_own(clock: MockClock) -> None:
    with search_place(a=ScriptedSource(["x"], takes_s=1.0)) as place:
        async with place.service() as service, trio.open_nursery() as nursery:
            polls = Polls(service)
            nursery.start_soon(polls.poll, 5030)
            nursery.start_soon(partial(polls.poll, 2000, kind="first"))
            nursery.start_soon(partial(polls.poll, kind="all"))
            search = await service.search(SearchRequest(categories=[5030]))
            await search.wait()

    assert sorted(asked(place.sources["a"])) == [(), (2000,), (5030,), (5030,)]


async def test_polls_with_too_many_categories_for_one_request_are_two(clock: MockClock) -> None:
    with search_place(a=ScriptedSource(["x"])) as place:
        async with place.service() as service, trio.open_nursery() as nursery:
            polls = Polls(service)
            nursery.start_soon(polls.poll, *range(CATEGORIES_MAX))
            nursery.start_soon(polls.poll, CATEGORIES_MAX)

    assert sorted(map(len, asked(place.sources["a"]))) == [1, CATEGORIES_MAX]


async def test_an_answer_is_kept_for_the_time_of_feeds_also_an_empty_one_and_without_a_cache(clock: MockClock) -> None:
    chosen = SearchSettings(rss_ttl_s=60.0, cache_enabled=False)
    with search_place(a=ScriptedSource()) as place:
        async with place.service(search=chosen) as service:
            polls = Polls(service)
            for wait_s in (0.0, 59.0, 1.0):
                await trio.sleep(wait_s)
                await polls.poll(5030, 2000)

    assert [outcome.is_cached for outcome in polls.outcomes] == [False, True, False]
    assert place.sources["a"].asked_at == [0.005, 60.01]


async def test_a_poll_that_fails_is_kept_for_nobody(clock: MockClock) -> None:
    with search_place(a=ScriptedSource(BROKEN, ["x"])) as place:
        async with place.service() as service:
            polls = Polls(service)
            await polls.poll(5030)
            await polls.poll(5030)

    assert [outcome.status for outcome in polls.outcomes] == [OutcomeStatus.FAILED, OutcomeStatus.FOUND]


async def test_an_app_that_can_wait_is_not_refused_with_one_that_cannot(clock: MockClock) -> None:
    with search_place(a=ScriptedSource(["x"])) as place:
        async with place.service({"spacing_s": 30.0}) as service, trio.open_nursery() as nursery:
            polls = Polls(service)
            await service.search("before")
            await trio.sleep(1)
            nursery.start_soon(partial(polls.poll, 2000, wait_s=60.0))
            await trio.sleep(1)
            hasty = await polls.poll(5030, wait_s=5.0)

    assert hasty.status is OutcomeStatus.RATE_LIMITED
    assert [outcome.status for outcome in polls.outcomes] == [OutcomeStatus.RATE_LIMITED, OutcomeStatus.FOUND]
    assert place.sources["a"].asked_at == [0.005, 30.005]


@pytest.mark.slow("two services on one database")
@pytest.mark.parametrize("results", [["x"], []])
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_one_poll_of_two_processes_is_enough_and_the_second_waits_for_no_pace(
    clock: MockClock, tmp_path: Path, request: pytest.FixtureRequest, kind: str, results: list[str]
) -> None:
    url = f"sqlite:///{tmp_path}/shared.db" if kind == "sqlite" else request.getfixturevalue("postgres_url")
    options = StorageOptions(url=url)
    gateways = [Database(options, mode=Mode.INLINE, emit=ignore, chance=random.Random(0)) for _ in range(2)]
    source = ScriptedSource(results, takes_s=3.0)
    places = [SearchPlace(gateway, {"a": source}) for gateway in gateways]
    async with places[0].service({"pace_s": 600.0}) as one, places[1].service({"pace_s": 600.0}) as other:
        polls = [Polls(one), Polls(other)]
        async with trio.open_nursery() as nursery:
            for each in polls:
                nursery.start_soon(partial(each.poll, 5030, wait_s=20.0))
        took_s = trio.current_time()
    for gateway in gateways:
        gateway.dispose()

    outcomes = [outcome for each in polls for outcome in each.outcomes]
    assert [outcome.status for outcome in outcomes] == [OutcomeStatus.FOUND] * 2
    assert sorted(outcome.is_cached for outcome in outcomes) == [False, True]
    assert source.asked_at == [0.005]
    assert took_s <= 3.0 + 2.0 + 0.1, "the second looks every two seconds"
