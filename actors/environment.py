"""The clock, chance and threads of the system, used where a program passes none of its own."""

from __future__ import annotations

from collections.abc import Callable
from random import SystemRandom
from typing import Any, TypeVar

import trio

from storage.database import SystemClock

T = TypeVar("T")

__all__ = ["SystemClock", "SystemRandom", "in_thread"]


async def in_thread(function: Callable[..., T], /, *args: Any) -> T:
    """Call `function(*args)` in a thread and wait for its end, also when cancelled: nothing is left half-way."""
    return await trio.to_thread.run_sync(function, *args, abandon_on_cancel=False)
