"""Server-sent events: the answer, and the stream of all events."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import trio
from attrs import define, field
from litestar.types import Receive, Scope, Send
from typing_extensions import override

from cormorant.rules.events import Stamped, fields_of
from cormorant.rules.secrets import NO_SCREEN, SecretFilter, redact_passwords
from cormorant.services.event_bus import EventStream
from cormorant.services.watch.views import WantViews
from cormorant.web.auth import ListenPermit
from cormorant.web.parts import Shutdown, WebParts
from storage.search.sources import SourceRecord

__all__ = ["EVENT_EXAMPLE", "EventResponse", "EventStreams"]

FEEDS_MAX: Final = 32
BEAT_S: Final = 15.0
"""A stream sends at least one line in this time, so that no proxy takes the connection for dead."""
RETRY_MS: Final = 2_000
_STILL_THERE: Final = b": still there\n\n"

EVENT_EXAMPLE: Final = (
    'id: 41\ndata: {"name":"search.finished","level":"info","at":"2026-01-01T12:00:00Z","facts":{"search_id":7,'
    '"source":"attic","status":"found","results":38,"waited_s":0.0,"took_s":0.6,"error":null}}\n\n'
)


@define(eq=False)
class EventResponse:
    """An answer of server-sent events. It ends when the client disconnects or signs out, and with the server."""

    closing: Shutdown
    permit: ListenPermit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI's signature
        """Send events until the end."""
        headers = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await self.permit.run_until_signed_out(lambda: self.closing.run_until_disconnect(receive, self.tell, send))
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def tell(self, send: Send) -> None:
        """Send events until there are no more."""
        while True:
            chunk: bytes | None = _STILL_THERE
            with trio.move_on_after(BEAT_S):
                chunk = await self.next()
            if chunk is None:
                return
            await send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def next(self) -> bytes | None:
        """Wait for the next event; None: there are no more. It may be cancelled and called again."""
        raise NotImplementedError


@define(eq=False)
class EventStreams:
    """The streams of events that are open."""

    parts: WebParts
    closing: Shutdown
    open: int = field(init=False, default=0)
    _records: tuple[SourceRecord, ...] = field(init=False, default=())
    _secret_filter: SecretFilter = field(init=False, default=NO_SCREEN)

    @property
    def is_full(self) -> bool:
        """Whether no more may come."""
        return self.open >= FEEDS_MAX

    def feed(self, permit: ListenPermit) -> EventResponse:
        """One more stream."""
        return _BusEvents(self.closing, permit, self)

    def secret_filter(self) -> SecretFilter:
        """What must not be seen of any source."""
        records = self.parts.searches.directory.records()
        if records != self._records:  # made anew only then: there may be thousands of events in a second
            self._records, self._secret_filter = records, WantViews.of(records).secret_filter
        return self._secret_filter


@define(eq=False)
class _BusEvents(EventResponse):
    """Every event of the service from now on."""

    feeds: EventStreams
    _events: EventStream = field(init=False)

    @override
    async def tell(self, send: Send) -> None:
        self._events = self.feeds.parts.bus.stream()
        self.feeds.open += 1
        try:
            await send({"type": "http.response.body", "body": b"retry: %d\n\n" % RETRY_MS, "more_body": True})
            await super().tell(send)
        finally:
            self.feeds.open -= 1
            self._events.end()

    @override
    async def next(self) -> bytes | None:
        try:
            return _shown(await self._events.__anext__(), self.feeds)
        except StopAsyncIteration:
            return None


def _shown(stamped: Stamped, feeds: EventStreams) -> bytes:
    event = stamped.event
    facts = fields_of(event)
    if any(isinstance(value, str | tuple | list) for value in facts.values()):
        hide = feeds.secret_filter()
        facts = {name: _plain(value, hide) for name, value in facts.items()}
    body = msgspec.json.encode({"name": event.name, "level": event.level, "at": stamped.at, "facts": facts})
    return b"id: %d\ndata: %s\n\n" % (stamped.sequence, body)


def _plain(value: object, secret_filter: SecretFilter) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, tuple | list):
        return [_plain(each, secret_filter) for each in value]
    return redact_passwords(secret_filter.redact(str(value)))
