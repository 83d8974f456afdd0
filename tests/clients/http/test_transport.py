"""Fetching: from servers that are slow, lying and hostile, in bounded time and memory."""

from __future__ import annotations

import gzip
import logging
import socket
import traceback
import tracemalloc
import zlib
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from cormorant import __version__
from cormorant.clients.http.transport import Answer, FetchLimits, Transport
from cormorant.rules.search.outcomes import SourceError, SourceRefused, SourceUnavailable
from cormorant.rules.secrets import Secret
from tests.clients.raw_server import Asked, RawServer, page, raw_server, redirect

KEY = "hunter2/hunter2+hunter2"
SMALL = FetchLimits(body_max_bytes=1000)


async def fetch(server: RawServer, path: str = "/", **options: Any) -> Answer:
    transport = Transport(written=[server.url])
    return await transport.get(f"{server.url}{path}", **options)


async def test_an_answer_has_status_headers_and_body() -> None:
    async with raw_server({"/": page("found", status="418 Odd", headers={"X-Odd": "yes"})}) as server:
        answer = await fetch(server, params=[("q", "a b"), ("cat", "1,2")])

    assert (answer.status, answer.body, answer.headers["x-odd"]) == (418, b"found", "yes")
    assert server.asked[0].params == {"q": "a b", "cat": "1,2"}
    assert server.asked[0].headers["user-agent"] == f"Cormorant/{__version__}"


async def test_the_time_out_is_for_all_of_it(mock_clock: MockClock) -> None:
    async def drip(stream: trio.SocketStream, asked: Asked) -> None:
        await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        for _ in range(1000):
            await stream.send_all(b"x")
            mock_clock.jump(1)

    async with raw_server({"/": drip}) as server:
        with pytest.raises(SourceUnavailable, match="did not answer in full within 10 s"):
            await fetch(server, limits=FetchLimits(timeout_s=10))


async def test_the_time_out_is_for_all_redirects_together(mock_clock: MockClock) -> None:
    async def wait(stream: trio.SocketStream, asked: Asked) -> None:
        mock_clock.jump(4)
        await stream.send_all(redirect(f"{asked.path}x"))

    async with raw_server({"*": wait}) as server:
        with pytest.raises(SourceUnavailable, match="within 10 s"):
            await fetch(server, limits=FetchLimits(timeout_s=10))

    assert len(server.asked) == 3


async def test_a_server_that_never_answers_is_given_up(mock_clock: MockClock) -> None:
    async def sulk(stream: trio.SocketStream, asked: Asked) -> None:
        mock_clock.jump(10)
        await trio.sleep_forever()

    async with raw_server({"/": sulk}) as server:
        with pytest.raises(SourceUnavailable, match="within 10 s"):
            await fetch(server, limits=FetchLimits(timeout_s=10))


async def test_being_cancelled_from_outside_is_no_error_of_the_source() -> None:
    async def sulk(stream: trio.SocketStream, asked: Asked) -> None:
        scope.cancel()
        await trio.sleep_forever()

    async with raw_server({"/": sulk}) as server:
        with trio.CancelScope() as scope:
            await fetch(server)

    assert scope.cancelled_caught


