"""A server on loopback in front of a stand-in: it only carries requests and answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import trio

Handle = Callable[[str, str, str, Mapping[str, str], bytes], tuple[int, Mapping[str, str], bytes]]


async def talk(stream: trio.SocketStream, handle: Handle) -> None:
    try:
        request = await read_request(stream)
        if request is None:
            return
        status, headers, body = handle(*request)
        fields = {"Content-Length": str(len(body)), "Connection": "close"} | dict(headers)
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        await stream.send_all(f"HTTP/1.1 {status} OK\r\n{head}\r\n".encode() + body)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass  # the client has had enough
    finally:
        with trio.move_on_after(1, shield=True):
            await stream.aclose()


async def read_request(stream: trio.SocketStream) -> tuple[str, str, str, dict[str, str], bytes] | None:
    received = b""
    while b"\r\n\r\n" not in received:
        piece = await stream.receive_some(65536)
        if not piece:
            return None
        received += piece
    head, _, body = received.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    while len(body) < int(headers.get("content-length", 0)):
        body += await stream.receive_some(65536)
    method, target, _ = first.split(" ")
    path, _, query = target.partition("?")
    return method, path, query, headers, body


@asynccontextmanager
async def served(handle: Handle, **more: Any) -> AsyncIterator[str]:
    """The address at which `handle` answers."""
    async with trio.open_nursery() as nursery:
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, lambda stream: talk(stream, handle), [listener])
        yield f"http://127.0.0.1:{listener.socket.getsockname()[1]}"
        nursery.cancel_scope.cancel()
