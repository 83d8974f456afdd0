"""Equal searches share one request, and each keeps its own patience; a source shared with other processes is looked at."""

from __future__ import annotations

import pytest
import trio
from attrs import evolve
from trio.testing import MockClock

from cormorant.rules.search.limits import SourceLimits
from cormorant.rules.search.outcomes import OutcomeStatus, RateLimitWaitError
from cormorant.rules.search.priorities import Priority
from cormorant.rules.search.requests import BadRequest
from cormorant.rules.search.reservations import EndKind, RequestEnd, Reserved
from cormorant.testing import TIMEOUT, ScriptedSource
from storage.search import source_states, sources
from storage.search.source_states import ReservationRequest
from supervisors import Service
from tests.conformance.crashing import requests_of
from tests.conformance.searching import SearchPlace, all_of, search_place, shared_search_place

INTERACTIVE, RSS, COMPLETION, BACKGROUND = Priority


async def ended_at(service: Service, place: SearchPlace, *waits_s: float | None) -> list[tuple[str, float]]:
    """How and when equal searches with these patiences end, behind a request that takes 20 s."""
    ends: list[tuple[str, float]] = [("", 0.0)] * len(waits_s)

    async def follow(number: int, max_wait_s: float | None) -> None:
        await trio.sleep(1 + number * 0.1)
        (outcome,) = await all_of(await service.search("shared", max_wait_s=max_wait_s))
        ends[number] = (outcome.status.value, round(trio.current_time(), 3))

    async with trio.open_nursery() as nursery:
        await service.search("slow")
        for number, max_wait_s in enumerate(waits_s):
            nursery.start_soon(follow, number, max_wait_s)
    return ends


@pytest.mark.parametrize("waits_s", [(5.0, None), (None, 4.9), (5.0, 8.0, None), (5.0, 30.0)])
async def test_each_of_those_who_share_a_request_keeps_its_own_wait(
    clock: MockClock, waits_s: tuple[float | None, ...]
) -> None:
    with search_place(a=ScriptedSource(["x"], takes_s=20.0)) as place:
        async with place.service() as service:
            ends = await ended_at(service, place, *waits_s)

    expected = [
        ("rate_limited", round(1 + number * 0.1 + wait_s, 3))
        if wait_s is not None and wait_s < 20
        else ("found", 40.005)
        for number, wait_s in enumerate(waits_s)
    ]
    assert ends == expected


async def test_whoever_shares_a_request_that_runs_waits_for_it(clock: MockClock) -> None:
    with search_place(a=ScriptedSource(["x"], takes_s=20.0)) as place:
        async with place.service() as service:
            searches = [await service.search("shared", max_wait_s=wait_s) for wait_s in (5.0, 100.0)]
            outcomes = [(await all_of(search))[0].status for search in searches]

    assert outcomes == ["found", "found"], "a wait is over once the request has gone"


async def test_whoever_shares_a_request_that_opens_too_late_is_told_at_once(clock: MockClock) -> None:
    with shared_search_place(a=ScriptedSource(["x"])) as place:
        async with place.service({"spacing_s": 100.0}) as service:
            await all_of(await service.search("first"))
            patient = await service.search("shared")
            await trio.sleep(1)
            began = trio.current_time()
            (hasty,) = await all_of(await service.search("shared", max_wait_s=30))
            took_s = round(trio.current_time() - began, 3)
            (found,) = await all_of(patient)

    assert (hasty.status, found.status, took_s) == (OutcomeStatus.RATE_LIMITED, OutcomeStatus.FOUND, 0.005)
    assert isinstance(hasty.error, RateLimitWaitError)
    assert hasty.error.wait_s == pytest.approx(98.995)


async def test_a_shared_request_that_rose_in_class_does_not_get_in_the_way_of_its_limiter(clock: MockClock) -> None:
    with search_place(a=ScriptedSource(["x"], takes_s=1.0)) as place:
        async with place.service() as service:
            await all_of(await service.search("first"))
            stuck = await service.search("stuck", priority=INTERACTIVE, pace_s=1000.0)
            slow = await service.search("shared", priority=BACKGROUND, max_wait_s=500)
            await trio.sleep(0.01)
            fast = await service.search("shared", priority=INTERACTIVE)
            outcomes = [(await all_of(search))[0].status for search in (stuck, slow, fast)]

    assert outcomes == ["found"] * 3
    assert not any(stamped.event.name == "child.crashed" for stamped in place.events.heard)


async def test_searches_that_end_without_an_answer_leave_nothing_behind(clock: MockClock) -> None:
    with shared_search_place(a=ScriptedSource(["x"])) as place:
        async with place.service({"spacing_s": 100.0}) as service:
            await all_of(await service.search("first"))
            for number in range(20):
                await all_of(await service.search(f"late {number}", max_wait_s=5))
            requests = requests_of(service, "a")

            assert (requests.waiting(), requests._by_key, requests.running) == (0, {}, {})  # noqa: SLF001 - what it holds is the question


async def test_limits_that_change_while_searches_run_crash_nobody(clock: MockClock) -> None:
    with search_place(a=ScriptedSource(["x"], takes_s=1.0)) as place:
        async with place.service() as service:
            searches = [await service.search(f"{number}") for number in range(4)]
            await trio.sleep(1.5)
            requests = requests_of(service, "a")
            changed = evolve(requests.record, limits=SourceLimits(spacing_s=0, pace_s=0, per_hour=3))
            requests.record = await service.transaction(sources.change, changed, now=place.clock.now())
            explained = service.explain("a")
            for search in searches:
                await all_of(search)

    assert [gate.name for gate in explained.reasons] == ["in_flight"]
    assert place.sources["a"].asked_at == [0.005, 1.005, 2.005, 3600.005]
    assert not any(stamped.event.name == "child.crashed" for stamped in place.events.heard)


async def test_the_end_of_a_foreign_request_is_seen_although_searches_keep_coming(clock: MockClock) -> None:
    with shared_search_place(a=ScriptedSource(["x"])) as place:
        async with place.service() as service, trio.open_nursery() as nursery:
            await trio.sleep(1)
            requests = requests_of(service, "a")
            wanted, free = ReservationRequest(lease_s=600.0), requests.record.limits
            got, _ = await service.transaction(
                source_states.reserve, requests.record.id, wanted, configured=free, now=place.clock.now()
            )
            assert isinstance(got, Reserved)

            async def keep_coming() -> None:
                for number in range(1000):
                    await service.search(f"{number}", priority=INTERACTIVE)
                    await trio.sleep(0.9)

            nursery.start_soon(keep_coming)
            await trio.sleep(20)
            await service.transaction(
                source_states.finish,
                requests.record.id,
                got.permit,
                RequestEnd(kind=EndKind.ANSWERED),
                configured=free,
                now=place.clock.now(),
            )
            await trio.sleep(2.1)
            nursery.cancel_scope.cancel()

    assert place.sources["a"].asked_at, "within the two seconds after which one looks again"
    assert 21.0 <= place.sources["a"].asked_at[0] <= 23.0


async def test_a_search_may_take_no_longer_than_a_day_and_wait_for_ever(clock: MockClock) -> None:
    with search_place(a=ScriptedSource(TIMEOUT)) as place:
        async with place.service() as service:
            for how in ({"timeout_s": 1e12}, {"pace_s": 1e12}, {"timeout_s": float("nan")}):
                with pytest.raises(BadRequest):
                    await service.search("x", **how)  # type: ignore[arg-type]  # each is a number of seconds
            await service.search("x", max_wait_s=1e300)
            await trio.sleep(1)

    assert place.sources["a"].asked_at == [0.005]
