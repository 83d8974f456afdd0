"""WakeUp (coalesced, with a deadline) and Periodic (runs a tick at each interval)."""

from __future__ import annotations

import math
from abc import abstractmethod

import trio

from actors.actor import Actor
from cormorant.rules.errors import CommitUnknown, StorageUnavailable


class Periodic(Actor[None]):
    """Calls `round` again and again, `interval_s` from begin to begin; after an overrun at once, and none is made up for.

    What a database that is away prevents now is done in the next round.
    """

    interval_s: float
    grace_s: float
    """What a round that runs gets to finish when the service stops; then it is cancelled."""
    _stop: trio.CancelScope | None = None
    _ended: trio.Event | None = None

    @property
    def due_at(self) -> float:
        """A round that runs is now."""
        return self.wake_at if self._stop is None else trio.current_time()

    async def begin(self) -> None:
        """Begin at once."""
        self.wake_at = trio.current_time()

    @abstractmethod
    async def round(self) -> None:
        """Do what is due."""

    async def wake(self) -> None:
        """Start a round. There is no other: the next time is set only when it has ended."""
        self.wake_at = math.inf
        self._ended, self._stop = trio.Event(), trio.CancelScope()
        self.nursery.start_soon(self._round, self._ended, self._stop)

    async def end(self) -> None:
        """Let a round that runs finish within the grace, then cancel it."""
        if self._ended is None:
            return
        with trio.move_on_after(self.grace_s):
            await self._ended.wait()
        if self._stop is not None:
            self._stop.cancel()
        await self._ended.wait()

    async def _round(self, ended: trio.Event, stop: trio.CancelScope) -> None:
        began = trio.current_time()
        try:
            with stop:
                await self.round()
        except* (StorageUnavailable, CommitUnknown):
            pass  # whatever was in hand comes back by itself
        finally:
            self._stop = None
            ended.set()
            self.wake_at = max(trio.current_time(), began + self.interval_s)


class WakeUp:
    """A coalesced wake-up: any number of `set` before the next `wait` count as one."""

    def __init__(self) -> None:
        self._sender, self._receiver = trio.open_memory_channel[None](1)
        self._is_set = False

    def set(self) -> None:
        """Wake the task that waits, or let its next wait return at once. Never waits."""
        if not self._is_set:  # otherwise the task has not waited since the last one
            self._is_set = True
            self._sender.send_nowait(None)

    async def wait(self, until: float = math.inf) -> bool:
        """Wait until it is set, at most until a time of trio's clock. False: the time came first."""
        if until == math.inf:
            await self._receiver.receive()
            self._is_set = False
            return True
        with trio.CancelScope(deadline=until):
            await self._receiver.receive()
            self._is_set = False
            return True
        return False
