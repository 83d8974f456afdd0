"""Those who mean harm, on real sockets: slow, many, large, crooked. They are refused, told of once, and hold up nobody."""

from __future__ import annotations

import os
import resource
import socket
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from cormorant.rules.events import WebClientBlocked, WebClientTooFast, WebConnectionCrashed, WebFull, WebKeyRefused
from cormorant.rules.secrets import Secret
from cormorant.rules.settings.service import NETWORKS, WebSettings
from tests.web.raw_client import dial, health_s, heard, say
from tests.web.web_place import KEY, SONARR, WebPlace, web_place

pytestmark = pytest.mark.slow("real sockets")

IS_LONG = bool(os.environ.get("SOAK"))
ON_TIME_S = 2.0
"""On the mock clock, where computing takes no time. A server that is held up takes as long as its attackers."""
ELSEWHERE = "127.0.0.2"


def web(**chosen: Any) -> WebSettings:
    return WebSettings(listen="127.0.0.1:0", key=Secret(KEY), **chosen)


CROOKED = {
    "climbing": (b"GET /api/v1/../../etc/passwd HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "climbing, encoded": (b"GET /api/v1/%2e%2e/%2E%2E/etc/passwd HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "climbing, with an encoded slash": (b"GET /health/..%2f..%2fx HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "climbing, with a backslash": (b"GET /health/..%5c..%5cx HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "two slashes": (b"GET //health HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "NUL in the path": (b"GET /health%00.html HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "a line break in the path": (b"GET /health%0d%0aX-A:b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "a path that is no text": (b"GET /health%ff%fe HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "a long path": (b"GET /" + b"a" * 10_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "another's address": (b"GET http://other.example/health HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "a raw NUL": (b"GET /health HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n", 400),
    "a huge head": (b"GET /health HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 100_000 + b"\r\n\r\n", 431),
    "thousands of headers": (b"GET /health HTTP/1.1\r\nHost: a\r\n" + b"X-Y: z\r\n" * 10_000 + b"\r\n", 431),
    "no host": (b"GET /health HTTP/1.1\r\n\r\n", 400),
    "two hosts": (b"GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
    "a host that is none": (b"GET /health HTTP/1.1\r\nHost: a/../b\r\n\r\n", 400),
    "a bad length": (b"POST /health HTTP/1.1\r\nHost: a\r\nContent-Length: ten\r\n\r\n", 400),
    "a length below nothing": (b"POST /health HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400),
    "two lengths": (b"POST /health HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400),
    "smuggling, both lengths": (
        b"POST /health HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /x",
        400,
    ),
    "smuggling, an odd coding": (b"POST /health HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n", 501),
    "smuggling, two codings": (
        b"POST /health HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n",
        501,
    ),
    "a space before the colon": (b"GET /health HTTP/1.1\r\nHost : a\r\n\r\n", 400),
    "a folded header": (b"GET /health HTTP/1.1\r\n Host: a\r\n\r\n", 400),
    "no HTTP at all": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(200)) + b"\r\n\r\n", 400),
    "HTTP/2 at once": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
}


async def test_crooked_requests_are_refused_and_the_server_stays(tmp_path: Path, socket_clock: MockClock) -> None:
    with web_place(tmp_path) as place:
        async with place.service(web=web()):
            got = {name: (await say(place, sent)).status for name, (sent, _) in CROOKED.items()}
            upgrade = b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
            no_upgrade = await say(place, upgrade + b"HTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n", within_s=0.3)
            took_s = await health_s(place)

    assert got == {name: status for name, (_, status) in CROOKED.items()}
    assert no_upgrade.status == 200
    assert took_s < ON_TIME_S
    assert place.events.of(WebConnectionCrashed) == []


async def test_a_body_of_a_gigabyte_is_refused_before_it_is_read(tmp_path: Path, socket_clock: MockClock) -> None:
    head = b"POST /api/v1/searches HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    with web_place(tmp_path) as place:
        async with place.service(web=web()):
            stated = await say(place, head + b"Content-Length: 1000000000\r\n\r\n" + b"x" * 3_000_000)
            async with await dial(place) as endless:
                taken = await _pour(endless, head + b"Transfer-Encoding: chunked\r\n\r\n")
                came = await heard(endless)
            took_s = await health_s(place)

    assert (stated.status, stated.is_closed) == (413, True)
    assert stated.document["detail"] == "the body is larger than 1000000 bytes"
    assert came.status in {0, 413}
    assert taken < 50_000_000
    assert took_s < ON_TIME_S


async def _pour(stream: trio.SocketStream, head: bytes) -> int:
    """Send chunks as long as they are taken."""
    chunk, taken = b"10000\r\n" + b"x" * 65536 + b"\r\n", 0
    with trio.move_on_after(10):
        try:
            await stream.send_all(head)
            for _ in range(16_000):
                await stream.send_all(chunk)
                taken += len(chunk)
        except trio.BrokenResourceError:
            return taken
    return taken


async def test_slow_heads_and_slow_bodies_are_given_up(tmp_path: Path, socket_clock: MockClock) -> None:
    chosen = web(head_timeout_s=10, body_timeout_s=10, idle_timeout_s=10)
    with web_place(tmp_path) as place:
        async with place.service(web=chosen) as service:
            began = trio.current_time()
            async with trio.open_nursery() as nursery:
                answers: dict[str, Any] = {}

                async def drip(name: str, begin: bytes) -> None:
                    async with await dial(place) as stream:
                        await stream.send_all(begin)
                        nursery.start_soon(_drip, stream)
                        answers[name] = await heard(stream, within_s=100)

                async with trio.open_nursery() as slow:
                    for _ in range(30):
                        slow.start_soon(drip, "head", b"GET /health HTTP/1.1\r\nX-Slow: ")
                    slow.start_soon(
                        drip, "body", b"POST /api/v1/searches HTTP/1.1\r\nHost: a\r\nContent-Length: 9000\r\n\r\n"
                    )
                    slow.start_soon(drip, "silent", b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
                    took_s = await health_s(place)
                given_up_s = trio.current_time() - began
                nursery.cancel_scope.cancel()

    assert (answers["head"].status, answers["body"].status) == (408, 408)
    assert all(answer.is_closed for answer in answers.values())
    assert 10.0 <= given_up_s < 12.0
    assert took_s < ON_TIME_S
    assert service.report is not None
    assert service.report.clean


async def _drip(stream: trio.SocketStream) -> None:
    try:
        while True:
            await stream.send_all(b"x")
            await trio.sleep(1)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        return


async def test_thousands_of_connections_are_held_within_their_number(tmp_path: Path, socket_clock: MockClock) -> None:
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    wanted, per_client = (5_000, 500) if IS_LONG else (600, 100)
    count = min(wanted, allowed - 2_000 if IS_LONG else allowed // 2)
    with web_place(tmp_path) as place:
        async with place.service(
            web=web(connections_max=2 * per_client, connections_per_client_max=per_client)
        ) as service:
            streams: list[trio.SocketStream] = []
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_dial_many, place, count, streams)
                times_s = [await health_s(place, source) for source in (ELSEWHERE, "127.0.0.1", ELSEWHERE)]
            times_s.append(await health_s(place))
            ended = 0
            for stream in streams:
                with trio.move_on_after(0.0005):
                    try:
                        ended += not await stream.receive_some(100)
                    except trio.BrokenResourceError:
                        ended += 1
            for stream in streams:
                stream.socket.close()

    assert len(streams) == count
    assert ended >= count - per_client - 5
    assert max(times_s) < ON_TIME_S
    assert len(place.events.of(WebFull)) == 1
    assert service.report is not None
    assert service.report.clean


async def _dial_many(place: WebPlace, count: int, streams: list[trio.SocketStream]) -> None:
    while len(streams) < count:
        streams.append(await dial(place))


async def test_when_all_connections_are_in_use_one_more_is_told_to_come_back(
    tmp_path: Path, socket_clock: MockClock
) -> None:
    chosen = web(connections_max=10, connections_per_client_max=5)
    asking = b"POST /api/v1/searches HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n"
    with web_place(tmp_path) as place:
        async with place.service(web=chosen):
            streams = [await dial(place) for _ in range(5)]
            for stream in streams:
                await stream.send_all(asking)
            await trio.sleep(1)  # over when the server has read all of it
            full = await say(place, b"")
            took_s = await health_s(place, ELSEWHERE)
            for stream in streams:
                await stream.aclose()

    assert (full.status, full.header("retry-after"), full.is_closed) == (503, "5", True)
    assert took_s < ON_TIME_S
    assert [event.limit for event in place.events.of(WebFull)] == ["web.connections_per_client_max"]


async def test_a_thousand_wrong_keys_are_refused_and_told_of_once(tmp_path: Path, socket_clock: MockClock) -> None:
    count = 1_000 if IS_LONG else 150
    with web_place(tmp_path) as place:
        async with place.served(web=web()) as (_, client):
            before = await client.get("/api/v1/status")
            guesses = [await client.get("/api/v1/status", headers={"X-Api-Key": f"no-{n}"}) for n in range(count)]
            at_the_gate = await client.get("/gate/combined/api", params={"apikey": SONARR, "t": "caps"})
            after = await client.get("/api/v1/status")
            took_s = await health_s(place)
            other = await say(
                place,
                b"GET /api/v1/status HTTP/1.1\r\nHost: a\r\nX-Api-Key: no\r\nConnection: close\r\n\r\n",
                source=ELSEWHERE,
            )

    assert [guess.status_code for guess in guesses] == [401] * 20 + [429] * (count - 20)
    assert 50 <= int(guesses[-1].headers["retry-after"]) <= 60
    assert guesses[-1].headers["content-type"] == "application/problem+json"
    assert (before.status_code, after.status_code) == (200, 200)
    assert at_the_gate.status_code == 429
    assert other.status == 401
    assert took_s < ON_TIME_S
    assert [refused.client for refused in place.events.of(WebKeyRefused)] == ["127.0.0.1", ELSEWHERE]
    assert [blocked.client for blocked in place.events.of(WebClientBlocked)] == ["127.0.0.1"]


async def test_who_asks_too_fast_is_told_when_to_come_back_and_health_is_free(
    tmp_path: Path, socket_clock: MockClock
) -> None:
    with web_place(tmp_path) as place:
        async with place.served(web=web(requests_per_second=5)) as (_, client):
            answers = [await client.get("/ready") for _ in range(30)]
            health = [await client.get("/health") for _ in range(30)]

    limited = [answer for answer in answers if answer.status_code == 429]
    assert len(limited) >= 10
    assert limited[0].headers["retry-after"] == "1"
    assert limited[0].json()["title"] == "Too Many Requests"
    assert {answer.status_code for answer in health} == {200}
    assert len(place.events.of(WebClientTooFast)) == 1


async def test_only_a_trusted_proxy_is_believed_about_who_asks(tmp_path: Path, socket_clock: MockClock) -> None:
    forged = {"X-Forwarded-For": "203.0.113.7", "X-Forwarded-Proto": "https", "X-Forwarded-Host": "birds.example"}
    told = []
    for trusted in ([], ["127.0.0.0/8"]):
        parsed = NETWORKS.parse(trusted)
        with web_place(tmp_path) as place:
            async with place.served(web=web(trusted_proxies=parsed)) as (_, client):
                await client.get("/api/v1/status", headers=forged | {"X-Api-Key": "wrong"})
            told.append(place.events.of(WebKeyRefused)[0].client)

    assert told == ["127.0.0.1", "203.0.113.7"]


async def test_one_that_takes_nothing_does_not_hold_up_the_end(tmp_path: Path, socket_clock: MockClock) -> None:
    with web_place(tmp_path) as place:
        async with place.service(web=web()) as service:
            stream = await dial(place)
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            ask = b"GET /api/v1/openapi.json HTTP/1.1\r\nHost: a\r\nX-Api-Key: %b\r\n\r\n" % KEY.encode()
            with trio.move_on_after(1):
                await stream.send_all(ask * 2_000)
        await stream.aclose()

    assert service.report is not None
    assert service.report.took_s < 4.0
    assert service.report.clean
