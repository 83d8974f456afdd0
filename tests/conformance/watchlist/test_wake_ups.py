"""What becomes due by hand is worked on in the same moment, not when a ticker would look by itself."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from cormorant.rules.settings.watch import SavedSettings
from cormorant.scripted import ScriptedSource
from supervisors import Service
from tests.conformance.watchlist.watching import watch_place

pytestmark = pytest.mark.slow("rounds of a whole service")


async def save(service: Service) -> None:
    await service.saved_searches.add("new", SavedSettings(query="new", every_s=600.0, hand_to=("qbittorrent",)))


async def test_a_saved_search_is_run_when_it_is_added_and_when_its_pause_ends(clock: MockClock) -> None:
    with watch_place("qbittorrent") as place:
        source = place.sources["indexer"] = ScriptedSource(["old"])
        async with place.service() as service:
            await trio.sleep(7)
            await save(service)
            await trio.sleep(100)
            await service.saved_searches.pause("new")
            await trio.sleep(1_000)
            await service.saved_searches.resume("new")
            await trio.sleep(1)

    assert [round(at) for at in source.asked_at] == [7, 1_107]


async def test_what_became_due_while_everything_was_paused_is_worked_on_when_that_ends(clock: MockClock) -> None:
    with watch_place("qbittorrent") as place:
        source = place.sources["indexer"] = ScriptedSource(["old"])
        async with place.service() as service:
            await save(service)
            await trio.sleep(100)
            await service.pause()
            await trio.sleep(907)
            await service.resume()
            await trio.sleep(1)

    assert [round(at) for at in source.asked_at] == [1, 1_007]
