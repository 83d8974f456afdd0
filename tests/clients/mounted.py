"""A stand-in on loopback: its answers behind real sockets, that may be cut before or after it takes something."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Literal
from urllib.parse import parse_qsl, unquote, urlsplit

import h11
import trio
from attrs import define, field

from cormorant.clients.http.transport import Transport
from cormorant.playground.http import StandInRequest, StandInResponse

Answer = Callable[[StandInRequest], Awaitable[StandInResponse]]
Cut = Literal["before", "after", "silent"]


@define
class Mounted:
    """Where it listens. `cuts` says for a path how its connections end: before it is taken, after it, or never."""

    answer: Answer
    port: int
    transport: Transport = field(init=False)
    cuts: dict[str, Cut] = field(factory=dict)
    linger_s: float = 0.0
    """So long before and after it takes something it does nothing."""
    slow_s: dict[str, float] = field(factory=dict)
    """Methods that are taken at once and answered this much later."""
    on_silence: Callable[[], None] = lambda: None
    """Called when a connection has become silent. It moves the clock on to the client's time-out, or cancels the client."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, stream: trio.abc.Stream) -> None:
        try:
            await self._serve(stream, h11.Connection(h11.SERVER))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the client has had enough
        finally:
            with trio.move_on_after(1, shield=True):
                await stream.aclose()

    async def _serve(self, stream: trio.abc.Stream, wire: h11.Connection) -> None:
        request, body = await _read(stream, wire)
        target = urlsplit(request.target.decode("ascii"))
        path = unquote(target.path)
        cut = self.cuts.get(path)
        if cut == "before":
            return
        headers = {name.decode().lower(): value.decode("latin-1") for name, value in request.headers}
        asked = StandInRequest(
            method=request.method.decode(),
            path=path,
            params=dict(parse_qsl(target.query, keep_blank_values=True)),
            headers=headers,
            body=body,
            base=f"http://{headers['host']}",
        )
        await trio.sleep(self.linger_s)
        answer = await self.answer(asked)
        await trio.sleep(self.linger_s + self.slow_s.get(asked.method, 0.0))
        if cut == "after":
            return
        if cut == "silent":
            self.on_silence()
            await trio.sleep_forever()
        fields = {"Content-Type": answer.kind, **answer.headers, "Content-Length": str(len(answer.body))}
        head = h11.Response(status_code=answer.status, headers=[*fields.items(), ("Connection", "close")])
        for event in (head, h11.Data(data=answer.body), h11.EndOfMessage()):
            await stream.send_all(wire.send(event) or b"")


async def _read(stream: trio.abc.Stream, wire: h11.Connection) -> tuple[h11.Request, bytes]:
    request: h11.Request | None = None
    body = b""
    while True:
        event = wire.next_event()
        if event is h11.NEED_DATA:
            wire.receive_data(bytes(await stream.receive_some(65536)))
        elif isinstance(event, h11.Request):
            request = event
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage):
            assert request is not None
            return request, body
        else:
            raise trio.ClosedResourceError


@asynccontextmanager
async def mounted(answer: Answer) -> AsyncIterator[Mounted]:
    """The stand-in behind a port, and an open transport that may call it."""
    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        server = Mounted(answer, listeners[0].socket.getsockname()[1])
        nursery.start_soon(trio.serve_listeners, server.serve, listeners)
        transport = Transport(written=[server.url])
        server.transport = transport
        yield server
        nursery.cancel_scope.cancel()


def always(answer: StandInResponse) -> Answer:
    """A stand-in with one answer to everything."""

    async def reply(_asked: StandInRequest) -> StandInResponse:
        await trio.lowlevel.checkpoint()
        return answer

    return reply
