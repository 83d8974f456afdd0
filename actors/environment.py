"""Where do time, chance and threads come from when nobody passes others in?"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from random import SystemRandom
from typing import Any, TypeVar

import trio

T = TypeVar("T")

__all__ = ["SystemClock", "SystemRandom", "in_thread"]


class SystemClock:
    """The machine's wall clock."""

    def now(self) -> datetime:
        """The time in UTC."""
        return datetime.now(UTC)

    def stopwatch(self) -> float:
        """Seconds of real time."""
        return time.perf_counter()


async def in_thread(function: Callable[..., T], /, *args: Any) -> T:
    """Call `function(*args)` in a thread and wait for its end, also when cancelled: nothing is left half-way."""
    return await trio.to_thread.run_sync(function, *args, abandon_on_cancel=False)
