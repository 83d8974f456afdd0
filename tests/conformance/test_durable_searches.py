"""A search as a durable job: never dropped, nobody asked twice, the ledger says who has answered."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from cormorant.rules.jobs.states import JobState
from cormorant.rules.search.priorities import Priority
from cormorant.rules.search.requests import SearchRequest
from cormorant.services.durable_search import payload_for
from cormorant.testing import ScriptedSource, busy
from storage.search import answers
from tests.conformance.searching import search_place

SEARCH = payload_for(SearchRequest(query="x"), sources=["a", "b"], priority=Priority.BACKGROUND)


@pytest.mark.slow("a simulated hour, twice")
async def test_a_closed_source_is_asked_when_it_opens_and_the_others_are_not_asked_again(clock: MockClock) -> None:
    with search_place(a=ScriptedSource(["found"]), b=ScriptedSource(busy(3600), ["late"])) as place:
        async with place.service() as service:
            await service.search("warm up", sources=["b"])
            await trio.sleep(1)
            job_id = await service.enqueue("search", SEARCH)
            await trio.sleep(60)
            waiting = await service.jobs.show(job_id)
            early = await service.transaction(answers.read_answers, job_id)
        async with place.service() as service:
            await trio.sleep(4000)
            done = await service.jobs.show(job_id)
            late = await service.transaction(answers.read_answers, job_id)

    assert (waiting.state, waiting.attempts) == (JobState.PENDING, 0)
    assert [*early] == ["a"]
    assert (done.state, done.attempts) == (JobState.SUCCEEDED, 0)
    assert {name: [result.title for result in entry.results] for name, entry in late.items()} == {
        "a": ["found"],
        "b": ["late"],
    }
    assert place.sources["b"].asked_at == [0.005, 3600.01]
    assert len(place.sources["a"].asked_at) == 1


async def test_a_payload_that_is_no_search_fails_at_once(clock: MockClock) -> None:
    with search_place(a=ScriptedSource()) as place:
        async with place.service() as service:
            jobs = [await service.enqueue("search", payload) for payload in ({}, [1], SEARCH | {"sources": ["nobody"]})]
            await trio.sleep(1)
            states = [(await service.jobs.show(job_id)).state for job_id in jobs]

    assert states == [JobState.FAILED] * 3
