"""Ends long waits when the server stops or the client disconnects."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

import trio
from attrs import define, field
from litestar.types import Receive

__all__ = ["Shutdown"]

P = ParamSpec("P")
T = TypeVar("T")


@define(eq=False)
class Shutdown:
    """Told once that the server stops."""

    nursery: trio.Nursery
    told: trio.Event = field(factory=trio.Event)
    _scopes: set[trio.CancelScope] = field(init=False, factory=set)

    @property
    def is_stopping(self) -> bool:
        """Whether the server stops."""
        return self.told.is_set()

    def tell(self) -> None:
        """End all that waits."""
        self.told.set()
        for scope in list(self._scopes):
            scope.cancel()

    async def run_until_disconnect(
        self, receive: Receive, work: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T | None:
        """The same, and it ends when whoever asked has hung up: nothing is spent for nobody."""
        watching = trio.CancelScope()
        scope = trio.CancelScope()
        result: T | None = None
        self.nursery.start_soon(_cancel_on_disconnect, receive, scope, watching)
        try:
            with scope:
                result = await self.run_until_shutdown(work, *args, **kwargs)
        finally:
            watching.cancel()
        return result

    async def run_until_shutdown(self, work: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """What comes of something that may wait for long; None when the server stops first."""
        scope = trio.CancelScope()
        self._scopes.add(scope)
        if self.is_stopping:
            scope.cancel()
        result: T | None = None
        try:
            with scope:
                result = await work(*args, **kwargs)
        finally:
            self._scopes.discard(scope)
        return result


async def _cancel_on_disconnect(receive: Receive, scope: trio.CancelScope, watching: trio.CancelScope) -> None:
    with watching:
        while (await receive())["type"] != "http.disconnect":
            pass
        scope.cancel()
