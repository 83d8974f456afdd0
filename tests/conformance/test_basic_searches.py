"""Seed 001, basics: submit returns at once, each source has one outcome, the job is done last."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from cormorant.rules.search.outcomes import OutcomeStatus, SearchFailed
from cormorant.rules.search.priorities import Priority
from cormorant.testing import BROKEN, BUSY, TIMEOUT, ScriptedSource, busy
from tests.conformance.searching import all_of, search_each, search_place, statuses


async def test_every_source_is_asked_and_has_one_outcome(clock: MockClock) -> None:
    with search_place(a=ScriptedSource(["x", "y"]), b=ScriptedSource(["z"], takes_s=2.0)) as place:
        async with place.service() as service:
            search = await service.search("boards of canada")
            outcomes = await all_of(search)

    assert search.id == 1
    assert [(each.source, each.status, len(each.results)) for each in outcomes] == [
        ("a", "found", 2),
        ("b", "found", 1),
    ]
    assert outcomes[1].took_s == 2.0
    assert [source.requests[0].query for source in place.sources.values()] == ["boards of canada"] * 2


async def test_an_empty_list_of_sources_is_done_at_once(clock: MockClock) -> None:
    with search_place(a=ScriptedSource()) as place:
        async with place.service() as service:
            search = await service.search("x", sources=[])

            assert search.is_done
            assert await all_of(search) == []
            assert (await search.wait()).results == ()


async def test_the_whole_has_the_results_of_those_that_answered_and_why_the_others_did_not(clock: MockClock) -> None:
    with search_place(a=ScriptedSource(["x"]), b=ScriptedSource(BROKEN)) as place:
        async with place.service() as service:
            found = await (await service.search("x")).wait()

    assert [result.title for result in found.results] == ["x"]
    assert found.coverage == ("a",)
    assert found.missing == {"b": "it is broken"}


async def test_when_all_fail_the_error_names_the_causes(clock: MockClock) -> None:
    with search_place(a=ScriptedSource(BUSY), b=ScriptedSource(BROKEN)) as place:
        async with place.service() as service:
            search = await service.search("x")
            with pytest.raises(SearchFailed) as failure:
                await search.wait()

    assert failure.value.causes == {"a": "asked too fast", "b": "it is broken"}


async def test_a_crash_of_the_search_function_is_an_outcome_and_frees_the_slot(clock: MockClock) -> None:
    with search_place(a=ScriptedSource(ZeroDivisionError("oops"), ["x"])) as place:
        async with place.service() as service:
            first, second = await search_each(service, ["one", "two"])

    assert (first[0].status, repr(first[0].error)) == (OutcomeStatus.FAILED, "ZeroDivisionError('oops')")
    assert second[0].status is OutcomeStatus.FOUND


async def test_a_source_that_does_not_answer_is_given_up_after_the_time_of_the_class(clock: MockClock) -> None:
    with search_place(a=ScriptedSource(TIMEOUT)) as place:
        async with place.service() as service:
            took = {}
            for priority in (None, *Priority):
                began = trio.current_time()
                (outcome,) = await all_of(await service.search(f"for {priority}", priority=priority))
                took[priority] = round(trio.current_time() - began, 6)
                assert outcome.status is OutcomeStatus.FAILED
                await service.reset_source("a")

    assert list(took.values()) == [30.005, 30.005, 15.005, 45.005, 60.005]


async def test_callbacks_come_once_for_each_source_and_once_at_the_end(clock: MockClock) -> None:
    told: list[object] = []

    async def on_complete(job_id: int, source: str, results: list[object], coverage: list[str], error: object) -> None:
        await trio.sleep(1)
        told.append((job_id, source, len(results), coverage))
        if source == "a":
            raise ValueError("a mistake of the caller")

    with search_place(a=ScriptedSource(["x"]), b=ScriptedSource(busy(5))) as place:
        async with place.service() as service:
            await service.search("x", on_complete=on_complete, on_job_done=told.append)
            await trio.sleep(10)

    assert sorted(told[:2], key=str) == [(1, "a", 1, ["a"]), (1, "b", 0, [])]
    assert told[2:] == [1], "the job is done last, and once"
    assert [event.event.name for event in place.events.heard].count("search.callback_failed") == 1


async def test_a_callback_that_never_ends_is_given_up_after_30_s(clock: MockClock) -> None:
    done: list[float] = []

    async def on_complete(*_: object) -> None:
        await trio.sleep_forever()

    with search_place(a=ScriptedSource(["x"])) as place:
        async with place.service() as service:
            await service.search("x", on_complete=on_complete, on_job_done=lambda _: done.append(trio.current_time()))
            await trio.sleep(100)

    assert [round(at, 3) for at in done] == [30.005]


async def test_a_search_function_of_ones_own_goes_through_the_same_gates(clock: MockClock) -> None:
    asked: list[float] = []

    async def execute(source: object, request: object) -> list[object]:
        asked.append(round(trio.current_time(), 6))
        return []

    with search_place(a=ScriptedSource()) as place:
        async with place.service({"spacing_s": 7.0}) as service:
            await search_each(service, ["x", "x", "x"], execute=execute)

    assert asked == [0.005, 7.005, 14.005]
    assert place.sources["a"].asked_at == []


async def test_the_status_says_what_waits_and_why(clock: MockClock) -> None:
    with search_place(a=ScriptedSource(["x"], takes_s=5.0)) as place:
        async with place.service({"spacing_s": 60.0}) as service:
            for query in ("one", "two", "three"):
                await service.search(query)
            await trio.sleep(1)
            (busy_source,) = (await service.status()).sources
            await trio.sleep(10)
            (waiting,) = (await service.status()).sources

    assert (busy_source.waiting, busy_source.running) == (2, 1)
    assert [gate.name for gate in busy_source.explanation.reasons] == ["in_flight"]
    assert (waiting.waiting, waiting.running) == (2, 0)
    assert waiting.explanation.lines == (
        "waits for spacing until 00:01:06: the last request ended 5 s ago and the site allows one every 60 s",
    )


async def test_statuses_by_source(clock: MockClock) -> None:
    with search_place(a=ScriptedSource(["x"]), b=ScriptedSource(busy(60))) as place:
        async with place.service() as service:
            assert await statuses(await service.search("x")) == {"a": "found", "b": "failed"}
