"""HEAD: the status and headers of a GET without its body; the gate asks no site for it, and streams end with their headers."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest
import trio
from attrs import frozen
from trio.testing import MockClock

from cormorant.rules.secrets import Secret
from cormorant.rules.settings.service import WebSettings
from cormorant.testing import ScriptedSource
from cormorant.web.event_stream import FEEDS_MAX
from cormorant.web.head_requests import HeadAnswers
from storage.search import history
from tests.bounds import WAIT_S
from tests.services.gate.test_gate_downloads import a_site, found, link_of, spent
from tests.web.raw_client import dial, heard
from tests.web.web_place import KEY, SONARR, WebPlace, web_place

pytestmark = pytest.mark.slow("real sockets, on the real clock")

OPEN: Final = ("/", "/page/app.js", "/health", "/ready", "/metrics", "/api/v1/session", "/no/such/path")
SEARCHES: Final = {
    "caps": {"t": "caps"},
    "search": {"t": "search", "q": "x"},
    "news": {"t": "tvsearch", "cat": "5030,5040"},
}
REFUSED: Final = {
    "no key": {"apikey": "", "t": "caps"},
    "wrong key": {"apikey": "wrong", "t": "search", "q": "x"},
    "no function": {},
    "unknown function": {"t": "register"},
    "wrong parameter": {"t": "search", "cat": "tv"},
}


def web(**chosen: Any) -> WebSettings:
    return WebSettings(listen="127.0.0.1:0", key=Secret(KEY), **chosen)


def headers_of(answer: httpx2.Response) -> dict[str, str]:
    """All headers but the time."""
    return {name: value for name, value in answer.headers.items() if name != "date"}


async def read_routes(client: httpx2.AsyncClient) -> list[str]:
    """Every address of the API that answers GET and ends, with a number or name that is not there where it needs one."""
    described = (await client.get("/api/v1/openapi.json")).json()
    paths = [path for path, methods in described["paths"].items() if "get" in methods]
    return [re.sub(r"\{[^}]+\}", "1", path) for path in paths if path != "/api/v1/events"]


async def test_every_read_route_answers_head_with_the_headers_of_get(tmp_path: Path) -> None:
    with web_place(tmp_path, red=ScriptedSource()) as place:
        async with place.served() as (_, client):
            paths = [*OPEN, "/api/v1/openapi.json", "/api/v1/sources/red", *await read_routes(client)]
            answers = {
                path: (await client.get(path), await client.head(path), await client.get(path)) for path in paths
            }

    assert len(answers) > 30
    for path, (get, head, again) in answers.items():
        known, seen = headers_of(get), headers_of(head)
        assert int(seen["content-length"]) > 0
        if get.content != again.content:  # it tells of the moment, and its length may differ
            del known["content-length"], seen["content-length"]
        assert (head.status_code, seen, head.content) == (get.status_code, known, b""), path
    assert {head.status_code for _, head, _ in answers.values()} == {200, 404}
    assert {path for path, (get, _, again) in answers.items() if get.content == again.content} >= {"/", "/health"}


@pytest.mark.parametrize("key", ["", "wrong", SONARR])
async def test_head_needs_the_key_that_get_needs(tmp_path: Path, key: str) -> None:
    with web_place(tmp_path, red=ScriptedSource()) as place:
        async with place.served() as (_, client):
            asked = {"X-Api-Key": key}
            paths = ["/api/v1/sources", "/metrics", "/api/v1/events"]
            pairs = [
                (await client.get(path, headers=asked), await client.head(path, headers=asked)) for path in paths[:2]
            ]
            events = await client.head(paths[2], headers=asked)

    assert [(get.status_code, head.status_code) for get, head in pairs] == [(401, 401)] * 2
    assert [headers_of(get) for get, _ in pairs] == [headers_of(head) for _, head in pairs]
    assert events.status_code == 401


async def test_wrong_keys_in_heads_count_as_wrong_keys(tmp_path: Path) -> None:
    with web_place(tmp_path, red=ScriptedSource()) as place:
        async with place.served(web=web(wrong_keys_per_minute=3)) as (_, client):
            tries = [await client.head("/api/v1/sources", headers={"X-Api-Key": f"no {n}"}) for n in range(5)]
            gate = await client.head("/gate/red/api", params={"t": "caps", "apikey": "another"})

    assert [each.status_code for each in tries] == [401, 401, 401, 429, 429]
    assert gate.status_code == 429


async def test_head_where_nothing_is_read_is_refused_and_names_what_is_allowed(tmp_path: Path) -> None:
    with web_place(tmp_path, red=ScriptedSource()) as place:
        async with place.served() as (_, client):
            post_only = await client.head("/api/v1/sources/red/pause")
            get_only = await client.put("/health")
            both = await client.put("/api/v1/subscriptions")
            unknown = await client.head("/api/v1/nothing-here")

    assert (post_only.status_code, post_only.content) == (405, b"")
    assert {"POST", "HEAD"} & set(post_only.headers["allow"].split(", ")) == {"POST"}
    assert get_only.status_code == both.status_code == 405
    assert {"GET", "HEAD"} <= set(get_only.headers["allow"].split(", "))
    assert {"GET", "HEAD", "POST"} <= set(both.headers["allow"].split(", "))
    assert unknown.status_code == 404


async def test_heads_count_as_requests_of_an_address(tmp_path: Path) -> None:
    with web_place(tmp_path, red=ScriptedSource()) as place:
        async with place.served(web=web(requests_per_second=1)) as (_, client):
            answers = [await client.head("/api/v1/sources") for _ in range(50)]
            alive = [await client.head("/health") for _ in range(4)]

    refused = [each for each in answers if each.status_code == 429]
    assert {each.status_code for each in answers} == {200, 429}
    assert all("retry-after" in each.headers for each in refused)
    assert [each.status_code for each in alive] == [200] * 4


async def test_all_addresses_below_a_url_base_answer_head(tmp_path: Path) -> None:
    with web_place(tmp_path, red=ScriptedSource()) as place:
        async with place.served(web=web(url_base="/tools/bird")) as (_, client):
            paths = ["/health", "/", "/api/v1/sources", f"/gate/red/api?t=caps&apikey={SONARR}"]
            inside = [(await client.head(path)).status_code for path in paths]
            async with httpx2.AsyncClient(base_url=place.address.removesuffix("/tools/bird")) as outside:
                bare = await outside.head("/tools/bird")
                beside = await outside.head("/health")

    assert inside == [200] * 4
    assert (bare.status_code, bare.headers["location"]) == (308, "/tools/bird/")
    assert beside.status_code == 404


async def test_a_page_that_the_browser_has_is_not_sent_anew(tmp_path: Path) -> None:
    with web_place(tmp_path) as place:
        async with place.served() as (_, client):
            tag = (await client.head("/")).headers["etag"]
            again = await client.head("/", headers={"If-None-Match": tag})

    assert again.status_code == 304


async def test_a_browser_that_is_signed_in_may_ask_for_heads(tmp_path: Path) -> None:
    with web_place(tmp_path, red=ScriptedSource()) as place:
        async with place.served() as (_, client):
            client.headers.pop("X-Api-Key")
            await client.post("/api/v1/session", json={"key": KEY})
            answer = await client.head("/api/v1/sources")

    assert answer.status_code == 200


@frozen
class Wire:
    """What one connection got: the answer to a HEAD, and everything behind it."""

    head: str
    rest: bytes


async def wire_of(place: WebPlace, target: str) -> Wire:
    """Ask by HEAD and then, on the same connection, for /health."""
    key = f"X-Api-Key: {KEY}\r\n"
    asked = (
        f"HEAD {target} HTTP/1.1\r\nHost: x\r\n{key}\r\nGET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    )
    async with await dial(place) as stream:
        got = await heard(stream, asked.encode(), within_s=WAIT_S)
    assert got.is_closed
    head, _, rest = got.data.partition(b"\r\n\r\n")
    return Wire(head.decode("latin-1").lower(), rest)


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/", 200),
        ("/health", 200),
        ("/metrics", 200),
        ("/api/v1/openapi.json", 200),
        ("/api/v1/sources", 200),
        ("/api/v1/events", 200),
        ("/api/v1/nothing", 404),
        ("/api/v1/sources/s1/pause", 405),
        (f"/gate/s1/api?t=search&q=x&apikey={SONARR}", 200),
        ("/gate/s1/api?t=caps&apikey=wrong", 200),
        ("/gate/s1/download/sonarr.a.b", 404),
    ],
)
async def test_no_byte_of_a_body_is_sent_and_the_connection_goes_on(tmp_path: Path, target: str, status: int) -> None:
    sources = {f"s{number}": ScriptedSource(["x"]) for number in range(30)}
    with web_place(tmp_path, **sources) as place:
        async with place.served():
            wire = await wire_of(place, target)

    assert wire.head.startswith(f"http/1.1 {status} ")
    assert wire.rest.startswith(b"HTTP/1.1 200 ")
    assert wire.rest.endswith(b'{"service":"cormorant","status":"alive"}')


async def test_the_length_of_a_large_list_is_told_and_the_list_is_not_sent(tmp_path: Path) -> None:
    sources = {f"s{number}": ScriptedSource() for number in range(60)}
    with web_place(tmp_path, **sources) as place:
        async with place.served() as (_, client):
            length = len((await client.get("/api/v1/openapi.json")).content)
            described = await wire_of(place, "/api/v1/openapi.json")
            listed = await wire_of(place, "/api/v1/sources")

    assert length > 50_000
    assert f"content-length: {length}" in described.head.split("\r\n")
    assert int(re.findall(r"content-length: (\d+)", listed.head)[0]) > 10_000
    assert len(listed.rest) < 1_000


async def test_a_refusal_before_the_application_has_no_body_either(tmp_path: Path) -> None:
    asked = b"HEAD /api/../health HTTP/1.1\r\nHost: x\r\n\r\n"
    with web_place(tmp_path) as place:
        async with place.served(), await dial(place) as stream:
            got = await heard(stream, asked, within_s=WAIT_S)

    assert (got.status, got.is_closed) == (400, True)
    assert got.data.endswith(b"\r\n\r\n")
    assert got.data.count(b"\r\n\r\n") == 1


async def test_the_gate_answers_head_without_asking_a_site_or_spending_anything(tmp_path: Path) -> None:
    async with a_site(tmp_path) as (place, site, client):
        client.headers.pop("X-Api-Key")
        heads = {
            (name, where): await client.head(f"/gate/{where}/api", params={"apikey": SONARR} | params)
            for name, params in SEARCHES.items()
            for where in ("red", "combined")
        }
        asked, kept, lanes = len(site.asked), await place.gateway.read(history.recent), await place.gateway.read(spent)
        gets = {key: await place.torznab(client, key[1], **SEARCHES[key[0]]) for key in heads}

    assert (asked, kept, lanes) == (0, [], [])
    for key, head in heads.items():
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-type"] == gets[key].headers["content-type"]
        assert "content-length" not in head.headers


async def test_the_gate_tells_head_what_is_wrong_as_it_tells_get(tmp_path: Path) -> None:
    with web_place(tmp_path, red=ScriptedSource()) as place:
        async with place.served() as (_, client):
            client.headers.pop("X-Api-Key")
            cases = [("red", {"apikey": SONARR} | params) for params in REFUSED.values()]
            cases.append(("blue", {"apikey": SONARR, "t": "caps"}))
            pairs = [
                [await client.request(method, f"/gate/{where}/api", params=params) for method in ("GET", "HEAD")]
                for where, params in cases
            ]

    for get, head in pairs:
        assert (head.status_code, headers_of(head), head.content) == (get.status_code, headers_of(get), b"")
        assert b"<error " in get.content


async def test_head_of_a_download_is_no_download(tmp_path: Path) -> None:
    async with a_site(tmp_path) as (place, site, client):
        client.headers.pop("X-Api-Key")
        _, items = await found(place, client)
        torrent, magnet = link_of(items["torrent"]), link_of(items["magnet"])
        before = len(site.asked)
        heads = [await client.head(torrent) for _ in range(5)]
        by_magnet, by_get = await client.head(magnet), await client.get(magnet)
        forged = await client.head(f"{torrent}x")
        asked, lanes = len(site.asked) - before, await place.gateway.read(spent)
        fetched = await client.get(torrent)

    assert (asked, lanes) == (0, [("query", "sonarr")])
    assert {(each.status_code, each.headers["content-type"]) for each in heads} == {(200, "application/x-bittorrent")}
    assert (by_magnet.status_code, by_magnet.headers["location"]) == (302, by_get.headers["location"])
    assert forged.status_code == 404
    assert fetched.status_code == 200


async def test_a_closed_source_and_a_used_up_share_are_no_matter_for_head(tmp_path: Path) -> None:
    red = ScriptedSource(["x"])
    with web_place(tmp_path, red=red) as place:
        async with place.served({"per_day": 1}) as (service, client):
            for _ in range(3):
                await client.head("/gate/red/api", params={"apikey": SONARR, "t": "search", "q": "x"})
            first = await place.torznab(client, "red", t="search", q="x")
            await service.pause_source("red")
            paused = await client.head("/gate/red/api", params={"apikey": SONARR, "t": "search", "q": "y"})

    assert (first.status_code, paused.status_code) == (200, 200)
    assert len(red.requests) == 1


async def test_streams_send_their_headers_and_end(tmp_path: Path) -> None:
    with web_place(tmp_path, red=ScriptedSource(["x"])) as place:
        async with place.served({"spacing_s": 3600.0}) as (service, client):
            await service.pause_source("red")
            begun = await client.post("/api/v1/searches", json={"query": "never ends", "max_wait_s": 3600})
            stream = f"/api/v1/searches/{begun.json()['id']}/stream"
            with trio.fail_after(WAIT_S):
                events = [await client.head("/api/v1/events") for _ in range(FEEDS_MAX + 1)]
                outcomes = await client.head(stream)
                async with client.stream("GET", "/api/v1/events") as listening:
                    listened = listening.status_code
                async with client.stream("GET", stream) as watching:
                    watched = headers_of(watching)

    assert [each.status_code for each in events] == [200] * (FEEDS_MAX + 1)
    assert events[0].headers["content-type"].startswith("text/event-stream")
    assert (listened, outcomes.status_code) == (200, 200)
    assert headers_of(outcomes) == watched


async def test_a_handler_that_goes_on_after_its_headers_is_cancelled(clock: MockClock) -> None:
    sent: list[Any] = []

    async def endless(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while True:
            await send({"type": "http.response.body", "body": b"more", "more_body": True})

    async def keep(message: Any) -> None:
        sent.append(message)

    scope: Any = {"type": "http", "method": "HEAD", "state": {}}
    await HeadAnswers(endless)(scope, keep, keep)  # type: ignore[arg-type]  # nothing is received

    assert [each["type"] for each in sent] == ["http.response.start", "http.response.body"]
    assert (sent[1]["body"], sent[1]["more_body"]) == (b"", False)


@pytest.fixture(scope="module")
def wget() -> str:
    path = shutil.which("wget")
    if path is None:
        pytest.skip("No wget: its --spider, the health check of many containers, was not tried")
    return path


async def exit_code(wget: str, *words: str) -> int:
    environ = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    with trio.fail_after(WAIT_S):
        done = await trio.run_process([wget, "--tries=1", *words], check=False, capture_stderr=True, env=environ)
    return done.returncode


async def test_wget_finds_every_kind_of_address_there(wget: str, tmp_path: Path) -> None:
    key = f"--header=X-Api-Key: {KEY}"
    async with a_site(tmp_path) as (place, site, client):
        _, items = await found(place, client)
        before = len(site.asked)
        begun = await client.post("/api/v1/searches", json={"query": "x"})
        stream = f"/api/v1/searches/{begun.json()['id']}/stream"
        open_to_all = ["/", "/page/app.js", "/health", "/ready"]
        with_key = ["/metrics", "/api/v1/overview", "/api/v1/sources", "/api/v1/openapi.json", "/api/v1/events", stream]
        gate = [f"/gate/red/api?t={t}&q=y&apikey={SONARR}" for t in ("caps", "search", "tvsearch")]
        found_there = {
            path: await exit_code(wget, "--spider", "-q", *words, f"{place.address}{path}")
            for paths, words in ((open_to_all, []), (with_key, [key]), (gate, []))
            for path in paths
        }
        download = await exit_code(wget, "--spider", "-q", link_of(items["torrent"]))
        missing = await exit_code(wget, "--spider", "-q", f"{place.address}/nothing")
        without_key = await exit_code(wget, "--spider", "-q", f"{place.address}/metrics")
        asked = [each.target for each in site.asked[before:] if each.params.get("q") != "x"]

    assert found_there == dict.fromkeys(found_there, 0)
    assert download == 0
    assert (missing, without_key) == (8, 6)  # "server issued an error response", "authentication failure"
    assert asked == []
