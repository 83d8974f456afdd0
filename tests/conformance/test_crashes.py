"""Each crash point of a search's life: who fails, what stays spent, and that the next one goes."""

from __future__ import annotations

from contextlib import suppress

import pytest
import trio
from trio.testing import MockClock

from actors.actor import Address, Recheck
from actors.search.rate_limiter import LimiterMessage
from actors.search.source_directory import SourceEntry
from cormorant.rules.errors import ActorCrashed
from cormorant.rules.events import ChildCrashed
from cormorant.rules.search.limits import SourceLimits
from cormorant.rules.search.outcomes import CredentialsRefused, OutcomeStatus
from cormorant.rules.search.priorities import Priority
from cormorant.rules.search.source_state import SourceState
from cormorant.rules.settings.settings import SearchSettings
from cormorant.rules.settings.sources import SourceSettings
from cormorant.services.sources import Sources
from cormorant.testing import BROKEN, TIMEOUT, ScriptedSource, busy
from storage.search import history, source_states
from supervisors import Service
from tests.conformance.crashing import (
    address_of,
    broken_stream,
    crash_dispatcher,
    crash_limiter,
    requests_of,
    slots_of,
)
from tests.conformance.searching import SearchPlace, all_of, search_each, search_place, settle

pytestmark = pytest.mark.slow("starts and stops a whole service")

ANY = SourceLimits()


async def state_of(service: Service, source: str = "a") -> SourceState:
    """The state of a source as the database has it."""
    known = await service.transaction(source_states.read, requests_of(service, source).record.id, configured=ANY)
    return known.state


async def test_a_dispatcher_that_crashes_before_the_window_ends_fails_what_it_took_in(clock: MockClock) -> None:
    with search_place(a=ScriptedSource(["x"])) as place:
        async with place.service() as service:
            lost = await service.search("lost")
            crash_dispatcher(service)
            (outcome,) = await all_of(lost)
            (after,) = await all_of(await service.search("after"))

    assert outcome.status is OutcomeStatus.FAILED
    assert isinstance(outcome.error, ActorCrashed)
    assert after.status is OutcomeStatus.FOUND
    assert [request.query for request in place.sources["a"].requests] == ["after"]


async def test_a_dispatcher_that_crashes_just_before_the_stop_leaves_nobody_waiting(clock: MockClock) -> None:
    told: list[int] = []
    with search_place(a=ScriptedSource(["x"])) as place:
        async with place.service() as service:
            lost = await service.search("lost", on_job_done=told.append)
            crash_dispatcher(service)
            await settle()

    assert [outcome.status for outcome in lost.outcomes] == [OutcomeStatus.SHUT_DOWN]
    assert told == [lost.id]


async def test_a_dispatcher_that_crashes_while_it_lines_up_leaves_nobody_waiting(clock: MockClock) -> None:
    class Broken(Address[LimiterMessage]):
        def tell_nowait(self, message: LimiterMessage) -> None:
            raise ValueError("broken")

    with search_place(a=ScriptedSource(["x"]), b=ScriptedSource(), c=ScriptedSource()) as place:
        async with place.service() as service:
            by_name = service.sources.directory.by_name
            mended = by_name["b"]
            by_name["b"] = SourceEntry(Broken("b"), mended.requests)
            search = await service.search("x", execute=place.sources["a"])
            with trio.fail_after(10):
                outcomes = {outcome.source: outcome.status.value for outcome in await all_of(search)}
            by_name["b"] = mended

    assert outcomes == {"a": "found", "b": "failed", "c": "failed"}


async def test_after_so_many_crashes_that_the_branch_is_started_anew_searches_go_on(clock: MockClock) -> None:
    with search_place(a=ScriptedSource(["x"])) as place:
        async with place.service() as service:
            for number in range(6):
                await service.search(f"lost {number}")
                with suppress(IndexError, StopIteration, KeyError):  # it may be starting anew just now
                    crash_dispatcher(service)
                await trio.sleep(0.5)
            await trio.sleep(60)
            (after,) = await all_of(await service.search("after"))

    assert after.status is OutcomeStatus.FOUND


