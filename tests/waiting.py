"""Waiting in tests on the real clock: until a condition holds, or until work is at a known point and can be cancelled there."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

import trio

from tests.bounds import WAIT_S

_LOOK_S = 0.01


async def until(condition: Callable[[], bool]) -> None:
    """Return when `condition` holds. Raises `trio.TooSlowError` after `WAIT_S`."""
    with trio.fail_after(WAIT_S):
        while not condition():
            await trio.sleep(_LOOK_S)


def wait_until(condition: Callable[[], bool]) -> None:
    """Block the thread until `condition` holds, whatever clock trio has. Fails after `WAIT_S`."""
    give_up_at = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < give_up_at, "it did not come to pass"
        time.sleep(_LOOK_S)


async def until_deadline_in(seconds: float) -> None:
    """Return when the next deadline of this trio run is exactly `seconds` away, on a mock clock that stands still.

    A task that waits for a thread or a process may not have entered its time-out yet, although all tasks are blocked.
    """
    give_up_at = time.monotonic() + WAIT_S
    while trio.lowlevel.current_statistics().seconds_to_next_deadline != seconds:
        assert time.monotonic() < give_up_at, f"nothing waits for {seconds} s"
        await trio.to_thread.run_sync(time.sleep, _LOOK_S)


async def is_cancelled_when(condition: Callable[[], bool], work: Callable[[], Awaitable[object]]) -> bool:
    """Run `work` and cancel it as soon as `condition` holds. False: it had ended before."""
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:

            async def cancel() -> None:
                await until(condition)
                scope.cancel()

            nursery.start_soon(cancel)
            await work()
            nursery.cancel_scope.cancel()
    return scope.cancelled_caught
