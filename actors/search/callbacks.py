"""Callbacks: runs on_complete and on_job_done of callers, each in its own task."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import trio
from attrs import define, field, frozen

from actors.actor import Actor
from actors.environment import Environment
from actors.periodic import WakeUp
from cormorant.rules.search.events import CallbackFailed
from cormorant.rules.search.outcomes import Outcome

CALLBACK_S = 30.0
"""How long one callback may take, so that one that hangs does not delay the end of its search for ever."""

OnComplete = Callable[..., Any]
"""`on_complete(job_id, source, results, coverage, error)`, plain or async; once for each source."""
OnJobDone = Callable[[int], Any]
"""`on_job_done(job_id)`, plain or async; once, after all of them."""


@frozen(kw_only=True)
class CallbackStream:
    """Command: call back for one search, as its outcomes come."""

    search_id: int
    outcomes: trio.MemoryReceiveChannel[Outcome]
    on_complete: OnComplete | None
    on_job_done: OnJobDone | None


@define(eq=False, kw_only=True)
class Callbacks(Actor[CallbackStream]):
    """Runs callbacks, and lets them finish when the service stops."""

    environment: Environment = field(kw_only=False)
    _running: int = field(init=False, default=0)
    _all_done: WakeUp = field(init=False, factory=WakeUp)

    async def handle(self, message: CallbackStream) -> None:
        """Follow one search."""
        self._running += 1
        self.nursery.start_soon(self._follow, message)

    async def end(self) -> None:
        """Wait for what is under way."""
        while self._running:
            await self._all_done.wait()

    async def _follow(self, feed: CallbackStream) -> None:
        try:
            async with trio.open_nursery() as nursery, feed.outcomes:
                async for outcome in feed.outcomes:
                    if feed.on_complete is not None:
                        nursery.start_soon(self._complete, feed.on_complete, outcome)
            if feed.on_job_done is not None:
                await self._call(feed.search_id, feed.on_job_done, feed.search_id)
        finally:
            self._running -= 1
            self._all_done.set()

    async def _complete(self, on_complete: OnComplete, outcome: Outcome) -> None:
        told = (outcome.job_id, outcome.source, list(outcome.results), list(outcome.coverage), outcome.error)
        await self._call(outcome.job_id, on_complete, *told)

    async def _call(self, search_id: int, function: Callable[..., Any], *words: Any) -> None:
        try:
            with trio.fail_after(CALLBACK_S):
                returned = function(*words)
                if inspect.isawaitable(returned):
                    await returned
        except Exception as error:  # noqa: BLE001 - foreign code: a caller's own mistake must not stop the others
            self.environment.emit(CallbackFailed(search_id=search_id, error=error))