async def test_a_limiter_that_crashes_while_it_bids_keeps_its_queue(clock: MockClock) -> None:
    with search_place(a=ScriptedSource(["x"]), b=ScriptedSource(takes_s=10.0)) as place:
        async with place.service(search=SearchSettings(slots=1)) as service:
            slow = await service.search("slow", sources=["b"])
            await trio.sleep(1)
            waits = [await service.search(query, sources=["a"]) for query in ("one", "two")]
            await trio.sleep(1)
            crash_limiter(service, "a")
            outcomes = [(await all_of(search))[0].status for search in (slow, *waits)]
            await settle()
            taken = slots_of(service).pool.taken

    assert outcomes == ["found", "found", "found"]
    assert place.sources["a"].asked_at == [10.005, 10.005]
    assert taken == 0


async def test_a_limiter_that_crashes_in_flight_fails_that_ticket_alone_and_the_request_stays_spent(
    clock: MockClock,
) -> None:
    with search_place(a=ScriptedSource(TIMEOUT, ["x"])) as place:
        async with place.service({"per_hour": 2, "spacing_s": 2.0}) as service:
            searches = [await service.search(query) for query in ("one", "two", "three")]
            await trio.sleep(10)
            crash_limiter(service, "a")
            first, second = [(await all_of(search))[0] for search in searches[:2]]
            between = await state_of(service)
            (third,) = await all_of(searches[2])
            await settle()
            taken = slots_of(service).pool.taken

    assert (first.status, type(first.error)) == (OutcomeStatus.FAILED, ActorCrashed)
    assert [second.status, third.status] == ["found", "found"]
    # The lease was closed by the next incarnation, not waited for, and spacing counts from there.
    began, again, late = place.sources["a"].asked_at
    assert (began, late) == (0.005, 3600.005), "two per hour, the one that was lost included"
    assert 12.0 < again < 12.3
    assert (between.query.last_seq, between.query.in_flight, between.failure_streak) == (2, (), 0)
    assert taken == 0


async def test_a_limiter_that_crashes_too_often_is_set_aside_and_takes_nobody_with_it(clock: MockClock) -> None:
    with search_place(a=ScriptedSource(TIMEOUT), b=ScriptedSource(["x"])) as place:
        async with place.service() as service:
            waits = [await service.search(query, sources=["a"]) for query in ("runs", "waits")]
            await trio.sleep(1)
            crash_limiter(service, "a", times=12)
            with trio.fail_after(600):
                outcomes = [(await all_of(search))[0].status for search in waits]
            other = (await all_of(await service.search("x", sources=["b"])))[0].status
            with trio.fail_after(1):
                after = (await all_of(await service.search("x", sources=["a"])))[0].status
            await settle()
            taken = slots_of(service).pool.taken
            why = [service.explain("a"), *(each.explanation for each in service.sources.status() if each.name == "a")]

    assert outcomes[0] is OutcomeStatus.FAILED
    assert outcomes[1] in {OutcomeStatus.FAILED, OutcomeStatus.SHUT_DOWN}
    assert (other, after, taken) == (OutcomeStatus.FOUND, OutcomeStatus.SHUT_DOWN, 0)
    for each in why:
        assert (each.reasons[0].name, each.opens_at) == ("stopped", None)
        assert each.lines[0].startswith("waits for a restart of the service: what asks it crashed too often (")
        assert "(broken)" in each.lines[0]


async def test_a_stop_ends_at_once_what_waits_for_a_limiter_that_waits_for_its_restart(clock: MockClock) -> None:
    told: list[object] = []
    with search_place(a=ScriptedSource(["x"])) as place:
        async with place.service() as service:
            await trio.sleep(1)
            crash_limiter(service, "a", times=8)
            await trio.sleep(5)
            search = await service.search("x", on_complete=lambda *_: told.append("a"), on_job_done=told.append)
            await trio.sleep(0.1)
            stopped_at = trio.current_time()
        took_s = trio.current_time() - stopped_at

    assert [outcome.status for outcome in search.outcomes] == [OutcomeStatus.SHUT_DOWN]
    assert told == ["a", search.id]
    assert took_s == 0.0


