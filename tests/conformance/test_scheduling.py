"""Seed 001: order, blocking and retry, waits, slots, feeds, cancelling; and what the design corrects about it."""

from __future__ import annotations

import math

import pytest
import trio
from trio.testing import MockClock

from cormorant.rules.search.outcomes import NestedSearch, OutcomeStatus, RateLimitWaitError, SearchQueueFull
from cormorant.rules.search.priorities import Priority
from cormorant.rules.search.requests import BadRequest, SearchRequest
from cormorant.rules.settings.settings import SearchSettings
from cormorant.testing import START, TIMEOUT, ScriptedSource, busy
from storage.search.sources import UnknownSource
from tests.conformance.searching import all_of, search_each, search_place, settle

INTERACTIVE, RSS, COMPLETION, BACKGROUND = Priority


async def test_what_comes_within_5_ms_is_ordered_by_priority_then_by_arrival(clock: MockClock) -> None:
    with search_place(a=ScriptedSource(takes_s=1.0)) as place:
        async with place.service() as service:
            searches = [
                await service.search(query, priority=priority)
                for query, priority in [("b1", BACKGROUND), ("c", COMPLETION), ("b2", BACKGROUND), ("i", INTERACTIVE)]
            ]
            for search in searches:
                await all_of(search)

    assert [request.query for request in place.sources["a"].requests] == ["i", "c", "b1", "b2"]
    assert place.sources["a"].asked_at == [0.005, 1.005, 2.005, 3.005]


async def test_a_blocked_search_runs_as_soon_as_its_source_opens(clock: MockClock) -> None:
    with search_place(a=ScriptedSource(["x"]), b=ScriptedSource(["y"])) as place:
        async with place.service({"spacing_s": 10.0}) as service:
            await search_each(service, ["one", "two", "three"])

    assert place.sources["a"].asked_at == place.sources["b"].asked_at == [0.005, 10.005, 20.005]


@pytest.mark.parametrize(
    ("priority", "pace_s"), [(INTERACTIVE, 6.0), (RSS, 30.0), (COMPLETION, 42.0), (BACKGROUND, 60.0)]
)
async def test_each_class_keeps_its_share_of_the_pace(clock: MockClock, priority: Priority, pace_s: float) -> None:
    with search_place(a=ScriptedSource()) as place:
        async with place.service({"pace_s": 60.0, "spacing_s": 2.0}) as service:
            for query in ("one", "two"):
                await all_of(await service.search(query, priority=priority, max_wait_s=100))

    assert place.sources["a"].asked_at == [0.005, round(0.005 + pace_s, 6)]


async def test_intervals_count_from_the_end_of_the_last_request(clock: MockClock) -> None:
    with search_place(a=ScriptedSource(takes_s=4.0)) as place:
        async with place.service({"spacing_s": 10.0}) as service:
            await search_each(service, ["one", "two"])

    assert place.sources["a"].asked_at == [0.005, 14.005]


async def test_a_search_that_would_wait_too_long_ends_at_once_and_nothing_follows_for_the_source(
    clock: MockClock,
) -> None:
    with search_place(a=ScriptedSource(["x"])) as place:
        async with place.service({"spacing_s": 100.0}) as service:
            await all_of(await service.search("first"))
            began = trio.current_time()
            (outcome,) = await all_of(await service.search("second", priority=COMPLETION, max_wait_s=30))
            took_s = round(trio.current_time() - began, 6)
            explained = service.explain("a", COMPLETION)

    assert (outcome.status, took_s) == (OutcomeStatus.RATE_LIMITED, 0.005)
    assert isinstance(outcome.error, RateLimitWaitError)
    assert (outcome.error.source, outcome.error.max_wait_s, outcome.error.priority) == ("a", 30, COMPLETION)
    assert outcome.error.wait_s == pytest.approx(99.995)
    assert [gate.name for gate in explained.reasons] == ["spacing"]


@pytest.mark.parametrize(("priority", "waits"), [(None, True), (INTERACTIVE, True), (RSS, False), (COMPLETION, True)])
async def test_unless_it_says_so_a_feed_waits_15_s_and_others_as_long_as_it_takes(
    clock: MockClock, priority: Priority | None, *, waits: bool
) -> None:
    with search_place(a=ScriptedSource(["x"])) as place:
        async with place.service({"spacing_s": 20.0}) as service:
            await all_of(await service.search("first"))
            (outcome,) = await all_of(await service.search("second", priority=priority))

    assert outcome.status is (OutcomeStatus.FOUND if waits else OutcomeStatus.RATE_LIMITED)


async def test_a_feed_may_be_told_to_wait_as_long_as_it_takes(clock: MockClock) -> None:
    with search_place(a=ScriptedSource(["x"])) as place:
        async with place.service({"spacing_s": 500.0}) as service:
            await all_of(await service.search("first"))
            (outcome,) = await all_of(await service.search("second", priority=RSS, max_wait_s=math.inf))

    assert outcome.status is OutcomeStatus.FOUND
    assert place.sources["a"].asked_at == [0.005, 500.005]


