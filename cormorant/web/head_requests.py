"""HEAD requests: every address that answers GET answers HEAD with the same status and headers, and without a body."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import trio
from attrs import define, field
from litestar.connection import ASGIConnection
from litestar.enums import ScopeType
from litestar.response import Stream
from litestar.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["HeadAnswers", "allowing_head", "asked_method", "head_of_unknown_length", "is_head"]

_HEAD: Final = "cormorant.head"


@define(eq=False)
class HeadAnswers:
    """Hands HEAD to the application as GET, sends the headers of the answer, and cancels the rest of it.

    The handler of a GET runs. One that would contact a site asks `is_head` before it does.
    """

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Be an ASGI application."""
        if scope["type"] != ScopeType.HTTP or scope["method"] != "HEAD":
            await self.app(scope, receive, send)
            return
        # A copy: the server frames the answer by the method of its own scope.
        asked: Any = {**scope, "method": "GET", "state": {**scope["state"], _HEAD: True}}
        with trio.CancelScope() as answering:
            await self.app(asked, receive, _HeadersOnly(send, answering))


@define(eq=False)
class _HeadersOnly:
    """Sends the headers of an answer and ends it. A stream would go on for hours."""

    send: Send
    answering: trio.CancelScope
    _is_sent: bool = field(init=False, default=False)

    async def __call__(self, message: Message) -> None:
        if self._is_sent:
            await trio.lowlevel.checkpoint()
            return
        await self.send(message)
        if message["type"] == "http.response.start":
            self._is_sent = True
            await self.send({"type": "http.response.body", "body": b"", "more_body": False})
            self.answering.cancel()


def is_head(connection: ASGIConnection[Any, Any, Any, Any]) -> bool:
    """Whether only the headers of the answer will be sent."""
    state: dict[str, Any] = connection.scope["state"]
    return _HEAD in state


def asked_method(connection: ASGIConnection[Any, Any, Any, Any]) -> str:
    """The method as the client sent it."""
    return "HEAD" if is_head(connection) else str(connection.scope.get("method", ""))


def head_of_unknown_length(media_type: str) -> Stream:
    """The answer to a HEAD whose body is not known. Without Content-Length: 0 would be wrong."""
    return Stream(iter(()), media_type=media_type)


def allowing_head(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The same headers, with HEAD in `Allow` wherever GET is in it."""
    return [
        (name, b"%s, HEAD" % value if name.lower() == b"allow" and b"GET" in value else value)
        for name, value in headers
    ]