async def test_a_source_is_removed_after_its_limiter_was_stopped_with_the_branch(clock: MockClock) -> None:
    with search_place() as place:
        async with place.service() as service:
            added = Sources(service.environment)
            await added.add("a", SourceSettings(url="http://a.test/api"), ANY)
            address_of(service, "source_keeper").tell_once(Recheck())
            await trio.sleep(1)
            crash_limiter(service, "a", times=8)
            await trio.sleep(5)
            address_of(service, "callbacks").tell_nowait(broken_stream())
            await added.remove("a")
            await trio.sleep(120)
            left = list(service.sources.directory.by_name)

    crashed = {stamped.event.child for stamped in place.events.heard if isinstance(stamped.event, ChildCrashed)}
    assert left == []
    assert crashed == {"rate_limiter:a", "callbacks"}


async def test_a_source_whose_removal_was_cut_short_is_served_when_it_comes_back(clock: MockClock) -> None:
    source = SourceSettings(url="http://a.test/api")
    with search_place() as place:
        async with place.service() as service:
            added = Sources(service.environment)
            await added.add("a", source, ANY)
            address_of(service, "source_keeper").tell_once(Recheck())
            await trio.sleep(1)
            crash_limiter(service, "a", times=8)
            await trio.sleep(5)
            await added.remove("a")
            address_of(service, "source_keeper").tell_once(Recheck())
            await trio.sleep(0.6)
            address_of(service, "callbacks").tell_nowait(broken_stream())
            await trio.sleep(0.01)
            await added.add("a", source, ANY)
            await trio.sleep(60)
            with trio.fail_after(60):
                (outcome,) = await all_of(await service.search("x", execute=ScriptedSource(["x"])))

    assert outcome.status is OutcomeStatus.FOUND


async def test_an_outage_during_the_reservation_loses_nothing_and_sends_nothing_twice(clock: MockClock) -> None:
    with search_place(a=ScriptedSource(["x"])) as place:
        async with place.service() as service:
            await trio.sleep(1)
            place.gateway.go_away()
            search = await service.search("x", execute=place.sources["a"])
            await trio.sleep(100)
            asked_meanwhile = list(place.sources["a"].asked_at)
            place.gateway.come_back()
            (outcome,) = await all_of(search)
            state = await state_of(service)

    assert asked_meanwhile == []
    assert outcome.status is OutcomeStatus.FOUND
    assert len(place.sources["a"].asked_at) == 1
    assert state.query.last_seq == 1


async def test_a_request_held_up_by_an_outage_counts_from_when_it_was_really_sent(clock: MockClock) -> None:
    with search_place(a=ScriptedSource(["x"])) as place:
        async with place.service({"per_hour": 1}) as service:
            await trio.sleep(1)
            place.gateway.go_away()
            searches = [await service.search(query, execute=place.sources["a"]) for query in ("one", "two")]
            await trio.sleep(4.0)
            place.gateway.come_back()
            for search in searches:
                await all_of(search)

    first, second = place.sources["a"].asked_at
    assert first >= 5.0
    assert second - first >= 3600.0


async def test_a_wait_ends_in_time_while_the_database_is_away(clock: MockClock) -> None:
    with search_place(a=ScriptedSource(["x"])) as place:
        async with place.service() as service:
            await trio.sleep(1)
            place.gateway.go_away()
            began = trio.current_time()
            (outcome,) = await all_of(await service.search("x", execute=place.sources["a"], max_wait_s=10.0))
            took_s = trio.current_time() - began
            place.gateway.come_back()

    assert outcome.status is OutcomeStatus.RATE_LIMITED
    assert 10.0 < took_s <= 11.1
    assert place.sources["a"].asked_at == []


