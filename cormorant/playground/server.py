"""Open_playground: all stand-ins on one port; MountedStandIn."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from contextlib import AsyncExitStack
from functools import partial
from types import TracebackType
from typing import Any, Final, Protocol, Self

import trio
from attrs import frozen

from cormorant.playground.http import StandInRequest, StandInResponse, StandInSite, talk
from cormorant.rules.addresses import parse_listen_address
from cormorant.rules.errors import PlaygroundClosed

CONNECTIONS_MAX: Final = 100
"""Conversations at the same time; whoever comes then waits."""


class Playground:
    """Stand-ins that can be asked. Enter it with `async with`."""

    def __init__(self, sites: Mapping[str, StandInSite], listen: str) -> None:
        self.sites = dict(sites)
        self._listen = parse_listen_address(listen)
        self._room = trio.Semaphore(CONNECTIONS_MAX)
        self._stack = AsyncExitStack()
        self._nursery: trio.Nursery | None = None
        self.address = ""

    def url_of(self, name: str, path: str = "") -> str:
        """The address of a stand-in, or of something of it: `url_of("attic", "/api")`."""
        if name not in self.sites:
            raise KeyError(f"there is no {name!r} in this playground; there are {', '.join(self.sites)}")
        return f"{self.address}/{name}{path}"

    async def __aenter__(self) -> Self:
        host, port = self._listen.host, self._listen.port
        try:
            [listener, *_] = await trio.open_tcp_listeners(port, host=host)
        except OSError as error:
            why = "something else listens there" if error.errno == errno.EADDRINUSE else str(error.strerror or error)
            raise PlaygroundClosed(
                f"playground.listen: the playground cannot listen on {self._listen.shown}: {why}; "
                "stop that, or set playground.listen to another port"
            ) from error
        self.address = f"http://{host}:{listener.socket.getsockname()[1]}"
        self._nursery = await self._stack.enter_async_context(trio.open_nursery())
        self._nursery.start_soon(partial(trio.serve_listeners, self._serve, [listener]))
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

    async def _serve(self, stream: trio.SocketStream) -> None:
        async with self._room:
            await talk(stream, self.sites, self.address)


def open_playground(*sites: StandInSite, listen: str = "127.0.0.1:0") -> Playground:
    """A playground with these stand-ins, on a free port unless told."""
    return Playground({site.name: site for site in sites}, listen)


ASKED_MAX: Final = 1_000
"""Requests that are remembered, the newest."""
_KIND: Final = "content-type"


class StandIn(Protocol):
    """Answers requests, and remembers what it was asked."""

    asked: list[Any]

    def handle(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Status, headers and body."""
        ...


@frozen
class MountedStandIn:
    """A stand-in under a name."""

    name: str
    stand_in: StandIn

    async def answer(self, asked: StandInRequest) -> StandInResponse:
        """What it says. A stranger may send anything: what it cannot read is a bad request, and ends nothing else."""
        headers = {**asked.headers, "host": asked.base.partition("://")[2]}  # links of its own lead back here
        try:
            status, given, body = self.stand_in.handle(asked.method, asked.path, asked.params, headers, asked.body)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return StandInResponse(status=400, body=b"that makes no sense to a stand-in\n")
        finally:
            del self.stand_in.asked[:-ASKED_MAX]
        kinds = [value for name, value in given.items() if name.lower() == _KIND]
        rest = {name: value for name, value in given.items() if name.lower() != _KIND}
        return StandInResponse(
            status=status, kind=kinds[0] if kinds else "text/plain; charset=utf-8", body=body, headers=rest
        )
