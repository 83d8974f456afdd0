"""The invented person searches through the service, one thing at a time, and tells what came of it."""

from __future__ import annotations

import pytest
import trio

from cormorant.cli.playground_run import Person
from cormorant.playground.world import with_playground
from cormorant.rules.events import PlaygroundSearched
from cormorant.rules.secrets import Secret
from cormorant.rules.settings.service import NotifySettings, PlaygroundSettings
from cormorant.rules.settings.sources import SourceSettings
from cormorant.rules.settings.watch import feed_conflicts, price_conflicts
from cormorant.scripted import BROKEN, ScriptedSource
from cormorant.testing import Recorder, memory_gateway, named_sources, scripted, settings, simulated


@pytest.mark.slow("runs the whole service")
def test_the_person_searches_now_and_then_and_never_twice_at_once() -> None:
    simulation, recorder = simulated(1), Recorder()
    attic, shed = ScriptedSource(["a", "b"], takes_s=3.0), ScriptedSource(BROKEN)

    async def two_minutes() -> None:
        chosen = settings(sources=named_sources("attic", "shed", spacing_s=0.0, pace_s=0.0))
        with memory_gateway() as gateway:
            ask = scripted({"attic": attic, "shed": shed})
            async with simulation.open_service(chosen, gateway=gateway, listeners=[recorder], ask=ask) as service:
                with trio.move_on_after(120):
                    await Person(service=service, chance=simulation.chance).live()

    simulation.run(two_minutes)

    first, *_ = heard = recorder.of(PlaygroundSearched)
    assert (first.found, first.answered, first.not_answered) == (2, ("attic",), ("shed",))
    assert 120 / 21 - 1 < len(heard) - 4 < 120 / 9 + 1
    assert attic.in_flight_most == 1


def test_a_playground_has_its_sites_and_a_folder_of_its_own_and_keeps_what_the_file_names() -> None:
    mine = named_sources("mine") | {"top": SourceSettings(url="http://127.0.0.1:7980/attic/api")}
    own = settings(data="/x/data", sources=mine, playground=PlaygroundSettings(enabled=True))

    chosen = with_playground(own)

    assert chosen.database_url.reveal() == "sqlite:////x/data/playground/cormorant.db"
    assert set(chosen.sources) == {
        *("barn", "cellar", "loft", "mill", "mine", "shed", "top", "vault"),
        *("market", "slskd", "spotify"),
    }
    assert (chosen.mode, set(chosen.targets)) == ("live", {"qbittorrent", "sabnzbd", "slskd", "webhook"})
    assert all(
        source.url.startswith("http://127.0.0.1:7980/") for name, source in chosen.sources.items() if name != "mine"
    )
    assert set(chosen.clients) == {"sonarr", "radarr", "lidarr"}
    assert (set(chosen.feeds), set(chosen.prices)) == ({"open-films", "field-recordings", "slow-news"}, {"lantern"})
    for name, feed in chosen.feeds.items():
        assert list(feed_conflicts(name, feed, chosen.targets)) == []
    for name, price in chosen.prices.items():
        assert list(price_conflicts(name, name, price, chosen.sources, ["market"])) == []


def test_who_is_told_and_what_is_called_market_in_the_file_stay_as_they_are() -> None:
    told = NotifySettings(apprise=Secret("json://phone.test"))
    own = settings(sources=named_sources("market"), notify=told, playground=PlaygroundSettings(enabled=True))

    chosen = with_playground(own)

    assert chosen.notify == told
    assert chosen.sources["market"] == own.sources["market"]
    assert not chosen.prices