def away(place: SearchPlace, then: BaseException) -> ScriptedSource:
    """A source that answers with an error, the database having gone meanwhile."""

    async def step() -> None:
        await trio.sleep(1)
        place.gateway.go_away()
        raise then

    return ScriptedSource(step, ["x"])


async def test_what_a_source_said_during_an_outage_is_recorded_before_it_is_asked_again(clock: MockClock) -> None:
    with search_place(a=ScriptedSource()) as place:
        place.sources["a"] = away(place, busy(3600))
        async with place.service() as service:
            searches = [await service.search(query) for query in ("one", "two")]
            (first,) = await all_of(searches[0])
            await trio.sleep(60)
            place.gateway.come_back()
            (second,) = await all_of(searches[1])
            state = await state_of(service)
            told = await service.transaction(history.recent)

    assert [first.status, second.status] == ["failed", "found"]
    began, again = place.sources["a"].asked_at
    assert (began, again) == (0.005, 3601.005), "as long after the answer as it said"
    assert state.query.last_seq == 2
    assert [asked.status for asked in told] == ["found", "failed"]


async def test_credentials_that_were_refused_during_an_outage_stop_the_source(clock: MockClock) -> None:
    with search_place(a=ScriptedSource()) as place:
        place.sources["a"] = away(place, CredentialsRefused("wrong key"))
        async with place.service() as service:
            searches = [await service.search(query) for query in ("one", "two")]
            await all_of(searches[0])
            await trio.sleep(60)
            place.gateway.come_back()
            (second,) = await all_of(searches[1])

    assert second.status is OutcomeStatus.REFUSED
    assert place.sources["a"].asked_at == [0.005]


async def test_refused_credentials_stop_the_source_at_once_and_a_reset_lets_it_go_on(clock: MockClock) -> None:
    with search_place(a=ScriptedSource(CredentialsRefused("wrong \0 key"), ["x"], takes_s=1.0)) as place:
        async with place.service() as service:
            first, second = await search_each(service, ["one", "two"])
            (third,) = await all_of(await service.search("three"))
            ended_at = trio.current_time()
            await service.reset_source("a")
            (fourth,) = await all_of(await service.search("four"))

    assert [each.status for each in (*first, *second, third, fourth)] == ["failed", "refused", "refused", "found"]
    assert round(ended_at, 6) == 1.01
    assert place.sources["a"].asked_at == [0.005, 1.015]
    assert [stamped.event.name for stamped in place.events.heard].count("source.stopped") == 1


async def test_the_breaker_opens_after_five_failures_and_one_probe_decides(clock: MockClock) -> None:
    script = [BROKEN] * 6 + [["x"]]
    with search_place(a=ScriptedSource(*script)) as place:
        async with place.service() as service:
            outcomes = await search_each(service, [f"{number}" for number in range(8)])

    assert [each[0].status for each in outcomes] == ["failed"] * 6 + ["found"] * 2
    assert place.sources["a"].asked_at == [0.005] * 5 + [300.005, 600.005, 600.005]


async def test_a_person_who_leaves_while_the_request_is_reserved_is_not_asked_for(clock: MockClock) -> None:
    with search_place(a=ScriptedSource(["x"])) as place:
        async with place.service() as service:
            await trio.sleep(1)
            place.gateway.go_away()
            search = await service.search("x", execute=place.sources["a"], priority=Priority.INTERACTIVE)
            await trio.sleep(1)
            search.cancel()
            place.gateway.come_back()
            await trio.sleep(60)
            taken = slots_of(service).pool.taken

    assert place.sources["a"].asked_at == []
    assert taken == 0


async def test_a_stop_during_an_outage_leaves_no_search_open(clock: MockClock) -> None:
    with search_place(a=ScriptedSource(["x"])) as place:
        async with place.service() as service:
            await trio.sleep(1)
            place.gateway.go_away()
            searches = [await service.search(query, execute=place.sources["a"]) for query in ("one", "two")]
            await trio.sleep(1)

    assert all(search.is_done for search in searches)
    assert place.sources["a"].asked_at == []
