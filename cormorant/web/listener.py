"""Accept loop, connection limits and one HTTP/1.1 connection."""

from __future__ import annotations

import errno
import math
import os
import socket
from collections import Counter
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
from trio_util import AsyncValue

from cormorant.rules.addresses import ListenAddress
from cormorant.rules.errors import CannotListen, split_crash
from cormorant.rules.events import WebConnectionCrashed, WebFull
from cormorant.rules.json_documents import parse_json
from cormorant.rules.ports import Emit
from cormorant.rules.settings.service import WebSettings
from cormorant.rules.web_requests import LogThrottle, address_group, is_within
from cormorant.web.problems import kind_of

_AT_ONCE: Final = 32
"""So many are let in before others have their turn."""
_FULL: Final = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_NO_MORE_FILES: Final = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_BREATHER_S: Final = 0.1
_FILES_KEPT: Final = 100
"""For the database, sites and the log."""
_HEAD_BYTES_MAX: Final = 32 * 1024


def _config() -> Config:
    config = Config()
    config.accesslog = None
    config.errorlog = None  # what matters is told by events
    config.include_server_header = False
    config.h11_max_incomplete_size = _HEAD_BYTES_MAX
    return config


@define(eq=False, kw_only=True)
class ConnectionListener:
    """Takes connections and owns them."""

    settings: WebSettings = field(kw_only=False)
    app: AppWrapper
    emit: Emit
    config: Config = field(factory=_config)
    open: dict[HttpConnection, None] = field(init=False, factory=dict)
    """Every connection, the oldest first."""
    _by_client: Counter[str] = field(init=False, factory=Counter)
    _at_most: int = field(init=False)
    _context: WorkerContext = field(init=False)
    _count: AsyncValue[int] = field(init=False, factory=lambda: AsyncValue(0))
    """How many connections are open."""
    _said: LogThrottle = field(init=False, factory=LogThrottle)

    def __attrs_post_init__(self) -> None:
        self._at_most = min(self.settings.connections_max, _files_allowed())
        self._context = WorkerContext(None)

    async def serve(self, listening: socket.socket, told: trio.Event, *, answers_s: float) -> None:
        """Take connections until told to end; then answers under way get their time."""
        async with trio.open_nursery() as connections:
            try:
                async with trio.open_nursery() as accepting:
                    accepting.start_soon(self._accept, listening, connections)
                    await told.wait()
                    accepting.cancel_scope.cancel()
                await self._context.terminated.set()  # no connection is kept after its answer
                self._close(only_idle=True)
                with trio.move_on_after(answers_s):
                    await self._count.wait_value(0)
            finally:
                listening.close()
                self._close(only_idle=False)
            connections.cancel_scope.cancel()

    def _close(self, *, only_idle: bool) -> None:
        for connection in list(self.open):
            if connection.is_idle or not only_idle:
                connection.close()

    async def _accept(self, listening: socket.socket, connections: trio.Nursery) -> None:
        while True:
            await trio.lowlevel.wait_readable(listening)
            try:
                for _ in range(_AT_ONCE):
                    accepted, address = listening.accept()
                    self._let_in(accepted, address[0], connections)
            except BlockingIOError:
                continue
            except OSError as error:
                # One that hung up while it waited is no trouble of ours. Without room the oldest makes some.
                if error.errno in _NO_MORE_FILES:
                    self._make_room(None)
                    await trio.sleep(_BREATHER_S)
            await trio.lowlevel.checkpoint()

    def _let_in(self, accepted: socket.socket, address: str, connections: trio.Nursery) -> None:
        client = address_group(address)
        if not self._has_room(client, is_proxy=is_within(address, self.settings.trusted_proxies)):
            _refuse(accepted)
            return
        accepted.settimeout(0)
        with suppress(OSError):
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = HttpConnection(
            stream=trio.SocketStream(trio.socket.from_stdlib_socket(accepted)),
            client=client,
            times=ConnectionTimeouts(head_s=self.settings.head_timeout_s, idle_s=self.settings.idle_timeout_s),
        )
        self.open[connection] = None
        self._count.value = len(self.open)
        self._by_client[client] += 1
        connections.start_soon(self._serve, connection)

    def _has_room(self, client: str, *, is_proxy: bool) -> bool:
        if not is_proxy and self._by_client[client] >= self.settings.connections_per_client_max:
            self._tell_full(client, "web.connections_per_client_max")
            return self._make_room(client)
        if len(self.open) >= self._at_most:
            self._tell_full(client, "web.connections_max")
            return self._make_room(None)
        return True

    def _make_room(self, client: str | None) -> bool:
        """Close the oldest that asks nothing, of one client or of the one who has the most. Whether there was one."""
        busiest = client or next((name for name, _ in self._by_client.most_common(1)), "")
        idle = [each for each in self.open if each.is_idle and each.client == busiest]
        if not idle and client is None:
            idle = [each for each in self.open if each.is_idle]
        if not idle:
            return False
        idle[0].close()
        self._forget(idle[0])
        return True

    def _forget(self, connection: HttpConnection) -> None:
        if connection not in self.open:
            return
        del self.open[connection]
        self._by_client[connection.client] -= 1
        if not self._by_client[connection.client]:
            del self._by_client[connection.client]
        self._count.value = len(self.open)

    def _tell_full(self, client: str, limit: str) -> None:
        if self._said.should_log(limit, now=trio.current_time()):
            self.emit(WebFull(client=client, connections=len(self.open), limit=limit))

    def _tell_crash(self, client: str, crash: BaseException) -> None:
        left_out = self._said.log_or_count(kind_of(crash), now=trio.current_time())
        if left_out is not None:
            self.emit(WebConnectionCrashed(client=client, error=crash, left_out=left_out))

    async def _serve(self, connection: HttpConnection) -> None:
        try:
            await connection.serve(self.app, self.config, self._context)
        except BaseException as raised:  # noqa: BLE001 - whatever a stranger sent must not end the others
            crash, rest = split_crash(raised)
            if crash is not None:
                self._tell_crash(connection.client, crash)
            if rest is not None:
                raise rest from None
        finally:
            self._forget(connection)


