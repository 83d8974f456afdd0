"""The Torznab client against servers on loopback: what it sends, and what it makes of every answer."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import pytest
import trio

from cormorant.clients.http.transport import Transport
from cormorant.clients.torznab import TorznabClient, TorznabOptions
from cormorant.rules.search.outcomes import (
    CredentialsRefused,
    SourceError,
    SourceLimited,
    SourceRefused,
    SourceUnavailable,
)
from cormorant.rules.search.requests import SearchRequest
from cormorant.rules.secrets import Secret
from tests.clients.raw_server import RawServer, page, raw_server, redirect
from tests.environments import environment_of

T = TypeVar("T")

KEY = "hunter2hunter2"
NOW = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)
ENVELOPES = Path(__file__).parents[3] / "shared" / "fixtures" / "torznab" / "_derived_rate_limits"
EMPTY = '<rss version="2.0"><channel/></rss>'
INFO = b"d6:lengthi1e4:name8:some.mkv12:piece lengthi1e6:pieces20:" + bytes(20) + b"e"
TORRENT = b"d8:announce14:http://t.x/abc4:info" + INFO + b"e"
NZB = b"""<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE nzb PUBLIC "-//newzBin//DTD NZB 1.1//EN" "http://www.newzbin.com/DTD/nzb/nzb-1.1.dtd">
<nzb xmlns="http://www.newzbin.com/DTD/2003/nzb"><head><meta type="title">Some name</meta></head>
<file poster="p" date="1" subject="s"><groups><group>a.b</group></groups>
<segments><segment bytes="1" number="1">a@b</segment></segments></file></nzb>"""


class FixedClock:
    def now(self) -> datetime:
        return NOW

    def stopwatch(self) -> float:
        return 0.0


async def in_line(function: Callable[..., T], /, *args: Any) -> T:
    return function(*args)


@asynccontextmanager
async def client_of(
    server: RawServer, *, key: str = KEY, path: str = "/api", **options: Any
) -> AsyncIterator[TorznabClient]:
    transport = Transport(written=[server.url])
    yield TorznabClient(
        f"{server.url}{path}",
        Secret(key),
        transport,
        environment_of(offload=in_line, clock=FixedClock()),
        options=TorznabOptions(**options),
    )


def item(*, title: str = "Some name", guid: str = "g", link: str = "http://x.org/1", more: str = "") -> str:
    return f"<item><title>{title}</title><guid>{guid}</guid><link>{link}</link>{more}</item>"


def feed(*items: str) -> str:
    return (
        '<rss version="2.0" xmlns:torznab="http://torznab.com/schemas/2015/feed" '
        'xmlns:newznab="http://www.newznab.com/DTD/2010/feeds/attributes/">'
        f"<channel>{''.join(items)}</channel></rss>"
    )


@pytest.mark.parametrize(
    ("request_", "sent"),
    [
        (SearchRequest(query="a b"), {"t": "search", "q": "a b"}),
        (SearchRequest(categories=(5030, 5040)), {"t": "search", "cat": "5030,5040"}),
        (
            SearchRequest(kind="tv", params={"tvdbid": 1, "season": "00", "ep": "12/31"}),
            {"t": "tvsearch", "tvdbid": "1", "season": "00", "ep": "12/31"},
        ),
        (SearchRequest(kind="movie", params={"imdbid": "0111161"}), {"t": "movie", "imdbid": "0111161"}),
        (
            SearchRequest(kind="music", params={"artist": "Björk", "album": "Post & more"}),
            {"t": "music", "artist": "Björk", "album": "Post & more"},
        ),
        (SearchRequest(kind="book", params={"author": "A", "title": "T"}), {"t": "book", "author": "A", "title": "T"}),
        (SearchRequest(query="a", offset=100, limit=50), {"t": "search", "q": "a", "offset": "100", "limit": "50"}),
    ],
    ids=["search", "rss", "tv", "movie", "music", "book", "a later page"],
)
async def test_a_search_is_sent_as_it_is_asked(request_: SearchRequest, sent: dict[str, str]) -> None:
    async with raw_server({"/api": page(EMPTY)}) as server, client_of(server) as client:
        found = await client.search(request_)

    assert server.asked[0].params == sent | {"extended": "1", "apikey": KEY}
    assert "application/rss+xml" in server.asked[0].headers["accept"]
    assert found.results == ()


async def test_without_a_key_none_is_sent_and_a_query_in_the_address_stays() -> None:
    async with raw_server({"/api": page(EMPTY)}) as server, client_of(server, key="", path="/api?passkey=x") as client:
        await client.search(SearchRequest(query="a"))

    assert server.asked[0].params == {"passkey": "x", "t": "search", "q": "a", "extended": "1"}


async def test_results_limits_and_totals_come_back() -> None:
    more = (
        '<torznab:attr name="SEEDERS" value="5"/><torznab:attr name="leechers" value="2"/>'
        '<torznab:attr name="category" value="2000"/><torznab:attr name="category" value="2040"/>'
        '<torznab:attr name="downloadvolumefactor" value="0"/><torznab:attr name="grabs" value="9"/>'
        '<enclosure url="/dl/1" length="0" type="application/x-bittorrent"/><size>77</size>'
    )
    limits = (
        '<newznab:apilimits apiCurrent="3" apimax="100" GRABMAX="5" apiOldestTime="Mon, 16 Nov 2026 01:00:00 +0000"/>'
    )
    body = feed('<newznab:response offset="0" total="1000"/>', limits, item(more=more))
    headers = {"X-RateLimit-Limit": "60", "X-RateLimit-Remaining": "59"}
    async with raw_server({"/api": page(body, headers=headers)}) as server, client_of(server) as client:
        found = await client.search(SearchRequest(query="a"))

    (result,) = found.results
    assert (result.seeders, result.peers, result.grabs, result.size_bytes) == (5, 7, 9, 77)
    assert (result.categories, result.is_freeleech, result.protocol) == (("2000", "2040"), True, "torrent")
    assert result.link == f"{server.url}/dl/1"
    assert found.limits is not None
    assert (found.limits.api_current, found.limits.api_max, found.limits.grab_max) == (3, 100, 5)
    assert found.limits.api_oldest_at == datetime(2026, 11, 16, 1, tzinfo=UTC)
    assert found.limits.rate_limit == 60


async def test_the_protocol_decides_between_two_enclosures() -> None:
    more = (
        '<enclosure url="http://x.org/t" type="application/x-bittorrent"/>'
        '<enclosure url="http://x.org/n" type="application/x-nzb"/>'
    )
    async with raw_server({"/api": page(feed(item(more=more)))}) as server:
        links = []
        for protocol in ("torrent", "usenet", None):
            async with client_of(server, protocol=protocol) as client:
                found = await client.search(SearchRequest())
                links.append((found.results[0].link, found.results[0].protocol))

    assert links == [("http://x.org/t", "torrent"), ("http://x.org/n", "usenet"), ("http://x.org/t", "torrent")]


async def test_our_key_is_only_where_it_is_needed() -> None:
    link = f"http://x.org/dl?apikey={KEY}&amp;id=1"
    more = f'<comments>{link}</comments><torznab:attr name="odd" value="{KEY}"/>'
    body = feed(item(title=KEY, guid=link, link=link, more=more))
    async with raw_server({"/api": page(body)}) as server, client_of(server) as client:
        found = await client.search(SearchRequest())

    (result,) = found.results
    assert result.link == f"http://x.org/dl?apikey={KEY}&id=1"
    assert result.guid == "http://x.org/dl?apikey=***&id=1"
    assert KEY not in repr(found)
    assert KEY not in f"{result.title} {result.details} {result.attributes}"


async def test_large_bodies_are_read_in_a_thread() -> None:
    threads: list[threading.Thread] = []

    async def offload(function: Callable[..., T], /, *args: Any) -> T:
        def run() -> T:
            threads.append(threading.current_thread())
            return function(*args)

        return await trio.to_thread.run_sync(run)

    async with raw_server({"/api": page(EMPTY)}) as server:
        transport = Transport(written=[server.url])
        client = TorznabClient(
            f"{server.url}/api", Secret(KEY), transport, environment_of(offload=offload, clock=FixedClock())
        )
        await client.search(SearchRequest())

    assert threads != [threading.current_thread()]


async def test_caps_are_asked_for_and_read() -> None:
    body = (
        '<caps><server title="X"/><limits default="many"/><searching><search available="yes"/>'
        '<audio-search available="yes" supportedParams="q, artist"/><music-search available="yes" supportedParams="album"/>'
        '<book-search available="no"/></searching>'
        '<categories><category id="x" name="bad"/><category id="100001" name="Own"><subcat id="3" name="S"/></category></categories></caps>'
    )
    async with raw_server({"/api": page(body)}) as server, client_of(server) as client:
        caps = await client.caps()

    assert server.asked[0].params == {"t": "caps", "apikey": KEY}
    assert caps.page_size == 100
    assert caps.searching == {"search": frozenset({"q"}), "music": frozenset({"q", "artist", "album"})}
    assert caps.states_params == {"music"}
    assert [(each.id, each.name, len(each.children)) for each in caps.categories] == [(100001, "Own", 1)]


def error(code: object, words: str = "Words") -> str:
    return f'<?xml version="1.0"?><error code="{code}" description="{words}"/>'


ERRORS = {
    "a bad key with 200": (page(error(100)), CredentialsRefused),
    "a suspended account with 400": (page(error(101), status="400 x"), CredentialsRefused),
    "code 200 is no success": (page(error(200, "API Disabled")), SourceRefused),
    "a missing function": (page(error(203), status="500 x"), SourceRefused),
    "no such item": (page(error(300), status="404 x"), SourceRefused),
    "quota with 200": (page(error(500, "Request limit reached")), SourceLimited),
    "downloads with 200": (page(error(501)), SourceLimited),
    "limit with 429": (page(error(900), status="429 x"), SourceLimited),
    "limit by its words alone": (page(error(910, "Request limit reached (101/100)")), SourceLimited),
    "other": (page(error(900)), SourceUnavailable),
    "no number": (page(error("x")), SourceUnavailable),
    "inside a feed": (page(f"<rss><channel>{error(100)[21:]}</channel></rss>"), CredentialsRefused),
    "after the end": (page(error(100) + "<html>"), CredentialsRefused),
    "401": (page("no", status="401 x"), CredentialsRefused),
    "403": (page("<html><body>no</body></html>", status="403 x"), CredentialsRefused),
    "403, but about the call": (page(error(201), status="403 x"), SourceRefused),
    "404": (page("<html/>", status="404 x"), SourceRefused),
    "410": (page(error(410), status="410 x"), SourceRefused),
    "429 without words": (page("", status="429 x"), SourceLimited),
    "500": (page("oops", status="500 x"), SourceUnavailable),
    "503 with results": (page(EMPTY, status="503 x"), SourceUnavailable),
    "HTML": (page("<!DOCTYPE html><html><head><title>Login</title></head></html>"), SourceUnavailable),
    "broken HTML": (page("<html><body><p>a<br>b</body>"), SourceUnavailable),
    "garbage": (page(bytes(range(256)) * 4), SourceUnavailable),
    "nothing": (page(""), SourceUnavailable),
    "caps": (page("<caps/>"), SourceUnavailable),
    "a JSON throttle": (page('{"error":"Request limit reached","retry_after":37}'), SourceLimited),
    "a JSON error": (page('{"error":{"@attributes":{"code":"100","description":"no"}}}'), CredentialsRefused),
    "other JSON": (page("[1, 2]"), SourceUnavailable),
    "deep JSON": (page("[" * 100_000), SourceUnavailable),
    "a redirect that leads nowhere": (page("", status="302 Found"), SourceUnavailable),
}


@pytest.mark.parametrize(("answer", "kind"), ERRORS.values(), ids=ERRORS)
async def test_what_an_answer_means(answer: bytes, kind: type[SourceError]) -> None:
    async with raw_server({"/api": answer}) as server, client_of(server) as client:
        with pytest.raises(SourceError) as caught:
            await client.search(SearchRequest(query="a"))

    assert type(caught.value) is kind


async def test_a_call_without_a_key_that_needs_one_is_about_credentials() -> None:
    answer = page(error(200, "Missing parameter (apikey)"))
    async with raw_server({"/api": answer}) as server, client_of(server, key="") as client:
        with pytest.raises(CredentialsRefused):
            await client.search(SearchRequest())


@pytest.mark.parametrize(
    ("headers", "body", "wait_s"),
    [
        ({"Retry-After": "60"}, error(900), 60.0),
        ({"Retry-After": "Mon, 16 Nov 2026 12:01:00 GMT"}, error(429), 60.0),
        ({}, '{"error":"x","retry_after":37}', 37.0),
        ({"Retry-After": "5"}, '{"error":"x","retry_after":37}', 5.0),
        ({"Retry-After": "soon"}, "", None),
    ],
)
async def test_the_wait_that_is_asked_for_comes_along(headers: dict[str, str], body: str, wait_s: float | None) -> None:
    async with raw_server({"/api": page(body, status="429 x", headers=headers)}) as server, client_of(server) as client:
        with pytest.raises(SourceLimited) as caught:
            await client.search(SearchRequest())

    assert caught.value.retry_after_s == wait_s


def envelopes() -> list[Any]:
    if not ENVELOPES.exists():
        return [pytest.param({}, marks=pytest.mark.skip(reason=f"the folder {ENVELOPES} is not here"))]
    found = [json.loads(file.read_text()) for file in sorted(ENVELOPES.glob("*.json"))]
    return [pytest.param(each, id=each["name"]) for each in found]


MEANT: dict[str, tuple[type[SourceError], float | None]] = {
    "classic_newznab_200": (SourceLimited, None),
    "jackett_bad_key": (CredentialsRefused, None),
    "jackett_upstream_429": (SourceLimited, 60.0),
    "nntmux_daily_quota": (SourceLimited, None),
    "nntmux_grab_limit": (SourceLimited, None),
    "nntmux_per_minute": (SourceLimited, 37.0),
    "nzedb_quota": (SourceLimited, None),
    "prowlarr_blocked": (SourceLimited, 1740.0),
    "prowlarr_disabled": (SourceRefused, None),
    "prowlarr_query_limit": (SourceLimited, 3600.0),
}


@pytest.mark.parametrize("envelope", envelopes())
async def test_every_known_way_to_say_no(envelope: dict[str, Any]) -> None:
    answer = page(envelope["body"], status=f"{envelope['status']} x", headers=envelope["headers"])
    async with raw_server({"/api": answer}) as server, client_of(server) as client:
        with pytest.raises(SourceError) as caught:
            await client.caps()

    assert (type(caught.value), caught.value.retry_after_s) == MEANT[envelope["name"]]


async def test_the_words_of_a_server_do_not_show_our_key() -> None:
    words = f"Bad key {KEY} at http://x.org/?apikey={KEY}&#10;second line"
    async with raw_server({"/api": page(error(100, words))}) as server, client_of(server) as client:
        with pytest.raises(CredentialsRefused) as caught:
            await client.search(SearchRequest())

    assert KEY not in str(caught.value)
    assert "\n" not in str(caught.value)


async def fetched(body: bytes, *, headers: dict[str, str] | None = None, status: str = "200 OK") -> Any:
    async with (
        raw_server({"/dl": page(body, headers=headers or {}, status=status)}) as server,
        client_of(server) as client,
    ):
        return await client.download("/dl")


async def test_a_torrent_is_recognised_with_its_infohash() -> None:
    found = await fetched(TORRENT)

    assert (found.kind, found.body, found.name) == ("torrent", TORRENT, "some.mkv")
    assert found.infohash == hashlib.sha1(INFO, usedforsecurity=False).hexdigest()


async def test_an_nzb_is_recognised_with_its_name() -> None:
    found = await fetched(NZB)

    assert (found.kind, found.body, found.name, found.infohash) == ("nzb", NZB, "Some name", None)


MAGNET = "magnet:?xt=urn:btih:9fb267cff5ae5603f07a347676ec3bf3e35f75e1&dn=Some+name"


@pytest.mark.parametrize("way", ["link", "redirect", "body"])
async def test_a_magnet_is_recognised_however_it_comes(way: str) -> None:
    routes = {"/redirect": redirect(MAGNET), "/body": page(f"{MAGNET}\n")}
    async with raw_server(routes) as server, client_of(server) as client:
        found = await client.download(MAGNET if way == "link" else f"{server.url}/{way}")

    assert (found.kind, found.magnet, found.name) == ("magnet", MAGNET, "Some name")
    assert found.infohash == "9fb267cff5ae5603f07a347676ec3bf3e35f75e1"


NO_FILES = {
    "HTML": (page("<!DOCTYPE html><html>login</html>"), SourceRefused),
    "half a torrent": (page(TORRENT[:-30]), SourceRefused),
    "a torrent and more": (page(TORRENT + b"<html>"), SourceRefused),
    "bencode without info": (page(b"d3:agei1ee"), SourceRefused),
    "info that is none": (page(b"d4:infoi1ee"), SourceRefused),
    "deep bencode": (page(b"d1:a" + b"l" * 100_000 + b"e" * 100_001), SourceRefused),
    "a huge number": (page(b"d1:a99999999999999999999:x"), SourceRefused),
    "half an NZB": (page(NZB[:-30]), SourceRefused),
    "an empty NZB": (page(b"<nzb/>"), SourceRefused),
    "garbage": (page(b"\x00\x01\x02"), SourceRefused),
    "a feed": (page(EMPTY), SourceRefused),
    "nothing": (page(""), SourceUnavailable),
    "gone": (page("", status="404 x"), SourceRefused),
    "gone for good": (page("<html/>", status="410 x"), SourceRefused),
    "limit": (page(error(501, "Download limit reached")), SourceLimited),
    "429": (page("", status="429 x"), SourceLimited),
    "a bad key": (page(error(100)), CredentialsRefused),
    "an outage": (page("<html/>", status="502 x"), SourceUnavailable),
    "a torrent with an error": (page(TORRENT, status="500 x"), SourceUnavailable),
    "an NZB bomb": (page(b'<!DOCTYPE nzb [<!ENTITY a "b">]><nzb>&a;</nzb>'), SourceUnavailable),
}


@pytest.mark.parametrize(("answer", "kind"), NO_FILES.values(), ids=NO_FILES)
async def test_what_is_no_torrent_or_nzb_is_not_handed_on(answer: bytes, kind: type[SourceError]) -> None:
    async with raw_server({"/dl": answer}) as server, client_of(server) as client:
        with pytest.raises(SourceError) as caught:
            await client.download(f"{server.url}/dl")

    assert type(caught.value) is kind


@pytest.mark.parametrize(
    "link", ["http://[", "file:///etc/passwd", "http://192.168.1.1/x", "javascript:x", "http://10.0.0.1"]
)
async def test_a_link_to_where_we_must_not_go_is_refused(link: str) -> None:
    async with raw_server({}) as server, client_of(server) as client:
        with pytest.raises(SourceRefused):
            await client.download(link)

    assert server.asked == []


async def test_a_download_may_be_larger_than_a_page_but_has_a_limit() -> None:
    big = page(TORRENT + bytes(3000))
    limits: dict[str, Any] = {"body_max_bytes": 1000, "download_max_bytes": 2000}
    async with raw_server({"/dl": big, "/api": big}) as server, client_of(server, **limits) as client:
        with pytest.raises(SourceUnavailable, match="more than 2,000 bytes"):
            await client.download("/dl")
        with pytest.raises(SourceUnavailable, match="more than 1,000 bytes"):
            await client.search(SearchRequest())
