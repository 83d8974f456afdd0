"""Open_playground: all stand-ins on one port, behind the HTTP connections of the product."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import parse_qsl

import trio
from attrs import evolve, frozen
from hypercorn.app_wrappers import ASGIWrapper

from cormorant.playground.http import StandInRequest, StandInResponse, StandInSite, as_html, as_text
from cormorant.rules.addresses import parse_listen_address
from cormorant.rules.errors import CannotListen, PlaygroundClosed
from cormorant.rules.ports import ignore
from cormorant.rules.settings.service import WebSettings
from cormorant.web.listener import ConnectionListener, bound

BODY_BYTES_MAX: Final = 1_000_000
PARAMS_MAX: Final = 100
REQUEST_S: Final = 120.0
"""The longest time of a request and its answer. After it the connection is closed."""
_UNREADABLE: Final = (ValueError, LookupError, TypeError, AttributeError, RecursionError)

Answering = Callable[[StandInRequest], Awaitable[StandInResponse]]


async def serve_replies(listening: socket.socket, reply: Answering, address: str) -> None:
    """Answer HTTP requests until cancelled. Each connection has one request. `address` is the base of the links."""
    app: Any = _StandInApp(reply, address)
    listener = ConnectionListener(WebSettings(), app=ASGIWrapper(app), emit=ignore)
    await listener.serve(listening, trio.Event(), answers_s=0.0)


@frozen
class _StandInApp:
    """The ASGI application."""

    reply: Answering
    address: str

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        with trio.move_on_after(REQUEST_S):
            body = await _body(receive)
            if body is None:
                return
            answer = await self._answer(scope, body)
            headers = {"Content-Type": answer.kind, "Content-Length": str(len(answer.body)), "Connection": "close"}
            written = [(name.encode(), value.encode()) for name, value in (headers | dict(answer.headers)).items()]
            await send({"type": "http.response.start", "status": answer.status, "headers": written})
            await send({"type": "http.response.body", "body": answer.body, "more_body": False})

    async def _answer(self, scope: Any, body: bytes) -> StandInResponse:
        """A client may send anything. What a stand-in cannot read is a bad request."""
        if len(body) > BODY_BYTES_MAX:
            return as_text("the body is too long\n", status=413)
        try:
            return await self.reply(self._asked(scope, body))
        except _UNREADABLE as error:
            return as_text(f"that makes no sense to a stand-in: {error!r}\n", status=400)

    def _asked(self, scope: Any, body: bytes) -> StandInRequest:
        query = scope["query_string"].decode("latin-1")
        return StandInRequest(
            method=scope["method"],
            path=scope["path"],
            params=dict(parse_qsl(query, keep_blank_values=True, max_num_fields=PARAMS_MAX)),
            headers={name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]},
            body=body,
            base=self.address,
        )


async def _body(receive: Any) -> bytes | None:
    """The body, cut behind its limit; None when the client left before its end.

    The rest of a long body is read and thrown away, so that the client gets the answer.
    """
    kept = bytearray()
    while (message := await receive())["type"] == "http.request":
        if len(kept) <= BODY_BYTES_MAX:
            kept += message["body"]
        if not message["more_body"]:
            return bytes(kept)
    return None


class Playground:
    """Stand-ins that can be asked. Enter it with `async with`."""

    def __init__(self, sites: Mapping[str, StandInSite], listen: str) -> None:
        self.sites = dict(sites)
        self._listen = parse_listen_address(listen)
        self._stack = AsyncExitStack()
        self._nursery: trio.Nursery | None = None
        self.address = ""

    def url_of(self, name: str, path: str = "") -> str:
        """The address of a stand-in, or of something of it: `url_of("attic", "/api")`."""
        if name not in self.sites:
            raise KeyError(f"there is no {name!r} in this playground; there are {', '.join(self.sites)}")
        return f"{self.address}/{name}{path}"

    async def __aenter__(self) -> Self:
        try:
            listening = bound(self._listen)
        except CannotListen as error:
            why = "something else listens there" if error.is_in_use else error.why.capitalize()
            raise PlaygroundClosed(
                f"playground.listen: the playground cannot listen on {error.address}: {why}; "
                "stop that, or set playground.listen to another port"
            ) from error
        self.address = f"http://{evolve(self._listen, port=listening.getsockname()[1]).shown}"
        self._nursery = await self._stack.enter_async_context(trio.open_nursery())
        self._nursery.start_soon(serve_replies, listening, self.answer, self.address)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()
        if isinstance(error, Exception):
            await self._stack.__aexit__(None, None, None)
            return False  # the body's own error leaves as it is, and in no group
        return await self._stack.__aexit__(kind, error, trace)

    async def answer(self, asked: StandInRequest) -> StandInResponse:
        """What the site says that the path begins with."""
        name, _, rest = asked.path.removeprefix("/").partition("/")
        if name not in self.sites:
            return as_html(f"This is the playground. There are: {', '.join(self.sites) or 'no sites'}.", status=404)
        return await self.sites[name].answer(evolve(asked, path=f"/{rest}", base=self.url_of(name)))


def open_playground(*sites: StandInSite, listen: str = "127.0.0.1:0") -> Playground:
    """A playground with these stand-ins, on a free port unless told."""
    return Playground({site.name: site for site in sites}, listen)
