"""How is one question answered once? A one-shot that never makes the one who answers wait."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import trio

T = TypeVar("T")


class Reply(Generic[T]):
    """A one-shot answer: synchronous, never waits, the first one wins."""

    __slots__ = ("_answer", "_error", "_on_settled", "_settled", "abandoned")

    def __init__(self, on_settled: Callable[[Reply[Any]], None] | None = None) -> None:
        self._settled = trio.Event()
        self._answer: T | None = None
        self._error: BaseException | None = None
        self._on_settled = on_settled
        self.abandoned = False
        """Nobody waits for it any more."""

    @property
    def settled(self) -> bool:
        """Whether it has been answered or refused."""
        return self._settled.is_set()

    def answer(self, value: T) -> None:
        """Give the answer."""
        if not self.settled:
            self._answer = value
            self._settle()

    def refuse(self, error: BaseException) -> None:
        """Let the asker's call raise `error`."""
        if not self.settled:
            self._error = error
            self._settle()

    def _settle(self) -> None:
        self._settled.set()
        if self._on_settled is not None:
            self._on_settled(self)

    async def wait(self) -> T:
        """The answer, or the error it was refused with."""
        try:
            await self._settled.wait()
        except trio.Cancelled:
            # Settled in the same tick: who answered counts on its being heard. The cancellation comes at the next step.
            if not self.settled:
                self.abandoned = True
                raise
        if self._error is not None:
            raise self._error
        return self._answer  # type: ignore[return-value]  # settled without an error: `answer` has set it
