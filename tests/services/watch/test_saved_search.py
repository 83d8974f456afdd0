"""Saved searches of the settings file are read as they are written there."""

from __future__ import annotations

from trio.testing import MockClock

from cormorant.rules.search.requests import SearchRequest
from cormorant.rules.settings.watch import ProfileSettings, SavedSettings, TargetSettings
from cormorant.rules.watch.watches import FirstCheck, SavedSearch
from cormorant.services.watch.watches import SavedSearches
from cormorant.testing import START, SimulatedClock, settings
from tests.environments import environment_of


async def test_a_saved_search_has_all_that_the_settings_file_says_of_it(clock: MockClock) -> None:
    said = SavedSettings(
        query="words",
        categories=("3000", "3010"),
        search=("indexer",),
        every_s=600.0,
        choose="flac",
        hand_to=("qbittorrent",),
        first_check="take",
    )
    chosen = settings(
        saved={"new": said},
        profiles={"flac": ProfileSettings()},
        targets={"qbittorrent": TargetSettings(url="http://target.test")},
    )

    [saved] = SavedSearches(environment_of(chosen, clock=SimulatedClock()), targets=()).from_settings()

    assert saved == SavedSearch(
        name="new",
        request=SearchRequest(query="words", categories=[3000, 3010]),
        every_s=600.0,
        sources=("indexer",),
        profile="flac",
        targets=("qbittorrent",),
        first_check=FirstCheck.TAKE,
        next_attempt_at=START,
        added_at=START,
    )
