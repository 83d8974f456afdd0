"""Who serves HTTP? Binds, tells where, serves; at the end it is unready first, takes no more, and ends its streams."""

from __future__ import annotations

import os
import socket
from typing import Any

import trio
from attrs import define, field
from hypercorn.config import Config
from hypercorn.trio import serve
from litestar import Litestar

from actors.actor import Actor
from cormorant.rules.errors import CannotListen
from cormorant.rules.events import WebListening
from cormorant.rules.listen_addresses import ListenAddress
from cormorant.web.app import make_app
from cormorant.web.closing import Closing
from cormorant.web.keys import keys_of
from cormorant.web.port import WebParts
from cormorant.web.search_desk import SearchDesk

__all__ = ["GRACE_S", "WebServer", "bound"]

GRACE_S = 3.0
"""What answers under way get at the end; with it the server's child of the tree is done."""

_ANSWERS_S = 2.0
_IDLE_S = 30.0
_BACKLOG = 256
_HEAD_BYTES_MAX = 32 * 1024
_UNREAD_MS = 4_000
"""A connection whose other side takes nothing for so long is given up. Hypercorn shields its sends, so that nothing else ends
one that is stuck, and with it the stop would wait."""


@define(eq=False, kw_only=True)
class WebServer(Actor[None]):
    """The HTTP server as a child of the tree."""

    parts: WebParts
    _closing: Closing = field(init=False)
    _ended: trio.Event = field(init=False, factory=trio.Event)

    async def begin(self) -> None:
        """Bind and serve. The start is acknowledged only when connections are taken."""
        parts = self.parts
        keys = keys_of(parts.web, parts.clients, data=parts.data, emit=parts.emit)
        desks = parts.searches.desks.by_name
        self._closing = Closing(self.nursery)
        searches = SearchDesk(nursery=self.nursery, closing=self._closing, desk_of=desks.get)
        app = make_app(parts, keys, self._closing, searches)
        listening = bound(parts.web.address)
        address = _address_of(listening)
        await self.nursery.start(self._serve, app, listening.detach())
        parts.emit(WebListening(address=f"http://{address.shown}{parts.web.url_base}"))

    async def end(self) -> None:
        """Unready at once, then no more connections; what is under way gets its time."""
        self._closing.tell()
        await self._ended.wait()

    async def _serve(
        self, app: Litestar, listening: int, *, task_status: trio.TaskStatus[Any] = trio.TASK_STATUS_IGNORED
    ) -> None:
        try:
            await serve(
                app,  # type: ignore[arg-type]  # an ASGI application, by another spelling of the same types
                _config(listening),
                shutdown_trigger=self._closing.told.wait,
                task_status=task_status,
                mode="asgi",
            )
        finally:
            self._ended.set()


def _config(listening: int) -> Config:
    config = Config()
    config.bind = [f"fd://{listening}"]
    config.accesslog = None
    config.errorlog = None  # what matters is told by events
    config.include_server_header = False
    config.graceful_timeout = _ANSWERS_S
    config.keep_alive_timeout = _IDLE_S
    config.h11_max_incomplete_size = _HEAD_BYTES_MAX
    config.backlog = _BACKLOG
    return config


def bound(address: ListenAddress) -> socket.socket:
    """A socket at this address, or `CannotListen`."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNREAD_MS)
        listening.bind((address.host, address.port))
        listening.listen(_BACKLOG)  # two may bind with SO_REUSEADDR; only one may listen
    except OSError as error:
        listening.close()
        raise CannotListen(address.shown, os.strerror(error.errno or 0).lower()) from error
    return listening


def _address_of(listening: socket.socket) -> ListenAddress:
    host, port, *_ = listening.getsockname()
    return ListenAddress(host, port)