async def test_the_next_request_goes_at_exactly_the_time_that_was_explained(clock: MockClock) -> None:
    with search_place(a=ScriptedSource(["x"])) as place:
        async with place.service({"pace_s": 1000.0, "spacing_s": 2.0}) as service:
            await all_of(await service.search("first", priority=BACKGROUND))
            opens_at = service.explain("a", BACKGROUND).opens_at
            await all_of(await service.search("second", priority=BACKGROUND, max_wait_s=math.inf))

    assert opens_at is not None
    assert place.sources["a"].asked_at[1] == pytest.approx((opens_at - START).total_seconds(), abs=0.01)


async def test_the_wait_counts_from_submission_also_behind_others(clock: MockClock) -> None:
    with search_place(a=ScriptedSource(takes_s=8.0)) as place:
        async with place.service() as service:
            outcomes = await search_each(service, ["one", "two", "three"], max_wait_s=10.0)

    assert [each[0].status for each in outcomes] == ["found", "found", "rate_limited"]
    assert round(outcomes[2][0].waited_s, 3) == 10.0


async def test_never_two_at_once_at_one_source_and_never_more_than_the_slots(clock: MockClock) -> None:
    sources = {f"s{number:02}": ScriptedSource(takes_s=1.0) for number in range(12)}
    with search_place(**sources) as place:
        async with place.service(search=SearchSettings(slots=5)) as service:
            await search_each(service, ["one", "two"])

    asked = sorted(time for source in sources.values() for time in source.asked_at)
    assert all(source.in_flight_most == 1 for source in sources.values())
    assert [asked.count(round(0.005 + second, 6)) for second in range(6)] == [4] * 6, "the fifth slot is for people"


async def test_one_slot_is_kept_for_people(clock: MockClock) -> None:
    sources = {name: ScriptedSource(takes_s=10.0) for name in "abcd"}
    with search_place(**sources) as place:
        async with place.service(search=SearchSettings(slots=3)) as service:
            slow = [await service.search("slow", priority=BACKGROUND, sources=[name]) for name in "abc"]
            await trio.sleep(1)
            person = await service.search("now", priority=INTERACTIVE, sources=["d"])
            await all_of(person)
            for search in slow:
                await all_of(search)

    assert sources["d"].asked_at == [1.005]
    assert sorted(sources[name].asked_at[0] for name in "abc") == [0.005, 0.005, 10.005]


async def test_a_feed_is_fetched_once_and_the_second_search_is_told_so(clock: MockClock) -> None:
    with search_place(a=ScriptedSource(["x"], takes_s=2.0)) as place:
        async with place.service() as service:
            first = await service.search(SearchRequest(categories=[3000]), priority=RSS)
            second = await service.search(SearchRequest(categories=[3000]), priority=RSS)
            await trio.sleep(1)
            third = await service.search(SearchRequest(), priority=RSS)
            outcomes = [(await all_of(search))[0] for search in (first, second, third)]
            fourth = (await all_of(await service.search(SearchRequest(), priority=RSS)))[0]

    assert [each.status for each in outcomes] == ["found", "deduplicated", "deduplicated"]
    assert fourth.status is OutcomeStatus.FOUND
    assert place.sources["a"].asked_at == [0.005, 2.01]


async def test_a_cancelled_search_ends_at_once_whether_it_waits_or_runs(clock: MockClock) -> None:
    with search_place(a=ScriptedSource(TIMEOUT)) as place:
        async with place.service() as service:
            runs = await service.search("runs")
            waits = await service.search("waits")
            await trio.sleep(3)
            runs.cancel()
            waits.cancel()
            outcomes = [(await all_of(search))[0].status for search in (runs, waits)]
            assert trio.current_time() == 3.0
            await trio.sleep(1)
            assert place.sources["a"].in_flight == 0

    assert outcomes == ["cancelled", "cancelled"]
    assert len(place.sources["a"].asked_at) == 1


async def test_leaving_the_block_or_being_cancelled_in_it_cancels_the_search(clock: MockClock) -> None:
    with search_place(a=ScriptedSource(TIMEOUT)) as place:
        async with place.service() as service:
            with trio.move_on_after(2):
                async with await service.search("one") as search:
                    await search.wait()
            with trio.move_on_after(2):
                await (await service.search("two")).wait()
            await settle()

            assert place.sources["a"].in_flight == 0
            assert place.sources["a"].asked_at == [0.005, 2.005]


async def test_equal_searches_share_one_request_and_the_last_to_leave_ends_it(clock: MockClock) -> None:
    with search_place(a=ScriptedSource(["x"], takes_s=5.0)) as place:
        async with place.service() as service:
            searches = [await service.search(query) for query in ("Boards of Canada", "boards  of canada", "other")]
            await trio.sleep(1)
            searches[0].cancel()
            outcomes = [(await all_of(search))[0].status for search in searches]

    assert outcomes == ["cancelled", "found", "found"]
    assert place.sources["a"].asked_at == [0.005, 5.005]


