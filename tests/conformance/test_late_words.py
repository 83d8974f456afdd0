"""What a source says while other requests are under way, or only in part, is not forgotten."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio
from sqlalchemy import Connection
from trio.testing import MockClock

from cormorant.rules.jobs.states import JobState
from cormorant.rules.search.outcomes import CredentialsRefused, OutcomeStatus
from cormorant.rules.search.priorities import Priority
from cormorant.rules.search.requests import SearchPage, SearchRequest, StatedLimits
from cormorant.services.durable_search import payload_for
from cormorant.testing import BROKEN, ScriptedSource, busy
from storage.search import source_states
from tests.conformance.crashing import crash_part
from tests.conformance.searching import all_of, search_each, search_place

Execute = Callable[[object, object], Awaitable[SearchPage]]


def after(seconds: float, then: BaseException | SearchPage) -> Execute:
    async def execute(source: object, request: object) -> SearchPage:
        await trio.sleep(seconds)
        if isinstance(then, BaseException):
            raise then
        return then

    return execute


NOTHING = SearchPage(results=())


async def test_an_older_request_that_succeeds_does_not_end_a_cooldown(clock: MockClock) -> None:
    with search_place(a=ScriptedSource(["x"])) as place:
        async with place.service({"in_flight": 2}) as service:
            await service.search("slow", execute=after(3, NOTHING))
            await service.search("quick", execute=after(1, busy(3600)))
            await trio.sleep(5)
            reasons = [gate.name for gate in service.explain("a").reasons]

    assert reasons == ["cooldown"]


async def test_what_a_site_asks_for_holds_though_the_breaker_has_opened_meanwhile(clock: MockClock) -> None:
    with search_place(a=ScriptedSource(BROKEN)) as place:
        async with place.service({"in_flight": 2}) as service:
            await search_each(service, ["1", "2", "3", "4"])
            await service.search("breaks it", execute=after(1, BROKEN))
            await service.search("is told", execute=after(2, busy(86_400)))
            await trio.sleep(400)
            reasons = [gate.name for gate in service.explain("a").reasons]
            await service.reset_source("a")
            await search_each(service, ["5", "6", "7", "8"])
            await service.search("breaks it", execute=after(1, BROKEN))
            await service.search("too", execute=after(2, CredentialsRefused("a dead key")))
            await trio.sleep(3)
            stopped = [gate.name for gate in service.explain("a").reasons]

    assert reasons == ["cooldown"]
    assert stopped == ["stopped", "breaker"]


async def test_limits_that_are_not_mentioned_again_still_hold(clock: MockClock) -> None:
    stated = [StatedLimits(api_max=2), StatedLimits(rate_limit=60)]
    with search_place(a=ScriptedSource()) as place:
        async with place.service() as service:
            for number, limits in enumerate(stated):
                page = SearchPage(results=(), limits=limits)
                await all_of(await service.search(f"{number}", execute=after(0, page)))
            reasons = [gate.name for gate in service.explain("a").reasons]

    assert reasons == ["day"]


async def test_a_clock_far_ahead_forgets_nothing_that_was_spent(clock: MockClock) -> None:
    def prune(connection: Connection) -> int:
        far = place.clock.now().replace(year=2030)
        return source_states.prune_requests(connection, before=far, limit=100)

    with search_place(a=ScriptedSource()) as place:
        async with place.service({"per_day": 2}) as service:
            await search_each(service, ["one", "two"])
            pruned = await service.transaction(prune)
            await service.reset_source("a")
            await trio.sleep(1)
            reasons = [gate.name for gate in service.explain("a").reasons]

    assert pruned == 0
    assert reasons == ["day"]


async def test_a_durable_search_waits_for_a_source_that_a_person_has_to_mend(clock: MockClock) -> None:
    payload = payload_for(SearchRequest(query="x"), sources=["a"], priority=Priority.BACKGROUND)
    with search_place(a=ScriptedSource(CredentialsRefused("a dead key"), ["found"])) as place:
        async with place.service() as service:
            await all_of(await service.search("finds out"))
            job_id = await service.enqueue("search", payload)
            await trio.sleep(700)
            waiting = await service.jobs.show(job_id)
            await service.reset_source("a")
            await trio.sleep(400)
            done = await service.jobs.show(job_id)

    assert (waiting.state, waiting.attempts) == (JobState.PENDING, 0)
    assert done.state is JobState.SUCCEEDED
    assert len(place.sources["a"].asked_at) == 2


@pytest.mark.parametrize("part", ["callbacks", "source_keeper", "dispatcher"])
async def test_searches_go_on_after_a_crash_of_any_part(
    clock: MockClock, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    with search_place(a=ScriptedSource(["x"])) as place:
        async with place.service() as service:
            await all_of(await service.search("before"))
            crash_part(service, part, monkeypatch)
            await trio.sleep(120)
            (outcome,) = await all_of(await service.search("after"))

    assert outcome.status is OutcomeStatus.FOUND
