"""Server-sent events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
import trio
from attrs import define, field, frozen
from litestar.types import Receive, Scope, Send

from cormorant.rules.events import Stamped, fields_of
from cormorant.rules.secrets import NO_SCREEN, SecretFilter, redact_passwords, secret_filter_of
from cormorant.services.event_bus import EventStream
from cormorant.web.auth import ListenPermit
from cormorant.web.parts import WebParts
from cormorant.web.shutdown import Shutdown
from storage.search.sources import SourceRecord

__all__ = ["EVENT_EXAMPLE", "EventResponse", "EventStreams"]

FEEDS_MAX: Final = 32
BEAT_S: Final = 15.0
"""A stream says something at least so often, so that nobody in between takes it for dead."""
RETRY_MS: Final = 2_000

EVENT_EXAMPLE: Final = (
    'id: 41\ndata: {"name":"search.finished","level":"info","at":"2026-01-01T12:00:00Z","facts":{"search_id":7,'
    '"source":"attic","status":"found","results":38,"waited_s":0.0,"took_s":0.6,"error":null}}\n\n'
)


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
        """One more, for whoever asks."""
        return EventResponse(self, permit)

    def secret_filter(self) -> SecretFilter:
        """What must not be seen of any source."""
        records = tuple(requests.record for requests in self.parts.searches.directory.by_name.values())
        if records != self._records:  # made anew only then: there may be thousands of events in a second
            texts = {text for record in records for text in secret_filter_of(record.key, record.proxy).texts}
            self._records, self._secret_filter = records, SecretFilter(tuple(sorted(texts, key=len, reverse=True)))
        return self._secret_filter


@frozen(eq=False)
class EventResponse:
    """The answer to one who listens. Ends when they hang up or sign out, and with the server."""

    feeds: EventStreams
    permit: ListenPermit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI's signature
        """Send events until there is nobody left."""
        headers = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await self.permit.run_until_signed_out(
            lambda: self.feeds.closing.run_until_disconnect(receive, self._tell, send)
        )
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _tell(self, send: Send) -> None:
        events = self.feeds.parts.bus.stream()
        self.feeds.open += 1
        try:
            await _send(send, b"retry: %d\n\n" % RETRY_MS)
            while (chunk := await self._next(events)) is not None:
                await _send(send, chunk)
        finally:
            self.feeds.open -= 1
            events.end()

    async def _next(self, events: EventStream) -> bytes | None:
        with trio.move_on_after(BEAT_S):
            try:
                return _shown(await events.__anext__(), self.feeds.secret_filter)
            except StopAsyncIteration:
                return None
        return b": still there\n\n"


async def _send(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})


def _shown(stamped: Stamped, secret_filter: Callable[[], SecretFilter]) -> bytes:
    event = stamped.event
    facts = fields_of(event)
    if any(isinstance(value, str | tuple | list) for value in facts.values()):
        hide = secret_filter()
        facts = {name: _plain(value, hide) for name, value in facts.items()}
    body = msgspec.json.encode({"name": event.name, "level": event.level, "at": stamped.at, "facts": facts})
    return b"id: %d\ndata: %s\n\n" % (stamped.sequence, body)


def _plain(value: object, secret_filter: SecretFilter) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, tuple | list):
        return [_plain(each, secret_filter) for each in value]
    return redact_passwords(secret_filter.redact(str(value)))
