"""Saved searches on the mock clock: what was there is known, what is new is handed over, and nothing is asked for twice."""

from __future__ import annotations

import pytest
import trio
from sqlalchemy import Connection
from trio.testing import MockClock

from cormorant.rules.jobs.states import JobState
from cormorant.rules.search.requests import SearchRequest
from cormorant.rules.settings.watch import SavedSettings
from cormorant.rules.watch.events import SavedSearchChecked
from cormorant.rules.watch.watches import SavedSearch
from cormorant.testing import START, ScriptedSource, busy
from storage.watch.saved_searches import SAVED
from supervisors import Service
from tests.conformance.watchlist.watching import watch_place
from tests.watch_kinds import added


async def save(service: Service, name: str = "new", *, every_s: float = 600.0) -> None:
    await service.saved_searches.add(
        name, SavedSettings(query=f"words of {name}", every_s=every_s, hand_to=("qbittorrent",))
    )


@pytest.mark.slow("rounds of a whole service")
async def test_what_is_there_at_the_first_check_is_known_and_what_comes_later_is_handed_over(clock: MockClock) -> None:
    with watch_place("qbittorrent") as place:
        place.sources["indexer"] = ScriptedSource(["old"], ["old", "new"])
        async with place.service() as service:
            await save(service)
            await trio.sleep(70)
            assert [(want.title, want.state.value) for want in await service.wants.page()] == [("old", "ignored")]
            await trio.sleep(1_300)

        assert [parcel.title for _, parcel in place.targets["qbittorrent"].given] == ["new"]
        assert len(place.sources["indexer"].asked_at) >= 2


@pytest.mark.slow("rounds of a whole service")
async def test_a_source_that_was_closed_at_the_first_check_does_not_bring_all_it_has_as_news(clock: MockClock) -> None:
    with watch_place("qbittorrent") as place:
        place.sources["indexer"] = ScriptedSource(["old"])
        place.sources["closed"] = ScriptedSource(busy(retry_after_s=300.0), ["older", "oldest"], ["older", "news"])
        async with place.service() as service:
            await save(service, every_s=900.0)
            await trio.sleep(700)  # the closed one was asked as soon as it opened
            assert {want.state.value for want in await service.wants.page()} == {"ignored"}
            await trio.sleep(1_900)

        assert [parcel.title for _, parcel in place.targets["qbittorrent"].given] == ["news"]


async def test_many_that_are_due_are_all_checked_in_one_look(clock: MockClock) -> None:
    with watch_place("qbittorrent") as place:
        place.sources["indexer"] = ScriptedSource(["old"])
        async with place.service() as service:
            for number in range(9):
                await save(service, f"n{number}")
            await trio.sleep(65)

            assert {event.saved for event in place.events.of(SavedSearchChecked)} == {f"n{n}" for n in range(9)}


async def test_a_check_that_is_stopped_did_not_happen_and_is_due_after_the_next_start(clock: MockClock) -> None:
    with watch_place("qbittorrent") as place:
        place.sources["indexer"] = ScriptedSource(["old"], takes_s=20.0)
        async with place.service() as service:
            await save(service)
            await trio.sleep(5)
        assert place.events.of(SavedSearchChecked) == []

        async with place.service() as service:
            await trio.sleep(25)
            [saved] = await service.saved_searches.all()
            assert saved.last_checked is not None
            assert saved.answered == ("indexer",)


@pytest.mark.slow("rounds of a whole service")
async def test_what_one_search_has_known_from_the_start_may_be_new_to_another(clock: MockClock) -> None:
    with watch_place("qbittorrent") as place:
        place.sources["indexer"] = ScriptedSource(["old"], ["old", "news"])
        async with place.service() as service:
            await save(service, "first", every_s=1_800.0)
            await trio.sleep(70)
            await save(service, "second", every_s=3_600.0)  # its first check sees the news, and skips it
            await trio.sleep(2_000)

        assert [parcel.title for _, parcel in place.targets["qbittorrent"].given] == ["news"]


