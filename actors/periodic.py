"""WakeUp (coalesced, with a deadline) and Periodic (runs a tick at each interval)."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import TypeVar

import trio

from actors.actor import Actor
from cormorant.rules.errors import CommitUnknown, StorageUnavailable

M = TypeVar("M")


class Periodic(Actor[M]):
    """Calls `round` again and again, `interval_s` from begin to begin; after an overrun at once, and none is made up for.

    What a database that is away prevents now is done in the next round.
    """

    interval_s: float
    grace_s: float
    """What a round that runs gets to finish when the service stops; then it is cancelled."""
    _stop: trio.CancelScope | None = None
    _ended: trio.Event | None = None
    _again: bool = False
    """Another round is to follow the one that runs."""

    @property
    def due_at(self) -> float:
        """A round that runs is now."""
        return self.wake_at if self._stop is None else trio.current_time()

    async def begin(self) -> None:
        """Begin at once."""
        self.wake_at = trio.current_time()

    @abstractmethod
    async def round(self) -> float | None:
        """Do what is due. Returns the seconds until the next round, if that is sooner than the interval."""

    def wake_now(self) -> None:
        """Start a round at once. While one runs, another follows it."""
        if self._stop is None:
            self.wake_at = trio.current_time()
        else:
            self._again = True

    async def wake(self) -> None:
        """Start a round. There is no other: the next time is set only when it has ended."""
        self.start_round(self.nursery)

    def start_round(self, nursery: trio.Nursery) -> None:
        """Start a round in a nursery."""
        self.wake_at, self._again = math.inf, False
        self._ended, self._stop = trio.Event(), trio.CancelScope()
        nursery.start_soon(self._round, self._ended, self._stop)

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
        began, sooner_s = trio.current_time(), None
        try:
            with stop:
                sooner_s = await self.round()
        except* (StorageUnavailable, CommitUnknown):
            pass  # whatever was claimed is released in a later round
        finally:
            self._stop = None
            ended.set()
            now = trio.current_time()
            next_at = began + self.interval_s if sooner_s is None else min(began + self.interval_s, now + sooner_s)
            self.wake_at = now if self._again else max(now, next_at)


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
