"""How long may one connection take? The head of a request, doing nothing, and every piece of an answer have their time.

Hypercorn's own server is not used: it has no limit on connections, shields its sends without a bound, and takes HTTP/2 from
anybody without encryption. Its protocol for HTTP/1.1 is.
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any, Final

import h11
import trio
from attrs import define, field
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import AppWrapper, ConnectionState
from hypercorn.utils import parse_socket_addr

__all__ = ["CONNECTION", "ConnectionTimeouts", "HttpConnection"]

CONNECTION: Final = "cormorant.connection"
"""Where the state of a request has the connection it came by."""

_RECEIVE_BYTES: Final = 2**16
_SEND_BYTES: Final = 2**16
_LINGER_S: Final = 1.0
_LINGER_BYTES: Final = 4_000_000
"""What still comes after our last word is thrown away for a while: closing at once would take the answer away from one that
is still sending."""
_TOO_SLOW: Final = b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


@define(kw_only=True)
class ConnectionTimeouts:
    """How long things may take."""

    head_s: float
    idle_s: float
    send_s: float = 10.0
    """For 64 KiB."""


class _Http11(H11Protocol):
    """Without the ways to HTTP/2: nobody needs them here, and they have limits of their own to get round.

    The head of an answer whose length is known waits for what follows at once: two pieces cost nearly twice as much as one.
    """

    _head: bytes = b""

    async def _send_h11_event(self, event: h11.Event) -> None:
        try:
            data = self._head + (self.connection.send(event) or b"")  # type: ignore[arg-type]  # they name the events one by one
        except h11.LocalProtocolError:
            if self.connection.their_state != h11.ERROR:
                raise
            return
        is_head = isinstance(event, h11.Response) and any(name == b"content-length" for name, _ in event.headers)
        self._head = data if is_head else b""
        if data and not is_head:
            await self.send(RawData(data=data))

    async def _check_protocol(self, event: h11.Request) -> None:  # noqa: ARG002 - their signature
        await trio.lowlevel.checkpoint()


@define(eq=False, kw_only=True)
class HttpConnection:
    """One connection, from its acceptance to its end."""

    stream: trio.SocketStream
    client: str
    times: ConnectionTimeouts
    is_idle: bool = True
    """Whether it asks nothing: it can be closed without a loss."""
    _protocol: H11Protocol = field(init=False)
    _reading: trio.CancelScope = field(init=False, factory=trio.CancelScope)
    _deadline: float = field(init=False, default=math.inf)
    _has_begun: bool = field(init=False, default=False)
    """Whether a part of a head has come."""
    _is_ending: bool = field(init=False, default=False)
    _sending: trio.Lock = field(init=False, factory=trio.Lock)

    async def serve(self, app: AppWrapper, config: Config, context: WorkerContext) -> None:
        """Answer requests until one of the two sides ends it."""
        socket: Any = self.stream.socket
        try:
            client = parse_socket_addr(socket.family, socket.getpeername())
            server = parse_socket_addr(socket.family, socket.getsockname())
        except OSError:  # gone before it was looked at
            self.close()
            return
        self._wait_at_most(self.times.head_s)
        state = ConnectionState({CONNECTION: self})
        try:
            async with TaskGroup() as tasks:
                self._protocol = _Http11(
                    app, config, context, tasks, state, ssl=False, client=client, server=server, send=self._send
                )
                await self._read()
        finally:
            self.close()

    def close(self) -> None:
        """End it at once. Whoever reads or sends is told."""
        self.stream.socket.close()

    def _wait_at_most(self, seconds: float) -> None:
        self._deadline = self._reading.deadline = trio.current_time() + seconds

    async def _read(self) -> None:
        while data := await self._received():
            await self._protocol.handle(RawData(data))
        with suppress(trio.ClosedResourceError):
            await self._protocol.handle(RawData(b""))
        await self._protocol.handle(Closed())

    async def _received(self) -> bytes:
        """What came; nothing at the end, or when there is no more time."""
        thrown_away = 0
        while True:
            with trio.CancelScope(deadline=self._deadline) as self._reading:
                try:
                    data = bytes(await self.stream.receive_some(_RECEIVE_BYTES))
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    return b""
            if self._reading.cancelled_caught:
                await self._give_up()
                return b""
            if not self._is_ending:
                break
            thrown_away += len(data)
            if not data or thrown_away > _LINGER_BYTES:
                return b""
        if self.is_idle and not self._has_begun:
            self._has_begun = True
            self._wait_at_most(self.times.head_s)
        return data

    async def _give_up(self) -> None:
        if self._has_begun and self.is_idle and not self._is_ending:
            await self._send_all(_TOO_SLOW)
        self.close()

    async def _send(self, event: Event) -> None:
        """What the protocol wants of the connection."""
        if isinstance(event, RawData):
            await self._send_all(event.data)
        elif isinstance(event, Closed):
            await self._finish()
        elif isinstance(event, Updated):
            self.is_idle, self._has_begun = event.idle, False
            self._wait_at_most(self.times.idle_s if event.idle else math.inf)

    async def _finish(self) -> None:
        self._is_ending = True
        if self._protocol.connection.our_state is h11.SEND_BODY:
            return  # they sent what they should not; the answer that is under way ends it
        self.is_idle = True
        self._wait_at_most(_LINGER_S)
        async with self._sending:
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                await self.stream.send_eof()
        await self._protocol.handle(Closed())

    async def _send_all(self, data: bytes) -> None:
        async with self._sending:
            if not await self._is_sent(memoryview(data)):
                self.close()
                await self._protocol.handle(Closed())

    async def _is_sent(self, data: memoryview) -> bool:
        for begin in range(0, len(data), _SEND_BYTES):
            # Half an answer is worse than none, so that it is shielded; the end of the server closes the socket.
            with trio.CancelScope(shield=True, deadline=trio.current_time() + self.times.send_s) as sending:
                try:
                    await self.stream.send_all(data[begin : begin + _SEND_BYTES])
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    return False
            if sending.cancelled_caught:
                return False
        return True
