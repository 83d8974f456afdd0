"""A stand-in behind memory streams: real HTTP without sockets, so that its tests run on the mock clock."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import httpcore2
import trio
from attrs import frozen
from trio.testing import memory_stream_pair
from typing_extensions import override

from cormorant.clients.http.dialer import Dialer
from cormorant.clients.http.transport import Transport
from tests.clients.mounted import Answer, Mounted

PORT = 80


@frozen
class _Stream(httpcore2.AsyncNetworkStream):
    """One end of a memory stream, as the HTTP client wants it."""

    stream: trio.abc.Stream

    @override
    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return bytes(await self.stream.receive_some(max_bytes))

    @override
    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await self.stream.send_all(buffer)

    @override
    async def aclose(self) -> None:
        await self.stream.aclose()

    @override
    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.AsyncNetworkStream:
        raise NotImplementedError

    @override
    def get_extra_info(self, info: str) -> Any:
        return None


class _Wire(Dialer):
    """Connects to the stand-in whatever the address is."""

    def __init__(self, serve: Callable[[trio.abc.Stream], Awaitable[None]], nursery: trio.Nursery) -> None:
        super().__init__([])
        self._serve = serve
        self._nursery = nursery

    @override
    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        await trio.lowlevel.checkpoint()
        ours, theirs = memory_stream_pair()
        self._nursery.start_soon(self._serve, theirs)
        return _Stream(ours)


class WiredTransport(Transport):
    """A transport that reaches one stand-in alone."""

    def __init__(self, wire: Dialer, **how: Any) -> None:
        super().__init__(**how)
        self._dialer = wire


@frozen(kw_only=True)
class Wired:
    """A stand-in, and how to open further transports to it."""

    server: Mounted
    transport: Callable[..., Transport]


@asynccontextmanager
async def wired(answer: Answer) -> AsyncIterator[Wired]:
    """The stand-in behind memory streams, and an open transport that reaches it."""
    async with trio.open_nursery() as nursery:
        server = Mounted(answer, PORT)
        transport = partial(WiredTransport, _Wire(server.serve, nursery))
        server.transport = transport(written=[server.url])
        yield Wired(server=server, transport=transport)
        nursery.cancel_scope.cancel()