@pytest.mark.parametrize("head", [b"", b"Transfer-Encoding: chunked\r\n"], ids=["until closed", "chunked"])
async def test_an_endless_body_ends_at_the_limit(head: bytes) -> None:
    async def pour(stream: trio.SocketStream, asked: Asked) -> None:
        await stream.send_all(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n")
        piece = b"x" * 4096
        while True:
            await stream.send_all(b"1000\r\n" + piece + b"\r\n" if head else piece)

    async with raw_server({"/": pour}) as server:
        with pytest.raises(SourceUnavailable, match="more than 100,000 bytes"):
            await fetch(server, limits=FetchLimits(body_max_bytes=100_000))


async def test_the_limit_is_the_largest_body_that_is_read() -> None:
    async with raw_server({"/1000": page(b"x" * 1000), "/1001": page(b"x" * 1001)}) as server:
        answer = await fetch(server, "/1000", limits=SMALL)
        with pytest.raises(SourceUnavailable, match="more than 1,000 bytes"):
            await fetch(server, "/1001", limits=SMALL)

    assert len(answer.body) == 1000


@pytest.mark.slow("100 MB through a socket")
async def test_a_body_of_100_mb_is_refused_without_being_held() -> None:
    async def pour(stream: trio.SocketStream, asked: Asked) -> None:
        length = "" if asked.path == "/unsaid" else "Content-Length: 100000000\r\n"
        await stream.send_all(f"HTTP/1.1 200 OK\r\n{length}\r\n".encode())
        for _ in range(100):
            await stream.send_all(bytes(1_000_000))

    async with raw_server({"*": pour}) as server:
        for path in ("/said", "/unsaid"):
            with pytest.raises(SourceUnavailable, match="more than 10,000,000 bytes"):
                await fetch(server, path)


def bomb(*, times: int) -> bytes:
    """`times` megabytes of nothing, compressed a thousandfold."""
    packer = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    return b"".join([*(packer.compress(bytes(1_000_000)) for _ in range(times)), packer.flush()])


@pytest.mark.slow("packs 300 MB")
async def test_a_gzip_bomb_is_defused_in_little_memory() -> None:
    packed = page(bomb(times=300), headers={"Content-Encoding": "gzip"})

    async with raw_server({"/": packed}) as server:
        tracemalloc.start()
        with pytest.raises(SourceUnavailable, match="more than 2,000,000 bytes"):
            await fetch(server, limits=FetchLimits(body_max_bytes=2_000_000))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()

    assert peak < 10_000_000


@pytest.mark.parametrize(
    ("encoding", "packed"),
    [
        ("gzip", gzip.compress(b"found", mtime=0)),
        ("x-gzip", gzip.compress(b"found", mtime=0)),
        ("deflate", zlib.compress(b"found")),
        ("deflate", zlib.compress(b"found")[2:-4]),
        ("identity", b"found"),
    ],
)
async def test_compressed_answers_are_read(encoding: str, packed: bytes) -> None:
    async with raw_server({"/": page(packed, headers={"Content-Encoding": encoding})}) as server:
        answer = await fetch(server)

    assert answer.body == b"found"


@pytest.mark.parametrize("encoding", ["br", "gzip, gzip", "zstd", "nonsense"])
async def test_an_encoding_nobody_asked_for_is_refused(encoding: str) -> None:
    async with raw_server({"/": page(b"x", headers={"Content-Encoding": encoding})}) as server:
        with pytest.raises(SourceUnavailable, match="encoding"):
            await fetch(server)


@pytest.mark.parametrize(
    "answer",
    [
        page("short", length=500),
        page("not gzip", headers={"Content-Encoding": "gzip"}),
        page(gzip.compress(b"found", mtime=0)[:-9], headers={"Content-Encoding": "gzip"}),
        b"",
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nx\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X-Long: " + b"y" * 300_000 + b"\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01",
    ],
    ids=[
        "cut off",
        "no gzip",
        "half a gzip",
        "silence",
        "no HTTP",
        "no number",
        "negative",
        "bad chunk",
        "endless header",
        "TLS",
    ],
)
async def test_what_is_not_proper_http_makes_the_source_unavailable(answer: bytes) -> None:
    async with raw_server({"/": answer}) as server:
        with pytest.raises(SourceUnavailable):
            await fetch(server)


async def test_more_bytes_than_announced_are_left_alone() -> None:
    async with raw_server({"/": page("found and more", length=5)}) as server:
        answer = await fetch(server)

    assert answer.body == b"found"


async def test_a_host_that_does_not_listen_is_unavailable() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        transport = Transport(written=[url])
        with pytest.raises(SourceUnavailable, match="cannot be reached"):
            await transport.get(url)


async def test_redirects_are_followed_up_to_five() -> None:
    routes = {f"/{n}": redirect(f"/{n + 1}") for n in range(6)}
    async with raw_server({**routes, "/5": page("here")}) as server:
        assert (await fetch(server, "/0")).body == b"here"

        server.routes["/5"], server.routes["/6"] = redirect("/6"), page("too far")
        with pytest.raises(SourceUnavailable, match="more than 5 times"):
            await fetch(server, "/0")


async def test_a_circle_is_seen() -> None:
    async with raw_server({"/a": redirect("/b"), "/b": redirect("/a")}) as server:
        with pytest.raises(SourceUnavailable, match="circle"):
            await fetch(server, "/a")

    assert len(server.asked) == 2


@pytest.mark.parametrize("status", ["301 x", "302 x", "303 x", "307 x", "308 x"])
async def test_a_redirect_to_a_magnet_is_told_as_such(status: str) -> None:
    async with raw_server({"/": redirect("magnet:?xt=urn:btih:abc", status=status)}) as server:
        answer = await fetch(server)

    assert answer.magnet == "magnet:?xt=urn:btih:abc"
    assert "btih" not in repr(answer)


@pytest.mark.parametrize(
    "to", ["file:///etc/passwd", "ftp://x.org/a", "gopher://x.org", "data:,x", "javascript:x", "http://"]
)
async def test_only_http_is_followed(to: str) -> None:
    async with raw_server({"/": redirect(to)}) as server:
        with pytest.raises(SourceError):
            await fetch(server)

    assert len(server.asked) == 1


@pytest.mark.parametrize("to", ["http://[::1", "http://a b:x/", "http://x.org:99999999/", "//", "http://\x80\x81/"])
async def test_a_redirect_to_nonsense_is_an_error_of_the_source(to: str) -> None:
    async with raw_server({"/": redirect(to)}) as server:
        with pytest.raises(SourceError):
            await fetch(server)


async def test_secrets_stay_with_their_origin() -> None:
    async with raw_server({"/": page("taken")}) as other, raw_server({"/": redirect(f"{other.url}/")}) as server:
        transport = Transport(written=[server.url, other.url])
        answer = await transport.get(
            server.url.replace("//", "//me:pass@"),
            params=[("apikey", KEY)],
            headers={"X-Api-Key": KEY, "Cookie": f"a={KEY}", "Accept": "text/xml"},
            secrets=[Secret(KEY)],
        )

    assert answer.body == b"taken"
    assert server.asked[0].headers["x-api-key"] == KEY
    assert server.asked[0].headers["authorization"].startswith("Basic ")
    assert set(other.asked[0].headers) == {"host", "user-agent", "accept", "accept-encoding", "connection"}
    assert other.asked[0].target == "/"


async def test_secrets_go_along_within_their_origin() -> None:
    async with raw_server({"/": redirect("/next"), "/next": page("here")}) as server:
        await fetch(server, headers={"X-Api-Key": KEY})

    assert server.asked[1].headers["x-api-key"] == KEY


async def test_once_away_they_do_not_come_back() -> None:
    async with raw_server() as other, raw_server({"/home": page("here")}) as server:
        server.routes["/"] = redirect(f"{other.url}/away")
        other.routes["/away"] = redirect(f"{server.url}/home")
        transport = Transport(written=[server.url, other.url])
        await transport.get(server.url, headers={"X-Api-Key": KEY})

    assert "x-api-key" not in server.asked[1].headers


@pytest.mark.parametrize(
    "spelling", ["hunter2/hunter2+hunter2", "hunter2%2Fhunter2%2Bhunter2", "hunter2%2fhunter2%2bhunter2"]
)
async def test_a_redirect_that_hands_our_key_to_another_is_refused(spelling: str) -> None:
    async with raw_server() as other, raw_server({"/": redirect(f"{other.url}/?apikey={spelling}")}) as server:
        transport = Transport(written=[server.url, other.url])
        with pytest.raises(SourceRefused, match="with our key") as caught:
            await transport.get(server.url, params=[("apikey", KEY)], secrets=[Secret(KEY)])

    assert other.asked == []
    assert "hunter2" not in str(caught.value)


async def test_a_proxy_is_asked_instead_of_the_host() -> None:
    async with raw_server({"/api": page("through the proxy")}) as proxy:
        transport = Transport(proxy=Secret(proxy.url.replace("//", "//me:pass@")))
        answer = await transport.get("http://indexer.example.org/api", params=[("t", "caps")])
        with pytest.raises(SourceRefused, match="private network"):
            await transport.get("http://192.168.1.1/admin")

    assert answer.body == b"through the proxy"
    assert proxy.asked[0].target == "http://indexer.example.org/api?t=caps"
    assert proxy.asked[0].headers["proxy-authorization"].startswith("Basic ")
    assert len(proxy.asked) == 1


@pytest.mark.parametrize("proxy", ["socks5://x:1", "nonsense", "http://", f"ftp://me:{KEY}@x"])
async def test_a_proxy_that_cannot_be_used_is_named_without_its_password(proxy: str) -> None:
    with pytest.raises(SourceRefused, match="proxy must be written as") as caught:
        Transport(proxy=Secret(proxy))

    assert KEY not in everything_said(caught.value)


def everything_said(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)) + repr(error) + str(vars(error))


