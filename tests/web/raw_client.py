"""Somebody who speaks HTTP badly, on purpose: bytes over a socket, and what came back."""

from __future__ import annotations

import json
import socket
from typing import Any

import httpx2
import trio
from attrs import frozen

from tests.bounds import WAIT_S
from tests.web.web_place import WebPlace


@frozen
class RawAnswer:
    """What came back until the other side closed, or the time was over."""

    data: bytes
    is_closed: bool

    @property
    def status(self) -> int:
        """The status of the first answer; 0: none came."""
        first = self.data.partition(b"\r\n")[0].split(b" ")
        return int(first[1]) if self.data else 0

    @property
    def document(self) -> Any:
        """The body of the answer, as JSON."""
        return json.loads(self.data.partition(b"\r\n\r\n")[2])

    def header(self, name: str) -> str | None:
        """A header of the answer."""
        lines = self.data.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")[1:]
        found = [line.partition(":")[2].strip() for line in lines if line.lower().startswith(f"{name.lower()}:")]
        return found[0] if found else None


def where(place: WebPlace) -> tuple[str, int]:
    """Host and port of the server."""
    host, _, port = place.address.removeprefix("http://").partition("/")[0].rpartition(":")
    return host, int(port)


async def dial(place: WebPlace, source: str = "127.0.0.1") -> trio.SocketStream:
    """A connection from an address of this machine."""
    opened = trio.socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    await opened.bind((source, 0))
    await opened.connect(where(place))
    return trio.SocketStream(opened)


async def say(place: WebPlace, data: bytes, *, within_s: float = 5.0, source: str = "127.0.0.1") -> RawAnswer:
    """Send bytes and take what comes back."""
    async with await dial(place, source) as stream:
        return await heard(stream, data, within_s=within_s)


async def heard(stream: trio.SocketStream, data: bytes = b"", *, within_s: float = 5.0) -> RawAnswer:
    """Send bytes and take what comes back until the other side ends."""
    came = bytearray()
    with trio.move_on_after(within_s):
        try:
            if data:
                await stream.send_all(data)
            while part := await stream.receive_some(65536):
                came += part
        except trio.BrokenResourceError:
            return RawAnswer(bytes(came), is_closed=True)
        return RawAnswer(bytes(came), is_closed=True)
    return RawAnswer(bytes(came), is_closed=False)


async def health_s(place: WebPlace, source: str = "127.0.0.1") -> float:
    """How long /health takes on a fresh connection; it must answer."""
    began = trio.current_time()
    transport = httpx2.AsyncHTTPTransport(local_address=source)
    async with httpx2.AsyncClient(base_url=place.address, transport=transport, timeout=WAIT_S) as client:
        answer = await client.get("/health")
    assert answer.status_code == 200
    return trio.current_time() - began
