"""The API of prices as programs use it."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
import trio

from cormorant.rules.search.requests import Result, SearchPage, SearchRequest
from cormorant.testing import ScriptedSource, named_sources
from storage.search.sources import SourceRecord
from tests.bounds import WAIT_S
from tests.web.web_place import web_place

STATED = {"price_cents": ("12345",), "price_currency": ("USD",), "price_type": ("sold",), "price_id": ("1",)}


class Shop(ScriptedSource):
    """Has sold one coin."""

    async def __call__(self, source: SourceRecord, request: SearchRequest) -> SearchPage:
        await super().__call__(source, request)
        coin = Result(title="1881 Morgan Dollar", guid="1", link="", protocol="web", attributes=STATED)
        return SearchPage(results=(coin,))


@pytest.mark.slow("real sockets, on the real clock")
async def test_a_price_is_watched_collected_shown_and_removed(tmp_path: Path) -> None:
    named = named_sources("shop", spacing_s=0.0, pace_s=0.0)
    shops = {name: attrs.evolve(each, kind="prices") for name, each in named.items()}
    body = {"name": "coin", "title": "Morgan Dollar", "year": "1881", "currency": "USD", "above_cents": 10_000}
    with web_place(tmp_path, shop=Shop()) as place:
        async with place.served(sources=shops) as (_, client):
            added = await client.post("/api/v1/prices", json=body)
            again = await client.post("/api/v1/prices", json=body)
            wrong = await client.post("/api/v1/prices", json=body | {"name": "x", "currency": "coins"})
            strange = await client.post("/api/v1/prices", json=body | {"name": "x", "colour": "red"})
            with trio.fail_after(WAIT_S):
                while not (shown := (await client.get("/api/v1/prices/coin")).json())["points"]:
                    await trio.sleep(0.02)
            listed = (await client.get("/api/v1/prices")).json()
            history = (await client.get("/api/v1/prices/coin/history")).json()
            checked = await client.post("/api/v1/prices/coin/check")
            paused = (await client.post("/api/v1/prices/coin/pause")).json()["price"]
            resumed = (await client.post("/api/v1/prices/coin/resume")).json()["price"]
            nobody = await client.post("/api/v1/prices/none/pause")
            removed = await client.delete("/api/v1/prices/coin")
            gone = await client.get("/api/v1/prices/coin")

    answers = (added, again, wrong, strange, checked, nobody, removed, gone)
    assert [each.status_code for each in answers] == [201, 409, 400, 400, 200, 404, 204, 404]
    assert [(each["is_paused"], each["idle_because"]) for each in (paused, resumed)] == [
        (True, "it is paused"),
        (False, None),
    ]
    assert [(each["name"], each["value"]["cents"], each["value"]["side"]) for each in listed] == [
        ("coin", 12_345, "above")
    ]
    assert [(each["type"], each["match"], each["key"]) for each in shown["points"]] == [("sold", "exact", "ext_1")]
    assert [each["side"] for each in shown["alerts"]] == ["above"]
    assert [each["cents"] for each in history] == [12_345]
