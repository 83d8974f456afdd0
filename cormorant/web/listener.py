"""Who is let in? So many connections at once, so many from one address; for one more the oldest that asks nothing makes room."""

from __future__ import annotations

import errno
import socket
from collections import Counter
from contextlib import suppress
from typing import Any, Final

import trio
from attrs import define, field
from hypercorn.config import Config
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import AppWrapper

from cormorant.rules.errors import split_crash
from cormorant.rules.events import WebConnectionCrashed, WebFull
from cormorant.rules.ports import Emit
from cormorant.rules.settings.service import WebSettings
from cormorant.rules.web_requests import LogThrottle, address_group, is_within
from cormorant.web.connection import ConnectionTimeouts, HttpConnection
from cormorant.web.crashes import kind_of

__all__ = ["ConnectionListener"]

_AT_ONCE: Final = 32
"""So many are let in before others have their turn."""
_FULL: Final = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_NO_MORE_FILES: Final = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_BREATHER_S: Final = 0.1
_FILES_KEPT: Final = 100
"""For the database, sites and the log."""


@define(eq=False, kw_only=True)
class ConnectionListener:
    """Takes connections and owns them."""

    app: AppWrapper
    config: Config
    web: WebSettings
    emit: Emit
    open: dict[HttpConnection, None] = field(init=False, factory=dict)
    """Every connection, the oldest first."""
    _by_client: Counter[str] = field(init=False, factory=Counter)
    _at_most: int = field(init=False)
    _context: WorkerContext = field(init=False)
    _empty: trio.Event = field(init=False, factory=trio.Event)
    _said: LogThrottle = field(init=False, factory=LogThrottle)

    def __attrs_post_init__(self) -> None:
        self._at_most = min(self.web.connections_max, _files_allowed())
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
                if self.open:
                    self._empty = trio.Event()
                    with trio.move_on_after(answers_s):
                        await self._empty.wait()
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
        if not self._has_room(client, is_proxy=is_within(address, self.web.trusted_proxies)):
            _refuse(accepted)
            return
        accepted.settimeout(0)
        with suppress(OSError):
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = HttpConnection(
            stream=trio.SocketStream(trio.socket.from_stdlib_socket(accepted)),
            client=client,
            times=ConnectionTimeouts(head_s=self.web.head_timeout_s, idle_s=self.web.idle_timeout_s),
        )
        self.open[connection] = None
        self._by_client[client] += 1
        connections.start_soon(self._serve, connection)

    def _has_room(self, client: str, *, is_proxy: bool) -> bool:
        if not is_proxy and self._by_client[client] >= self.web.connections_per_client_max:
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
        if not self.open:
            self._empty.set()

    def _tell_full(self, client: str, limit: str) -> None:
        if self._said.is_news(limit, now=trio.current_time()):
            self.emit(WebFull(client=client, connections=len(self.open), limit=limit))

    def _tell_crash(self, client: str, crash: BaseException) -> None:
        left_out = self._said.say_or_count(kind_of(crash), now=trio.current_time())
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
