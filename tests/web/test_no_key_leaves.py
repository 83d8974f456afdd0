"""No key of a source leaves in any byte: it is put into every field of a find and of an error, in every spelling."""

from __future__ import annotations

import html
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from cormorant.rules.search.outcomes import SourceUnavailable
from cormorant.rules.search.requests import Result, SearchPage, SearchRequest
from cormorant.rules.secrets import Secret, spellings
from cormorant.services.gate.torznab_documents import PASSED_ON
from storage.search.sources import SourceRecord
from tests.web.web_place import web_place

pytestmark = pytest.mark.slow("real sockets, on the real clock")

KEY = "a/b&c<d>'e\"f+g h%2Fké"
SPELLINGS = [secret.reveal() for secret in spellings([Secret(KEY)])]
USUAL = Result(title="title", guid="guid", link="http://x.test/1", protocol="torrent")


def finds() -> Iterator[Result]:
    for number, spelling in enumerate(SPELLINGS):
        inside = f"http://x.test/{number}?a=b&c={spelling}"
        for name in ("title", "guid", "link", "details", "enclosure_type", "magnet"):
            changes: dict[str, Any] = {"guid": f"{name} {number}"} | {name: inside}
            yield attrs.evolve(USUAL, **changes)
        yield attrs.evolve(USUAL, guid=f"c{number}", categories=("5040", spelling, inside))
        for name in (*PASSED_ON, "coverurl", "magneturl", spelling):
            yield attrs.evolve(USUAL, guid=f"{name}{number}", attributes={name: (inside, "harmless")})


async def leaky(record: SourceRecord, request: SearchRequest) -> SearchPage:
    if request.query.startswith("fail"):
        raise SourceUnavailable(f"it said {' and '.join(SPELLINGS)}")
    return SearchPage(results=tuple(finds()))


async def test_no_spelling_of_a_key_is_in_any_answer(tmp_path: Path) -> None:
    source: Any = leaky
    with web_place(tmp_path, red=source) as place:
        async with place.served({"key": Secret(KEY)}) as (_, client):
            number = (await client.post("/api/v1/searches", json={"query": "x", "wait_s": 90})).json()["id"]
            answers = [
                await place.torznab(client, "red", t="search", q="x"),
                await place.torznab(client, "red", t="search"),
                await place.torznab(client, "combined", t="search", q="y"),
                await place.torznab(client, "red", t="search", q="fail"),
                await client.get(f"/api/v1/searches/{number}"),
                await client.get(f"/api/v1/searches/{number}/stream"),
                await client.post("/api/v1/searches", json={"query": "fail again", "wait_s": 90}),
                await client.get("/api/v1/sources"),
                await client.get("/api/v1/status"),
            ]

    assert [answer.status_code for answer in answers] == [200, 200, 200, 503, 200, 200, 201, 200, 200]
    for answer in answers:
        sent = f"{answer.text}\n{answer.headers!r}"
        forms = (sent, html.unescape(sent), sent.replace('\\"', '"').replace("\\/", "/"))
        assert [(spelling, answer.url) for spelling in SPELLINGS for form in forms if spelling in form] == []
    assert answers[0].text.count("<item>") == len(list(finds()))
    assert answers[0].text.count('value="harmless"') == len(PASSED_ON) * len(SPELLINGS)