@pytest.mark.parametrize(
    ("wait_s", "status", "order"),
    [(1.0, "rate_limited", ["running", "middle", "shared"]), (9.0, "found", ["running", "shared", "middle"])],
)
async def test_a_follower_raises_the_rank_while_it_waits_and_keeps_its_own_wait(
    clock: MockClock, wait_s: float, status: str, order: list[str]
) -> None:
    with search_place(a=ScriptedSource(["x"], takes_s=4.0)) as place:
        async with place.service() as service:
            await service.search("running")
            await trio.sleep(1)
            await service.search("middle", priority=COMPLETION)
            slow = await service.search("shared", priority=BACKGROUND, max_wait_s=100)
            await trio.sleep(0.01)
            fast = await service.search("shared", priority=INTERACTIVE, max_wait_s=wait_s)
            outcomes = [(await all_of(search))[0] for search in (slow, fast)]
            await trio.sleep(10)

    assert [outcome.status for outcome in outcomes] == ["found", status]
    assert [request.query for request in place.sources["a"].requests] == order


@pytest.mark.slow("a simulated hour")
async def test_an_answer_is_kept_for_an_hour_and_an_empty_one_is_not(clock: MockClock) -> None:
    with search_place(full=ScriptedSource(["x"]), empty=ScriptedSource()) as place:
        async with place.service() as service:
            for at_s in (0, 1800, 3700):
                await trio.sleep(max(0.0, at_s - trio.current_time()))
                outcomes = await all_of(await service.search("x"))
                cached = {outcome.source: outcome.is_cached for outcome in outcomes}
                assert cached == {"full": at_s == 1800, "empty": False}

    assert [len(source.asked_at) for source in place.sources.values()] == [2, 3]


@pytest.mark.slow("a simulated quarter of an hour, a search every 6 s")
async def test_an_interactive_search_every_6_s_does_not_starve_background(clock: MockClock) -> None:
    with search_place(a=ScriptedSource()) as place:
        async with place.service({"pace_s": 60.0, "spacing_s": 2.0}) as service, trio.open_nursery() as nursery:

            async def person() -> None:
                number = 0
                while True:
                    number += 1
                    await service.search(f"person {number}", priority=INTERACTIVE)
                    await trio.sleep(6)

            nursery.start_soon(person)
            await trio.sleep(1)
            (outcome,) = await all_of(await service.search("background", priority=BACKGROUND, max_wait_s=5000))
            nursery.cancel_scope.cancel()

    assert outcome.status is OutcomeStatus.FOUND
    assert outcome.waited_s <= 3 * 300 + 60 + 60


async def test_a_search_within_a_search_is_refused(clock: MockClock) -> None:
    with search_place(a=ScriptedSource()) as place:
        async with place.service() as service:

            async def execute(source: object, request: object) -> list[object]:
                await service.search("another")
                return []

            (outcome,) = await all_of(await service.search("x", execute=execute))

    assert isinstance(outcome.error, NestedSearch)


async def test_more_searches_than_may_wait_are_refused(clock: MockClock) -> None:
    with search_place(a=ScriptedSource(TIMEOUT)) as place:
        async with place.service(search=SearchSettings(queue_max=2)) as service:
            for number in range(2):
                await service.search(f"{number}")
            with pytest.raises(SearchQueueFull, match="2 searches wait"):
                await service.search("one too many")


async def test_bad_requests_are_refused_by_name(clock: MockClock) -> None:
    with search_place(a=ScriptedSource()) as place:
        async with place.service() as service:
            with pytest.raises(UnknownSource, match="'nobody'; there are a"):
                await service.search("x", sources=["nobody"])
            for query in ("", "   ", "x" * 10_000, "nul \0"):
                with pytest.raises(BadRequest, match="query"):
                    await service.search(query)
            with pytest.raises(BadRequest, match="max_wait_s"):
                await service.search("x", max_wait_s=-1)


async def test_a_cooldown_is_kept_over_a_restart(clock: MockClock) -> None:
    with search_place(a=ScriptedSource(busy(600), ["x"])) as place:
        async with place.service() as service:
            await all_of(await service.search("one"))
        async with place.service() as service:
            await all_of(await service.search("two"))

    assert place.sources["a"].asked_at == [0.005, 600.005]


async def test_at_a_stop_what_waits_ends_and_what_runs_has_its_grace(clock: MockClock) -> None:
    with search_place(a=ScriptedSource(["x"], takes_s=2.0), b=ScriptedSource(TIMEOUT)) as place:
        async with place.service() as service:
            searches = [await service.search(query, sources=[name]) for name in "ab" for query in ("one", "two")]
            await trio.sleep(1)
        outcomes = [search.outcomes[0].status for search in searches]

    assert outcomes == ["found", "shut_down", "shut_down", "shut_down"]
    assert round(trio.current_time(), 6) == 4.0
