"""How does what waits for minutes end when the server stops? Its scope is cancelled, and it says so itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

import trio
from attrs import define, field

__all__ = ["Closing"]

P = ParamSpec("P")
T = TypeVar("T")


@define(eq=False)
class Closing:
    """Told once that the server stops."""

    told: trio.Event = field(factory=trio.Event)
    _scopes: set[trio.CancelScope] = field(init=False, factory=set)

    @property
    def is_told(self) -> bool:
        """Whether the server stops."""
        return self.told.is_set()

    def tell(self) -> None:
        """End all that waits."""
        self.told.set()
        for scope in list(self._scopes):
            scope.cancel()

    async def unless_told(self, work: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """What comes of something that may wait for long; None when the server stops first."""
        scope = trio.CancelScope()
        self._scopes.add(scope)
        if self.is_told:
            scope.cancel()
        result: T | None = None
        try:
            with scope:
                result = await work(*args, **kwargs)
        finally:
            self._scopes.discard(scope)
        return result