@pytest.mark.parametrize(
    "answer",
    [
        f"HTTP/9.9 {KEY}\r\n\r\n".encode(),
        redirect(f"http://[{KEY}/"),
        redirect(f"ftp://x.org/?apikey={KEY}"),
        redirect(f"http://192.168.0.1/?apikey={KEY}"),
        page("x" * 20_000_000, length=20_000_000),
        page("short", length=500),
    ],
    ids=["echoed", "bad redirect", "odd scheme", "private", "large", "cut off"],
)
async def test_no_error_shows_the_key(answer: bytes, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with raw_server({"/": answer}) as server:
        with pytest.raises(SourceError) as caught:
            await fetch(server, params=[("apikey", KEY)], headers={"X-Api-Key": KEY}, secrets=[Secret(KEY)])

    assert "hunter2" not in everything_said(caught.value)
    assert "hunter2" not in caplog.text


async def test_neither_the_log_nor_the_answer_shows_the_key(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with raw_server({"/": page("found", headers={"Set-Cookie": KEY})}) as server:
        answer = await fetch(server, params=[("apikey", KEY)], headers={"X-Api-Key": KEY})

    assert "hunter2" not in caplog.text
    assert "hunter2" not in repr(answer)


@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\0b", "ä"])
async def test_a_key_that_no_header_can_carry_is_refused_before_it_is_sent(value: str) -> None:
    async with raw_server({"/": page()}) as server:
        with pytest.raises(SourceRefused, match="check the key") as caught:
            await fetch(server, headers={"X-Api-Key": value})

    assert value not in str(caught.value)
    assert server.asked == []


@pytest.mark.parametrize(
    "url", ["", "x", "http://", "ftp://x.org", "http://[::1", f"http://a b/{KEY}", "http://x:999999"]
)
async def test_what_is_no_address_is_refused(url: str) -> None:
    transport = Transport()
    with pytest.raises(SourceError) as caught:
        await transport.get(url)

    assert KEY not in everything_said(caught.value)
