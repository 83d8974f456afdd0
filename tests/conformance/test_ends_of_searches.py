"""What is taken and cannot go, ends in doubt, or is stopped on its way: nothing is lost, nothing counted twice, nothing sent late."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
from sqlalchemy import Connection, text
from trio.testing import MockClock

from cormorant.rules.errors import CommitUnknown
from cormorant.rules.search.outcomes import OutcomeStatus, SourceUnavailable
from cormorant.rules.search.priorities import Priority
from cormorant.rules.search.reservations import EndKind, RequestEnd, Reserved
from cormorant.testing import ScriptedSource
from storage.search import source_states
from storage.search.requests import record_result, reserve_now
from storage.search.source_states import ReservationRequest
from tests.conformance.crashing import requests_of
from tests.conformance.searching import all_of, search_place, settle, shared_search_place

INTERACTIVE, RSS, COMPLETION, BACKGROUND = Priority


def _asked(connection: Connection) -> int:
    count: int = connection.execute(text("SELECT count(*) FROM search_history")).scalar_one()
    return count


async def test_a_shared_request_that_another_process_forestalls_goes_back_with_all_who_wait_for_it(
    clock: MockClock,
) -> None:
    with shared_search_place(a=ScriptedSource(["x"])) as place:
        async with place.service() as service:
            await trio.sleep(1)
            record = requests_of(service, "a").record
            words: dict[str, Any] = {"configured": record.limits}
            foreign, _ = await service.transaction(
                source_states.reserve, record.id, ReservationRequest(lease_s=600.0), now=place.clock.now(), **words
            )
            assert isinstance(foreign, Reserved)
            searches = [
                await service.search("shared", priority=priority, max_wait_s=wait_s)
                for priority, wait_s in ((BACKGROUND, 100.0), (INTERACTIVE, 5.0), (COMPLETION, 100.0))
            ]
            await trio.sleep(3)
            searches[2].cancel()
            impatient = (await all_of(searches[1]))[0].status
            gave_up_at = trio.current_time()
            end = RequestEnd(kind=EndKind.ANSWERED)
            await service.transaction(
                source_states.finish, record.id, foreign.permit, end, now=place.clock.now(), **words
            )
            (found,) = await all_of(searches[0])
            left = requests_of(service, "a")

    assert (impatient, round(gave_up_at, 3)) == (OutcomeStatus.RATE_LIMITED, 6.0)
    assert found.status is OutcomeStatus.FOUND
    assert len(place.sources["a"].asked_at) == 1
    assert (left.waiting(), left.running) == (0, {})


@pytest.mark.parametrize("is_written", [False, True])
async def test_an_end_in_doubt_is_recorded_once(
    clock: MockClock, monkeypatch: pytest.MonkeyPatch, *, is_written: bool
) -> None:
    with search_place(a=ScriptedSource(SourceUnavailable("broken"), ["x"])) as place:
        run, cut = place.gateway.run, list[float]()

        async def cut_once(function: Callable[..., Any], *args: Any, **words: Any) -> Any:
            if cut or function is not record_result:
                return await run(function, *args, **words)
            cut.append(trio.current_time())
            if is_written:
                await run(function, *args, **words)
            raise CommitUnknown("the line was cut")

        async with place.service() as service:
            monkeypatch.setattr(place.gateway, "run", cut_once)
            (first,) = await all_of(await service.search("one"))
            await trio.sleep(5)
            known = requests_of(service, "a").known
            told = await service.transaction(_asked)

    assert (first.status, len(cut), told) == (OutcomeStatus.FAILED, 1, 1)
    assert known is not None
    assert (known.state.failure_streak, known.state.query.in_flight) == (1, ())


@pytest.mark.parametrize("comes_back_after_s", [4.0, 100.0])
async def test_nothing_is_sent_after_the_stop(clock: MockClock, comes_back_after_s: float) -> None:
    with search_place(a=ScriptedSource(["x"]), b=ScriptedSource(["x"])) as place:

        async def come_back() -> None:
            await trio.sleep(comes_back_after_s)
            place.gateway.come_back()

        async with trio.open_nursery() as nursery:
            async with place.service({"spacing_s": 50.0}) as service:
                await all_of(await service.search("first", sources=["b"]))
                place.gateway.go_away()
                own = place.sources["a"]
                held = await service.search("held up while it is paid for", sources=["a"], execute=own)
                waits = await service.search("waits", sources=["b"], execute=own)
                await settle()
                await trio.sleep(0.01)
                nursery.start_soon(come_back)
            await trio.sleep(200)
        outcomes = [(await all_of(search))[0].status for search in (held, waits)]

    assert outcomes == [OutcomeStatus.SHUT_DOWN] * 2
    assert place.sources["a"].asked_at == []


async def test_what_was_paid_for_when_the_stop_began_is_closed_and_not_sent(
    clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with shared_search_place(a=ScriptedSource(["x"])) as place:
        run = place.gateway.run

        async def slowly(function: Callable[..., Any], *args: Any, **words: Any) -> Any:
            if function is reserve_now:
                await trio.sleep(1)
            return await run(function, *args, **words)

        async with place.service() as service:
            await trio.sleep(1)
            monkeypatch.setattr(place.gateway, "run", slowly)
            search = await service.search("x")
            await trio.sleep(0.5)
        (outcome,) = await all_of(search)
        async with place.service() as service:
            await trio.sleep(1)
            known = requests_of(service, "a").known

    assert (outcome.status, place.sources["a"].asked_at) == (OutcomeStatus.SHUT_DOWN, [])
    assert known is not None
    assert (known.state.query.last_seq, known.state.query.in_flight) == (1, ()), "paid, and its lease given back"
