"""TLS: the certificate must be that of the name that was written, although an address is what is connected to.

`indexer.example.org.pem` was made for these tests, with its key, and opens nothing.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.abc import HostnameResolver
from typing_extensions import override

from cormorant.clients.http import transport as module
from cormorant.clients.http.transport import Transport
from cormorant.rules.search.outcomes import SourceUnavailable
from cormorant.rules.secrets import Secret
from tests.clients.raw_server import Asked, page, raw_server, redirect

PEM = Path(__file__).with_name("indexer.example.org.pem")


class Loopback(HostnameResolver):
    """Every name is this machine."""

    @override
    async def getaddrinfo(self, host: Any, port: Any, *_: Any, **__: Any) -> Any:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    @override
    async def getnameinfo(self, sockaddr: Any, flags: int) -> Any:
        raise NotImplementedError


@asynccontextmanager
async def tls_server(answer: bytes = page("secure")) -> AsyncIterator[tuple[int, list[str]]]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(PEM)
    served: list[str] = []

    async def serve(stream: trio.SSLStream[trio.SocketStream]) -> None:
        try:
            served.append((await stream.receive_some(65536)).decode())
            await stream.send_all(answer)
        except trio.BrokenResourceError:
            pass  # the client did not trust us
        finally:
            await trio.aclose_forcefully(stream)

    async with trio.open_nursery() as nursery:
        below = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = below[0].socket.getsockname()[1]
        listeners = [trio.SSLListener(listener, context) for listener in below]
        nursery.start_soon(trio.serve_listeners, serve, listeners)
        trio.socket.set_custom_hostname_resolver(Loopback())
        yield port, served
        nursery.cancel_scope.cancel()


@pytest.fixture
def own_authority(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trust the certificate of the tests, as if an authority had signed it."""
    context = ssl.create_default_context(cafile=str(PEM))
    monkeypatch.setattr(module, "_tls", lambda: context)


async def fetch(url: str) -> bytes:
    transport = Transport(written=[url])
    return (await transport.get(url)).body


async def test_the_certificate_of_the_name_is_accepted(own_authority: None) -> None:
    async with tls_server() as (port, served):
        body = await fetch(f"https://indexer.example.org:{port}/")

    assert body == b"secure"
    assert f"Host: indexer.example.org:{port}" in served[0]


async def test_a_certificate_of_another_name_is_not(own_authority: None) -> None:
    async with tls_server() as (port, served):
        with pytest.raises(SourceUnavailable, match="certificate"):
            await fetch(f"https://other.example.org:{port}/?apikey=hunter2")

    assert "hunter2" not in str(served)


async def test_a_certificate_that_nobody_vouches_for_is_not() -> None:
    async with tls_server() as (port, _):
        with pytest.raises(SourceUnavailable, match="certificate"):
            await fetch(f"https://indexer.example.org:{port}/")


async def test_a_redirect_that_gives_up_encryption_is_followed_and_not_remembered(own_authority: None) -> None:
    lasting = "301 Moved Permanently"
    async with (
        raw_server({"/a": redirect("/b", status=lasting), "/b": page("open")}) as plain,
        tls_server(redirect(f"{plain.url}/a", status=lasting)) as (port, _),
    ):
        url = f"https://indexer.example.org:{port}/"
        transport = Transport(written=[url, plain.url])
        found, moved = await transport.get(url), await transport.get(f"{plain.url}/a")

    assert (found.body, found.has_moved) == (b"open", False)
    assert (moved.body, moved.has_moved) == (b"open", True)


async def test_a_proxy_is_asked_for_a_tunnel_and_sees_no_key() -> None:
    async def refuse(stream: trio.SocketStream, asked: Asked) -> None:
        await stream.send_all(page(status="502 Bad Gateway"))

    async with raw_server({"*": refuse}) as proxy:
        transport = Transport(proxy=Secret(proxy.url))
        with pytest.raises(SourceUnavailable, match="502"):
            await transport.get("https://indexer.example.org/api", params=[("apikey", "hunter2")])

    assert proxy.asked[0].target == "indexer.example.org:443"
    assert "hunter2" not in str(proxy.asked)
