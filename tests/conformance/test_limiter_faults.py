"""Rare moments of a limiter: a crash beside a shielded task, a slot granted to a crash, a late answer, an end in doubt."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import trio
import trio.lowlevel
from sqlalchemy import Connection, text
from trio.testing import MockClock

from actors.actor import Recheck
from actors.search.rate_limiter import Close, RateLimiter
from actors.search.search import Terms, Ticket
from actors.search.waiting import SlotWaiters
from cormorant.rules.errors import CommitUnknown, StorageUnavailable
from cormorant.rules.search.outcomes import CredentialsRefused, OutcomeStatus
from cormorant.rules.search.reasons import ReasonName
from cormorant.rules.search.requests import SearchPage, SearchRequest, StatedLimits
from cormorant.rules.settings.settings import SearchSettings
from cormorant.testing import ScriptedSource, busy, memory_gateway, named_sources, scripted, settings, simulated
from storage.search import source_states
from storage.search.requests import record_result, reserve_now
from storage.search.sources import SourceRecord
from supervisors import Service
from tests.conformance.crashing import assembly_of, crash_limiter, requests_of, slots_of
from tests.conformance.searching import all_of, search_place, shared_search_place
from tests.conformance.test_app_shares import ask, reasons

pytestmark = pytest.mark.slow("starts and stops a whole service")


def intercepted(service: Service, instead: Callable[..., Any]) -> None:
    """Let `instead` be called with the database's own `run` and its arguments."""
    database = service.environment.database
    run = database.run

    async def called(function: Any, *args: Any, **words: Any) -> Any:
        return await instead(run, function, *args, **words)

    vars(database)["run"] = called


