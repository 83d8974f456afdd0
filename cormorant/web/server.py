"""The HTTP server as an actor."""

from __future__ import annotations

import socket

import trio
from attrs import define, field
from hypercorn.app_wrappers import ASGIWrapper
from trio_util import periodic

from actors.actor import Actor, StopServing
from cormorant.rules.addresses import ListenAddress
from cormorant.rules.events import WebListening
from cormorant.services.keys import keys_of
from cormorant.web.api.searches import RunningSearches
from cormorant.web.app import make_app
from cormorant.web.head_requests import HeadAnswers
from cormorant.web.listener import ConnectionListener, bound
from cormorant.web.parts import Shutdown, WebParts
from cormorant.web.request_guard import RequestGuard

__all__ = ["WebServer"]

_ANSWERS_S = 2.0
_BEAT_S = 2.0
"""Interval between two looks at how late the event loop is."""


@define(eq=False, kw_only=True)
class WebServer(Actor[StopServing]):
    """The HTTP server as a child of the tree."""

    parts: WebParts
    _closing: Shutdown = field(init=False)
    _ended: trio.Event = field(init=False, factory=trio.Event)

    async def begin(self) -> None:
        """Bind and serve. The start is acknowledged only when connections are taken."""
        parts = self.parts
        keys = keys_of(parts.environment.settings, emit=parts.environment.emit)
        self._closing = Shutdown(self.nursery)
        searches = RunningSearches(nursery=self.nursery, searches=parts.searches)
        app = make_app(parts, keys, self._closing, searches)
        listening = bound(parts.environment.settings.web.address)
        address = _address_of(listening)
        guard = RequestGuard(parts.environment, app=HeadAnswers(app), metrics=parts.metrics)
        wrapped = ASGIWrapper(guard)  # type: ignore[arg-type]  # Litestar and Hypercorn name the same messages differently
        listener = ConnectionListener(parts.environment.settings.web, app=wrapped, emit=parts.environment.emit)
        app.state["listener"] = listener
        self.nursery.start_soon(self._serve, listener, listening)
        self.nursery.start_soon(self._watch_loop)
        self.nursery.start_soon(app.state["web"].sign_outs.watch)
        parts.environment.emit(WebListening(address=f"http://{address.shown}{parts.environment.settings.web.url_base}"))

    async def handle(self, message: StopServing) -> None:  # noqa: ARG002 - it has one meaning
        """Unready at once, and no more connections."""
        self._closing.tell()

    async def end(self) -> None:
        """Unready at once, then no more connections; what is under way gets its time."""
        self._closing.tell()
        await self._ended.wait()

    async def _watch_loop(self) -> None:
        async for _, since_last_s in periodic(_BEAT_S):
            if since_last_s is not None:
                self.parts.metrics.lagged(since_last_s - _BEAT_S)

    async def _serve(self, listener: ConnectionListener, listening: socket.socket) -> None:
        try:
            await listener.serve(listening, self._closing.told, answers_s=_ANSWERS_S)
        finally:
            self._ended.set()


def _address_of(listening: socket.socket) -> ListenAddress:
    host, port, *_ = listening.getsockname()
    return ListenAddress(host, port)