async def test_a_source_that_is_not_there_is_told_and_stops_nobody(clock: MockClock) -> None:
    with watch_place("qbittorrent") as place:
        place.sources["indexer"] = ScriptedSource(["old"])
        async with place.service() as service:
            await save(service, "good")
            await place.gateway.run(_name_a_source_that_is_not_there)
            await trio.sleep(65)

            found = {event.saved: event.error for event in place.events.of(SavedSearchChecked)}
            tree = (await service.status()).tree
        assert found["good"] is None
        assert "there is no source 'gone'" in (found["bad"] or "")
        assert sum(child.restarts for child in tree) == 0


def _name_a_source_that_is_not_there(connection: Connection) -> None:
    added(
        connection,
        SAVED,
        SavedSearch(
            name="bad",
            request=SearchRequest(query="x"),
            every_s=600.0,
            sources=("gone",),
            next_attempt_at=START,
            added_at=START,
        ),
    )


@pytest.mark.slow("rounds of a whole service")
async def test_a_source_that_is_closed_for_long_does_not_keep_the_others_from_their_checks(clock: MockClock) -> None:
    with watch_place("qbittorrent") as place:
        place.sources["open"] = ScriptedSource(["old"])
        place.sources["closed"] = ScriptedSource(busy(retry_after_s=21_600.0))
        async with place.service() as service:
            await save(service, every_s=600.0)
            await trio.sleep(6_100)
            [saved] = await service.saved_searches.all()

        assert len(place.sources["open"].asked_at) == 11
        assert saved.last_error is not None
        assert saved.failures == 11


@pytest.mark.slow("rounds of a whole service")
async def test_a_source_that_opens_before_the_next_check_is_asked_then_and_the_others_are_not_asked_again(
    clock: MockClock,
) -> None:
    with watch_place("qbittorrent") as place:
        place.sources["open"] = ScriptedSource(["old"])
        place.sources["closed"] = ScriptedSource(busy(retry_after_s=120.0), ["older"])
        async with place.service() as service:
            await save(service, every_s=3_600.0)
            await trio.sleep(100)
            [waiting] = await service.saved_searches.all()
            await trio.sleep(200)
            [saved] = await service.saved_searches.all()

        assert waiting.last_error is not None
        assert waiting.failures == 0, "the check has not ended"
        assert [len(place.sources[name].asked_at) for name in ("open", "closed")] == [1, 2]
        assert (saved.last_error, saved.failures) == (None, 0)


@pytest.mark.slow("rounds of a whole service")
async def test_a_check_by_hand_asks_all_sources_also_of_a_search_that_is_paused_or_waits(clock: MockClock) -> None:
    with watch_place("qbittorrent") as place:
        place.sources["open"] = ScriptedSource(["old"])
        place.sources["closed"] = ScriptedSource(busy(retry_after_s=1_000.0))
        async with place.service() as service:
            await save(service, every_s=3_600.0)
            await trio.sleep(70)  # it waits for the closed one
            await service.saved_searches.check("new")
            await trio.sleep(5)
            await service.saved_searches.pause("new")
            await service.saved_searches.check("new")
            await trio.sleep(5)

        assert len(place.sources["open"].asked_at) == 3


async def test_the_job_of_a_paused_search_ends_without_a_request_and_is_not_cancelled(clock: MockClock) -> None:
    with watch_place("qbittorrent") as place:
        place.sources["indexer"] = ScriptedSource(["old"])
        async with place.service() as service:
            await save(service)
            await service.saved_searches.pause("new")
            job = await service.enqueue("saved_search", {"saved": (await service.saved_searches.all())[0].id})
            await trio.sleep(5)
            state = (await service.jobs.show(job)).state

        # A cancelled job would not run again for a check by hand that joined it.
        assert (state, place.sources["indexer"].asked_at) == (JobState.SUCCEEDED, [])