def _refuse(accepted: socket.socket) -> None:
    with accepted, suppress(OSError):
        accepted.settimeout(0)
        accepted.send(_FULL)
        accepted.shutdown(socket.SHUT_WR)


def _files_allowed() -> int:
    """How many connections the system lets this process have beside its other files."""
    try:
        import resource  # noqa: PLC0415 - not everywhere
    except ImportError:
        return 1_000_000
    soft: Any = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 1_000_000 if soft == resource.RLIM_INFINITY else max(_FILES_KEPT // 10, soft - _FILES_KEPT)


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


SERVICE: Final = "cormorant"
"""How `/health` names the program."""

ANSWER_S: Final = 2.0
_ANSWER_BYTES: Final = 8_000
_BACKLOG: Final = 1024


def bound(address: ListenAddress) -> socket.socket:
    """A socket that listens at this address, or `CannotListen`."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((address.host, address.port))
        listening.settimeout(0)
        listening.listen(_BACKLOG)  # two may bind with SO_REUSEADDR; only one may listen
    except OSError as error:
        listening.close()
        why = os.strerror(error.errno or 0).lower()
        raise CannotListen(address.shown, why, is_in_use=error.errno == errno.EADDRINUSE) from error
    return listening


def is_cormorant(address: ListenAddress, url_base: str) -> bool:
    """Whether a Cormorant answers at this address within 2 s. Blocks; not for use inside of a Trio program."""
    return trio.run(_is_cormorant, address, url_base)


async def _is_cormorant(address: ListenAddress, url_base: str) -> bool:
    near = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address.host, address.host)  # noqa: S104 - asked, not bound
    # HTTP/1.0: the answer is not chunked, and ends with the connection.
    question = f"GET {url_base.rstrip('/')}/health HTTP/1.0\r\nHost: {address.shown}\r\n\r\n".encode()
    answer = b""
    try:
        with trio.fail_after(ANSWER_S):
            async with await trio.open_tcp_stream(near, address.port) as stream:
                await stream.send_all(question)
                while (piece := await stream.receive_some(_ANSWER_BYTES)) and len(answer) < _ANSWER_BYTES:
                    answer += piece
        said = parse_json(answer.partition(b"\r\n\r\n")[2])
    except (OSError, trio.BrokenResourceError, trio.TooSlowError, ValueError):
        return False
    return isinstance(said, dict) and said.get("service") == SERVICE