async def test_the_tickets_of_a_message_that_crashes_a_limiter_end_while_another_task_of_it_records_an_end(
    clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    admit, refused = RateLimiter._admit, list[Ticket]()  # noqa: SLF001 - where a mistake would be

    def refuse_once(self: RateLimiter, ticket: Ticket) -> None:
        if ticket.request.query == "two" and not refused:
            refused.append(ticket)
            raise ValueError("a mistake")
        admit(self, ticket)

    async def slow_end(run: Any, function: Any, *args: Any, **words: Any) -> Any:
        if function is record_result:
            with trio.CancelScope(shield=True):  # the gateway waits for a call that it has taken
                await trio.sleep(0.5)
        return await run(function, *args, **words)

    with search_place(a=ScriptedSource(["x"], takes_s=1.0)) as place:
        async with place.service({"in_flight": 2}) as service:
            intercepted(service, slow_end)
            one = await service.search("one", sources=["a"])
            await trio.sleep(1.2)  # its end is being recorded
            monkeypatch.setattr(RateLimiter, "_admit", refuse_once)
            two = await service.search("two", sources=["a"])
            with trio.fail_after(60):
                [outcome] = await all_of(two)
            await all_of(one)
            await trio.sleep(10)

            assert outcome.status is OutcomeStatus.FAILED
            assert assembly_of(service).intake.open.count == 0


@pytest.mark.parametrize("seed", range(12))
def test_a_slot_that_is_granted_to_a_limiter_that_crashes_comes_back(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = SlotWaiters.free

    async def live() -> None:
        sources = {"a": ScriptedSource(["x"]), "b": ScriptedSource(["x"], takes_s=10.0)}
        chosen = settings(sources=named_sources("a", "b", spacing_s=0.0, pace_s=0.0), search=SearchSettings(slots=1))
        async with simulation.open_service(chosen, gateway=gateway, ask=scripted(sources)) as service:

            def free_and_crash(self: SlotWaiters, source: str) -> None:
                free(self, source)
                if source == "b":  # together with the grant come a harmless message and one that cannot be applied
                    service.sources.directory.by_name["a"].address.tell_nowait(Recheck())
                    crash_limiter(service, "a")

            slow = await service.search("slow", sources=["b"])
            await trio.sleep(1)
            waits = await service.search("waits", sources=["a"])
            await trio.sleep(1)
            monkeypatch.setattr(SlotWaiters, "free", free_and_crash)
            await all_of(slow)
            await trio.sleep(0.01)
            monkeypatch.setattr(SlotWaiters, "free", free)
            with trio.fail_after(60):
                [outcome] = await all_of(waits)
            await trio.sleep(10)

            assert outcome.status in {OutcomeStatus.FOUND, OutcomeStatus.FAILED}  # as the crash has met it or not
            assert slots_of(service).pool.taken == 0

    simulation = simulated(seed)
    with memory_gateway() as gateway:
        simulation.run(live)


@pytest.mark.parametrize("said", [busy(3_600), CredentialsRefused("wrong key")], ids=["busy", "refused"])
@pytest.mark.parametrize("error", [CommitUnknown, StorageUnavailable])
async def test_a_worker_that_waits_for_a_slot_asks_nothing_before_an_end_is_recorded(
    clock: MockClock, said: Any, error: Any
) -> None:
    failed: list[object] = []

    async def fail_once(run: Any, function: Any, *args: Any, **words: Any) -> Any:
        if function is record_result and not failed:
            failed.append(function)
            raise error("the connection was cut")
        return await run(function, *args, **words)

    async def answer() -> Any:
        await trio.sleep(1)
        raise said

    with search_place(a=ScriptedSource(answer, ["x"])) as place:
        async with place.service({"in_flight": 2}, search=SearchSettings(slots=1)) as service:
            intercepted(service, fail_once)
            await trio.sleep(1)
            one = await service.search("one", sources=["a"])
            await service.search("two", sources=["a"], max_wait_s=None)
            await all_of(one)
            await trio.sleep(60)

    assert len(place.sources["a"].asked_at) == 1


async def test_an_answer_of_the_database_that_comes_late_does_not_undo_a_newer_one(clock: MockClock) -> None:
    async def slow_answer(run: Any, function: Any, *args: Any, **words: Any) -> Any:
        answer = await run(function, *args, **words)
        if function is source_states.read:
            await trio.sleep(10)  # it was read before the pause, and comes after it
        return answer

    with search_place(a=ScriptedSource(["x"])) as place:
        async with place.service() as service:
            await trio.sleep(1)
            intercepted(service, slow_answer)
            service.sources.directory.by_name["a"].address.tell_once(Recheck())
            await trio.sleep(5)
            await service.pause_source("a")
            await trio.sleep(6)  # the next read, which would hide the fault, has not answered yet
            names = [reason.name for reason in service.explain("a").reasons]

    assert names == [ReasonName.PAUSED]


async def test_a_change_by_the_program_is_shown_when_its_call_returns(clock: MockClock) -> None:
    """Without the message, the limiter would read the row at its next decision only."""
    with search_place(a=ScriptedSource(["x"])) as place:
        async with place.service() as service:
            await trio.sleep(1)
            shown = []
            for change in (service.pause_source, service.resume_source):
                await change("a")
                shown.append([reason.name for reason in service.explain("a").reasons])

    assert shown == [[ReasonName.PAUSED], []]


async def test_a_share_of_a_limit_that_the_source_has_just_stated_is_explained_and_refused_at_once(
    clock: MockClock,
) -> None:
    async def state_a_limit(_: SourceRecord) -> SearchPage:
        await trio.lowlevel.checkpoint()
        return SearchPage(results=(), limits=StatedLimits(api_max=8))

    terms = Terms(timeout_s=60.0, consumer="sonarr", share=0.125, function=state_a_limit, max_wait_s=60.0)
    with search_place(a=ScriptedSource(["x"])) as place:
        async with place.service({"spacing_s": 30.0}) as service:
            await trio.sleep(5)
            await service.sources.outcomes(SearchRequest(query="one"), terms, sources=["a"])
            await trio.sleep(0.1)
            why, began = reasons(service, "sonarr", 0.125), trio.current_time()
            refused = await ask(service, "two", "sonarr", 0.125)

            assert "app_share" in why
            assert refused.status is OutcomeStatus.RATE_LIMITED
            assert trio.current_time() - began < 1


async def test_changes_that_come_faster_than_reads_do_not_put_off_a_request(clock: MockClock) -> None:
    async def slow_read(run: Any, function: Any, *args: Any, **words: Any) -> Any:
        if function is source_states.read:
            await trio.sleep(0.7)
        return await run(function, *args, **words)

    async def change_often(service: Service) -> None:
        while True:
            service.sources.directory.by_name["a"].address.tell_once(Recheck())
            await trio.sleep(0.5)

    with search_place(a=ScriptedSource(["x"])) as place:
        async with place.service() as service, trio.open_nursery() as nursery:
            await trio.sleep(1)
            intercepted(service, slow_read)
            nursery.start_soon(change_often, service)
            await trio.sleep(5)
            with trio.fail_after(10):
                [outcome] = await all_of(await service.search("one"))
            nursery.cancel_scope.cancel()

    assert outcome.status is OutcomeStatus.FOUND


async def test_a_limiter_that_only_waits_for_a_slot_is_closed_at_once(clock: MockClock) -> None:
    with search_place(a=ScriptedSource(["x"]), b=ScriptedSource(["x"], takes_s=600.0)) as place:
        async with place.service(search=SearchSettings(slots=1)) as service:
            await service.search("long", sources=["b"], timeout_s=600.0)
            await trio.sleep(1)
            waits = await service.search("waits", sources=["a"], max_wait_s=None)
            await trio.sleep(1)
            entry = service.sources.directory.by_name["a"]
            began = trio.current_time()
            await entry.address.ask(partial(Close, grace_s=3.0))

            assert [outcome.status for outcome in await all_of(waits)] == [OutcomeStatus.SHUT_DOWN]
            assert trio.current_time() - began < 1


@pytest.mark.parametrize("is_known", [False, True], ids=["at the start", "later"])
async def test_a_search_during_an_outage_waits_no_longer_than_it_may(clock: MockClock, *, is_known: bool) -> None:
    with search_place(a=ScriptedSource(["x"])) as place:
        if not is_known:
            place.gateway.go_away()
        async with place.service() as service:
            await trio.sleep(1)
            place.gateway.go_away()
            began = trio.current_time()
            status = ""
            try:
                [outcome] = await all_of(await service.search("one", sources=["a"], max_wait_s=5))
                status = outcome.status.value
            except StorageUnavailable as error:
                status = str(error)
            took_s = trio.current_time() - began
            place.gateway.come_back()

    assert status == "rate_limited" if is_known else "the sources are not known yet" in status
    assert 5 <= took_s < 6


async def test_the_lease_of_a_killed_process_that_is_over_is_not_waited_for(
    clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[float] = []
    read = source_states.read

    def counted(*args: Any, **words: Any) -> Any:
        reads.append(trio.current_time())
        return read(*args, **words)

    monkeypatch.setattr(source_states, "read", counted)
    with shared_search_place(a=ScriptedSource(["x"])) as place:
        async with place.service({"per_hour": 1}) as service:
            await trio.sleep(1)
            record = requests_of(service, "a").record
            await service.transaction(_reserve_elsewhere, record, service.clock.now())
            await service.search("waits", sources=["a"], max_wait_s=None)
            await trio.sleep(120)
            reads.clear()
            await trio.sleep(600)

    assert len(reads) <= 11  # once a minute at most


def _reserve_elsewhere(connection: Any, /, record: SourceRecord, now: Any) -> None:
    """What a process does that is killed before its request has ended."""
    wanted = source_states.ReservationRequest(lease_s=30.0)
    source_states.reserve(connection, record.id, wanted, configured=record.limits, now=now)


async def test_a_database_that_has_lost_its_last_changes_is_believed(clock: MockClock) -> None:
    """As after a failover to a server that has missed some commits."""
    reservations: list[str] = []

    async def counted(run: Any, function: Any, *args: Any, **words: Any) -> Any:
        if function is reserve_now:
            reservations.append("one")
            assert len(reservations) < 50, "the limiter asks again and again"
        return await run(function, *args, **words)

    with search_place(a=ScriptedSource(["x"])) as place:
        async with place.service({"pace_s": 60.0}) as service:
            for query in ("one", "two", "three"):
                await all_of(await service.search(query, sources=["a"], max_wait_s=None))
            await service.transaction(_lose_the_last_versions)
            intercepted(service, counted)
            found = [await all_of(await service.search(query, sources=["a"])) for query in ("four", "five")]

    assert [outcome.status for [outcome] in found] == [OutcomeStatus.FOUND] * 2


def _lose_the_last_versions(connection: Connection, /) -> None:
    connection.execute(text("UPDATE source_state SET version = 1"))


async def test_a_search_that_may_not_wait_gets_what_is_kept(clock: MockClock) -> None:
    with search_place(a=ScriptedSource(["x"])) as place:
        async with place.service() as service:
            await all_of(await service.search("one", sources=["a"]))
            [outcome] = await all_of(await service.search("one", sources=["a"], max_wait_s=0))

    assert outcome.is_cached
