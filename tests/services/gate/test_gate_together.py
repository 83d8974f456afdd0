"""Several requests of apps at the same moment: a share is used once, and nobody pays for another's impatience."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest
import trio
from trio.testing import MockClock

from cormorant.rules.secrets import Secret
from cormorant.rules.settings.service import ClientSettings
from cormorant.testing import ScriptedSource
from tests.services.gate.test_gate import RSS, SEARCH, titles
from tests.web.web_place import SONARR, web_place

pytestmark = pytest.mark.slow("real sockets")


async def test_searches_at_the_same_moment_do_not_use_more_than_the_share(
    tmp_path: Path, socket_clock: MockClock
) -> None:
    red = ScriptedSource(["x"], takes_s=2.0)
    apps = {"sonarr": ClientSettings(key=Secret(SONARR), share=0.25, hold_s=20.0)}
    answers: list[httpx2.Response] = []

    with web_place(tmp_path, red=red) as place:
        async with place.served({"per_day": 8}, clients=apps) as (_, client):

            async def search(words: str) -> None:
                answers.append(await place.torznab(client, "red", **SEARCH | {"q": words}))

            async with trio.open_nursery() as nursery:
                for words in ("one", "two", "three", "four"):
                    nursery.start_soon(search, words)

    assert sorted(answer.status_code for answer in answers) == [200, 200, 429, 429]
    assert all(int(each.headers["retry-after"]) > 86_000 for each in answers if each.status_code == 429)
    assert len(red.requests) == 2


async def test_who_can_wait_is_not_refused_with_one_who_cannot(tmp_path: Path, socket_clock: MockClock) -> None:
    apps = {
        "sonarr": ClientSettings(key=Secret(SONARR), hold_s=5.0),
        "radarr": ClientSettings(key=Secret("key of radarr"), hold_s=60.0),
    }
    answers: dict[str, httpx2.Response] = {}

    with web_place(tmp_path, red=ScriptedSource(["x"])) as place:
        async with place.served({"spacing_s": 30.0}, clients=apps) as (_, client):
            await place.torznab(client, "red", **SEARCH)

            async def poll(name: str, key: str) -> None:
                answers[name] = await place.torznab(client, "red", apikey=key, **RSS)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(poll, "hasty", SONARR)
                await trio.sleep(0.02)
                nursery.start_soon(poll, "patient", "key of radarr")

    assert (answers["hasty"].status_code, answers["patient"].status_code) == (429, 200)
    assert titles(answers["patient"]) == ["x"]
