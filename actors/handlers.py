"""What is a handler, what does it get, and what came of one run of it?"""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from types import coroutine
from typing import Any

from attrs import frozen

from cormorant.rules.errors import HandlerMisbehaved

Run = Callable[["JobContext"], Awaitable[object]]
Stopwatch = Callable[[], float]


@frozen(kw_only=True)
class JobContext:
    """What a handler knows of its job. `attempt` counts from 1; `job_id` is None for work that need not last."""

    job_id: int | None
    kind: str
    payload: Any
    attempt: int
    max_attempts: int
    correlation_id: str | None


@frozen
class Handler:
    """How to run jobs of one kind. What is None follows the settings."""

    run: Run
    timeout_s: float | None = None
    max_attempts: int | None = None


def as_handlers(given: Mapping[str, Run | Handler]) -> dict[str, Handler]:
    """Handlers by kind; a plain async function is one with the usual settings."""
    handlers = {kind: each if isinstance(each, Handler) else Handler(each) for kind, each in given.items()}
    for kind, handler in handlers.items():
        if not callable(handler.run):
            raise HandlerMisbehaved(f"the handler of {kind} is {type(handler.run).__name__}, not an async function")
    return handlers


async def run_handler(
    handler: Handler, context: JobContext, *, stopwatch: Stopwatch, blocked: Callable[[float], None], block_s: float
) -> object:
    """Run a handler to its end and return what it returned. `blocked` is told of each step that held up the loop."""
    began = stopwatch()
    awaitable = handler.run(context)
    if not inspect.isawaitable(awaitable):
        raise HandlerMisbehaved(f"the handler of {context.kind} is not async: make it `async def`")
    if not isinstance(awaitable, Coroutine):
        return await awaitable
    began_s = stopwatch() - began
    if began_s > block_s:
        blocked(began_s)
    returned = await _timed(awaitable, stopwatch, blocked, block_s)
    if inspect.isawaitable(returned):
        if isinstance(returned, Coroutine):
            returned.close()
        raise HandlerMisbehaved(
            f"the handler of {context.kind} returned a call that it did not await: the work was not done"
        )
    return returned


@coroutine
def _timed(
    work: Coroutine[Any, Any, Any], stopwatch: Stopwatch, blocked: Callable[[float], None], block_s: float
) -> Generator[Any, Any, Any]:
    """Drive a coroutine and time each step between two awaits: in one step nothing else in this process runs."""
    send: Any = None
    error: BaseException | None = None
    while True:
        began = stopwatch()
        try:
            trap = work.send(send) if error is None else work.throw(error)
        except StopIteration as stop:
            return stop.value
        finally:
            took_s = stopwatch() - began
            if took_s > block_s:
                blocked(took_s)
        error = send = None
        try:
            send = yield trap
        except BaseException as thrown:  # noqa: BLE001 - whatever trio throws in, above all cancellation, is the handler's
            error = thrown


def payload_of(text: str) -> Any:
    """The payload of a job as it was enqueued."""
    return json.loads(text)
