"""A server on loopback that says exactly the bytes a test wants, and remembers what it was asked."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import trio
from attrs import define, field

Play = Callable[[trio.SocketStream, "Asked"], Awaitable[None]]


@define
class Asked:
    """One request as it arrived."""

    target: str
    headers: Mapping[str, str]

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def params(self) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.target).query, keep_blank_values=True))


def page(
    body: bytes | str = b"",
    *,
    status: str = "200 OK",
    length: int | None = None,
    headers: Mapping[str, str] | None = None,
) -> bytes:
    """A whole answer. `length` lies about the body's."""
    content = body.encode() if isinstance(body, str) else body
    fields = {"Content-Length": str(len(content) if length is None else length)} | dict(headers or {})
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"HTTP/1.1 {status}\r\n{head}\r\n".encode() + content


def redirect(to: str, *, status: str = "302 Found") -> bytes:
    return page(status=status, headers={"Location": to})


@define
class RawServer:
    """What it answers by path: bytes, or a function that plays with the stream."""

    port: int
    routes: dict[str, bytes | Play] = field(factory=dict)
    asked: list[Asked] = field(factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, stream: trio.SocketStream) -> None:
        try:
            asked = await read_request(stream)
            if asked is None:
                return
            self.asked.append(asked)
            answer = self.routes.get(asked.path, self.routes.get("*", page(status="404 Not Found")))
            if isinstance(answer, bytes):
                await stream.send_all(answer)
            else:
                await answer(stream, asked)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the client has had enough
        finally:
            with trio.CancelScope(shield=True):
                await stream.aclose()


async def read_request(stream: trio.SocketStream) -> Asked | None:
    received = b""
    while b"\r\n\r\n" not in received:
        piece = await stream.receive_some(65536)
        if not piece:
            return None
        received += piece
    head, *lines = received.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines)
    return Asked(head.split(" ")[1], {name.strip().lower(): value.strip() for name, _, value in pairs})


@asynccontextmanager
async def raw_server(routes: Mapping[str, bytes | Play] | None = None, **more: Any) -> AsyncIterator[RawServer]:
    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        server = RawServer(listeners[0].socket.getsockname()[1], dict(routes or {}))
        nursery.start_soon(trio.serve_listeners, server.serve, listeners)
        yield server
        nursery.cancel_scope.cancel()
