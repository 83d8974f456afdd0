"""Stands between us and PostgreSQL on loopback, and cuts the line exactly when it is told to."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import Enum

import trio
from sqlalchemy import make_url

BROKEN = (trio.BrokenResourceError, trio.ClosedResourceError)


class Cut(Enum):
    """Where the line is cut."""

    BEFORE = "before"
    """The server never sees the words."""
    AFTER = "after"
    """The server does what it is told, and its answer is lost."""


class Proxy:
    """Passes everything on, until the client says certain words."""

    def __init__(self, url: str) -> None:
        self._server = make_url(url)
        self._words: bytes | None = None
        self._cut = Cut.BEFORE
        self._after: bytes | None = None
        self._marked: set[trio.SocketStream] = set()
        """Lines over which `after` was said."""
        self._closes = False
        self.cuts = 0
        """How often a line was cut at words."""
        self._lines: set[trio.CancelScope] = set()
        self._port = 0
        self._swallowed: dict[trio.SocketStream, trio.Event] = {}
        self.is_open = True

    @property
    def url(self) -> str:
        """Where to reach the database through us."""
        through = self._server.difference_update_query(["host", "port"]).set(host="127.0.0.1", port=self._port)
        plain = through.update_query_dict({"sslmode": "disable", "gssencmode": "disable"})
        return plain.render_as_string(hide_password=False)

    def cut_at(self, words: str, cut: Cut, *, after: str | None = None, closes: bool = False) -> None:
        """Cut the line once, the next time the client says these words.

        With `after`, only a line over which either side has said that since. With `closes`, all lines are cut then.
        """
        self._words, self._cut, self._closes = words.encode(), cut, closes
        self._after = None if after is None else after.encode()
        self._marked.clear()

    def cut_now(self) -> None:
        """Cut every line, and take no more calls until `is_open` is set again."""
        self.is_open = False
        for line in self._lines:
            line.cancel()

    async def serve(self, task_status: trio.TaskStatus[None]) -> None:
        """Take calls until cancelled."""
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self._port = listener.socket.getsockname()[1]
        task_status.started()
        await trio.serve_listeners(self._connect, [listener])

    async def _connect(self, client: trio.SocketStream) -> None:
        if not self.is_open:
            return
        server = await self._dial()
        async with server, trio.open_nursery() as line:
            self._lines.add(line.cancel_scope)
            line.start_soon(self._pass_on, server, client, line.cancel_scope)
            await self._listen_for_words(client, server)
            line.cancel_scope.cancel()
        self._lines.discard(line.cancel_scope)

    async def _dial(self) -> trio.SocketStream:
        host = self._server.host or str(self._server.query.get("host", "127.0.0.1"))
        port = self._server.port or 5432
        if host.startswith("/"):
            return await trio.open_unix_socket(f"{host}/.s.PGSQL.{port}")
        return await trio.open_tcp_stream(host, port)

    async def _listen_for_words(self, client: trio.SocketStream, server: trio.SocketStream) -> None:
        try:
            async for chunk in client:
                self._mark(server, chunk)
                if not self._is_cut(server, chunk):
                    await server.send_all(chunk)
                    continue
                self._words = None
                if self._cut is Cut.AFTER:
                    swallowed = self._swallowed[server] = trio.Event()
                    await server.send_all(chunk)
                    await swallowed.wait()
                self.cuts += 1
                if self._closes:
                    self.cut_now()
                return
        except BROKEN:
            return

    def _mark(self, line: trio.SocketStream, chunk: bytes | bytearray) -> None:
        if self._after is not None and self._after in chunk:
            self._marked.add(line)

    def _is_cut(self, line: trio.SocketStream, chunk: bytes | bytearray) -> bool:
        is_here = self._after is None or line in self._marked
        return is_here and self._words is not None and self._words in chunk

    async def _pass_on(self, server: trio.SocketStream, client: trio.SocketStream, line: trio.CancelScope) -> None:
        try:
            async for chunk in server:
                self._mark(server, chunk)
                if (swallowed := self._swallowed.pop(server, None)) is not None:
                    # The answer that shall be lost. Whoever listens for the words now cuts the line.
                    swallowed.set()
                    return
                await client.send_all(chunk)
        except BROKEN:
            pass
        line.cancel()


@asynccontextmanager
async def proxied(url: str) -> AsyncIterator[Proxy]:
    """A proxy in front of this database."""
    async with trio.open_nursery() as nursery:
        proxy = Proxy(url)
        await nursery.start(proxy.serve)
        yield proxy
        nursery.cancel_scope.cancel()
