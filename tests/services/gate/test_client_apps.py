"""Apps that are let in and shut out while the service runs, in every process, and what each has spent."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest
import trio
from trio.testing import MockClock

from cormorant.services.gate.client_apps import STRANGE_S
from cormorant.testing import ScriptedSource
from tests.bounds import WAIT_S
from tests.services.gate.test_gate import RSS, SEARCH, error_of, titles, xml
from tests.services.gate.test_gate_feeds import two_places
from tests.web.web_place import WebPlace, web_place

pytestmark = pytest.mark.slow("real sockets")

WRONG_KEY = (200, "100", "Incorrect user credentials")


async def test_an_app_that_was_added_is_let_in_at_once_and_its_spending_is_shown(tmp_path: Path) -> None:
    with web_place(tmp_path, red=ScriptedSource(["x"]), blue=ScriptedSource(["y"])) as place:
        async with place.served() as (_, client):
            added = await client.post("/api/v1/clients", json={"name": "radarr", "share": 0.5, "hold_s": 10})
            key = added.json()["key"]
            found = await place.torznab(client, "red", apikey=key, **SEARCH)
            await place.torznab(client, "combined", apikey=key, **RSS)
            await place.torznab(client, "red", apikey=key, **SEARCH)  # from what is kept: not spent again
            listed = (await client.get("/api/v1/clients")).json()

    assert (added.status_code, titles(found)) == (201, ["x"])
    usual = {
        "priority": "completion",
        "hold_s": 60.0,
        "share": 1.0,
        "queries_today": 0,
        "grabs_today": 0,
        "sources": [],
    }
    spent = [
        {"source": "blue", "queries_today": 1, "grabs_today": 0},
        {"source": "red", "queries_today": 2, "grabs_today": 0},
    ]
    radarr = {"name": "radarr", "from_file": False, "share": 0.5, "hold_s": 10.0, "queries_today": 3, "sources": spent}
    assert listed == [usual | radarr, usual | {"name": "sonarr", "from_file": True}]
    assert added.json()["client"] == usual | radarr | {"queries_today": 0, "sources": []}


async def test_an_app_that_was_removed_is_let_in_no_more_and_neither_are_its_links(
    tmp_path: Path, socket_clock: MockClock
) -> None:
    with two_places(tmp_path, red=ScriptedSource(["x"])) as (one, two):
        async with one.served() as (_, first), two.served() as (_, second):
            key = (await first.post("/api/v1/clients", json={"name": "radarr"})).json()["key"]
            elsewhere = await two.torznab(second, "red", apikey=key, **SEARCH)
            link = str(xml(elsewhere).findtext("channel/item/link"))
            await first.delete("/api/v1/clients/radarr")
            with trio.fail_after(WAIT_S):
                while (await two.torznab(second, "red", apikey=key, t="caps")).text.count("<caps"):
                    await trio.sleep(0.2)
            refused = await two.torznab(second, "red", apikey=key, **SEARCH)
            gone, gone_by_head = await second.get(link), await second.head(link)

    assert titles(elsewhere) == ["x"]
    assert error_of(refused) == WRONG_KEY
    assert error_of(gone)[:2] == (404, "300")
    assert gone_by_head.status_code == 404


async def test_what_cannot_be_added_or_removed_is_told(tmp_path: Path) -> None:
    async def told(client: httpx2.AsyncClient, **body: object) -> tuple[int, str]:
        answer = await client.post("/api/v1/clients", json=body)
        return answer.status_code, answer.json()["detail"]

    with web_place(tmp_path) as place:
        async with place.served() as (_, client):
            wrong = [
                await told(client, name="Radarr"),
                await told(client, name="radarr", share=2.0),
                await told(client, name="radarr", hold_s=900),
                await told(client, name="radarr", priority="rss"),
                await told(client, name="sonarr"),
            ]
            removed = [await client.delete(f"/api/v1/clients/{name}") for name in ("sonarr", "radarr")]
            without_key = await client.get("/api/v1/clients", headers={"X-Api-Key": "wrong"})

    assert [status for status, _ in wrong] == [400, 400, 400, 400, 409]
    assert [words.partition(":")[0] for _, words in wrong[:4]] == ["name", "share", "hold_s", "priority"]
    assert [each.status_code for each in removed] == [409, 404]
    assert without_key.status_code == 401


async def test_who_guesses_keys_does_not_make_us_look_at_the_database_each_time(
    tmp_path: Path, socket_clock: MockClock
) -> None:
    with web_place(tmp_path, red=ScriptedSource(["x"])) as place:
        async with place.served() as (_, client):
            looks, began_at = _counted(place), trio.current_time()
            answers = [await place.torznab(client, "red", apikey=f"guess {number}", t="caps") for number in range(20)]
            took_s = trio.current_time() - began_at

    assert {error_of(answer) for answer in answers} == {WRONG_KEY}
    assert 0 < looks.count("all_clients") <= 2 + took_s / STRANGE_S


def _counted(place: WebPlace) -> list[str]:
    """Every read of the gateway from now on."""
    looks: list[str] = []
    read = place.gateway.read

    async def counted(function: object, *args: object, **words: object) -> object:
        looks.append(getattr(function, "__name__", ""))
        return await read(function, *args, **words)  # type: ignore[arg-type]  # passed on as it came

    place.gateway.read = counted  # type: ignore[method-assign, assignment]  # a spy, for as long as the place
    return looks
