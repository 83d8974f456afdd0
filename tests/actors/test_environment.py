"""What the environment gives by default."""

from __future__ import annotations

import threading

import trio
import trio.testing

from actors.environment import in_thread
from tests.bounds import WAIT_S


async def test_a_function_in_a_thread_is_waited_for_also_when_its_caller_is_cancelled() -> None:
    begun, may_end, scope, order = trio.Event(), threading.Event(), trio.CancelScope(), list[str]()

    def work() -> None:
        trio.from_thread.run_sync(begun.set)
        may_end.wait(WAIT_S)

    async def call() -> None:
        with scope:
            await in_thread(work)
        order.append("returned")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(call)
        await begun.wait()
        scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        order.append("may end")
        may_end.set()

    assert order == ["may end", "returned"]
