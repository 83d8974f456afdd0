"""Whatever a stranger asks, a stand-in answers: nothing of it ends the playground."""

from __future__ import annotations

import json
from urllib.parse import quote

import httpx2
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from actors import SystemClock
from cormorant.playground.server import open_playground
from cormorant.playground.world import KEY, playground_sites
from tests.bounds import WAIT_S

SITES = {site.name: site for site in playground_sites(SystemClock()) if site.name not in {"mill", "vault"}}
NAMES = [
    "t",
    "q",
    "cat",
    "offset",
    "limit",
    "season",
    "ep",
    "year",
    "artist",
    "imdbid",
    "tvdbid",
    "configured",
    "forceSave",
]
PATHS = [
    "/",
    "/api",
    "/download/1.torrent",
    f"/download/{'9' * 5000}.nzb",
    "/1/api",
    "/9/api",
    "/api/v1/indexer",
    "/api/v1/indexer/²",
    "/api/v3/indexer",
    "/api/v3/indexer/1",
    "/api/v3/indexer/test",
    "/api/token",
    "/v1/search",
    "/v1/artists/playground000000000001/albums",
    "/api/v0/searches",
    "/api/v0/searches/x/responses",
    "/api/v0/transfers/downloads/batches",
    "/api/v0/transfers/downloads/someone",
    "/api/v2/auth/login",
    "/api/v2/torrents/add",
    "/api/v2.0/indexers/all/results/torznab/api",
    "/api/v2.0/indexers/quay/results/torznab/download/2.torrent",
]
WORDS = [
    "search",
    "tvsearch",
    "caps",
    "indexers",
    "true",
    "3000,²,-1",
    "9" * 5000,
    "0",
    "100",
    "\x00",
    "cold ferry",
    "",
]
VALUES = st.none() | st.booleans() | st.text(max_size=5) | st.lists(st.text(max_size=5), max_size=2)
FIELDS = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from(["baseUrl", "apiKey", "apiPath", "categories"]), "value": VALUES})
)
INDEXERS = st.fixed_dictionaries(
    {"name": VALUES, "implementation": st.sampled_from(["Torznab", "Newznab"]) | VALUES, "fields": FIELDS | VALUES},
    optional={"enableRss": VALUES, "id": VALUES},
)


@pytest.mark.slow("asks sixty things that no client would")
@settings(max_examples=60)
@given(
    name=st.sampled_from(sorted(SITES)),
    method=st.sampled_from(["GET", "POST", "PUT", "DELETE"]),
    path=st.sampled_from(PATHS) | st.text(max_size=20).map("/{}".format),
    params=st.dictionaries(st.sampled_from(NAMES), st.sampled_from(WORDS) | st.text(max_size=5), max_size=4),
    body=st.binary(max_size=20) | INDEXERS.map(lambda each: json.dumps(each).encode()),
)
def test_every_request_gets_an_answer(name: str, method: str, path: str, params: dict[str, str], body: bytes) -> None:
    async def ask() -> int:
        async with open_playground(*SITES.values()) as playground, httpx2.AsyncClient(timeout=WAIT_S) as client:
            url = playground.url_of(name, quote(path))
            answer = await client.request(
                method, url, params=params | {"apikey": KEY}, headers={"x-api-key": KEY}, content=body
            )
            return answer.status_code

    status = trio.run(ask)

    assert 200 <= status < 600
    assert status != 500


@pytest.mark.slow("real sockets")
async def test_asking_for_the_head_alone_ends_nothing() -> None:
    async with open_playground(*SITES.values()) as playground:
        host, port = playground.address.removeprefix("http://").split(":")
        for _ in range(2):
            stream = await trio.open_tcp_stream(host, int(port))
            async with stream:
                await stream.send_all(b"HEAD /attic/api?t=caps HTTP/1.1\r\nHost: x\r\n\r\n")
                answer = b""
                while piece := await stream.receive_some(65_536):
                    answer += piece

            assert answer.startswith(b"HTTP/1.1 200")
            assert answer.endswith(b"\r\n\r\n")
