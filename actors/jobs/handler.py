"""Handler, JobContext and running one handler with step timing."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from types import coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from attrs import field, frozen
from sqlalchemy import Connection

from cormorant.rules.errors import HandlerMisbehaved
from storage.jobs import jobs

Run = Callable[["JobContext"], Awaitable[object]]
P = ParamSpec("P")
T = TypeVar("T")


class JobServices(Protocol):
    """How handlers get at the database, also while the service starts or stops around them."""

    async def transaction(
        self, function: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a plain function of a connection in one transaction."""
        ...

    async def enqueue(self, kind: str, payload: Any, **how: Any) -> int:
        """Take in a durable job and return its id."""
        ...


@frozen(kw_only=True)
class JobContext:
    """What a handler knows of its job, and what it can do. `attempt` counts from 1.

    `job_id` is None for work that need not last.
    """

    job_id: int | None
    kind: str
    payload: Any
    attempt: int
    max_attempts: int
    correlation_id: str | None
    reach: JobServices = field(repr=False)
    owner: str = field(default="", repr=False)
    token: int = field(default=0, repr=False)

    async def transaction(
        self, function: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a plain function of a connection in one transaction, if the job is still ours; otherwise `LeaseLost`.

        The function may be run again, so it must do nothing else.
        """
        if self.job_id is None:
            return await self.reach.transaction(function, *args, **kwargs)
        return await self.reach.transaction(self._while_ours, lambda connection: function(connection, *args, **kwargs))

    async def enqueue(self, kind: str, payload: Any, **how: Any) -> int:
        """Take in another durable job, as `service.enqueue` does, under the same correlation id unless one is given."""
        return await self.reach.enqueue(kind, payload, **{"correlation_id": self.correlation_id} | how)

    def _while_ours(self, connection: Connection, function: Callable[[Connection], T]) -> T:
        assert self.job_id is not None
        jobs.check_ours(connection, self.job_id, owner=self.owner, token=self.token)
        return function(connection)


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


class HandlerMonitor(Protocol):
    """Watches the steps of a handler."""

    @property
    def block_s(self) -> float:
        """The longest time that a step may hold up the loop."""
        ...

    def stopwatch(self) -> float:
        """Seconds of real time."""
        ...

    def waits(self) -> None:
        """The handler waits for the first time."""
        ...

    def blocked(self, for_s: float) -> None:
        """A step held up the loop for longer than `block_s`."""
        ...


async def run_handler(handler: Handler, context: JobContext, watch: HandlerMonitor) -> object:
    """Run a handler to its end and return what it returned."""
    began = watch.stopwatch()
    awaitable = handler.run(context)
    if not isinstance(awaitable, Coroutine):
        if not inspect.isawaitable(awaitable):
            raise HandlerMisbehaved(f"the handler of {context.kind} is not async: make it `async def`")
        watch.waits()
        return await awaitable
    returned = await _timed(awaitable, watch, began)
    if returned is not None and inspect.isawaitable(returned):
        if isinstance(returned, Coroutine):
            returned.close()
        raise HandlerMisbehaved(
            f"the handler of {context.kind} returned a call that it did not await: the work was not done"
        )
    return returned


@coroutine
def _timed(work: Coroutine[Any, Any, Any], watch: HandlerMonitor, began: float) -> Generator[Any, Any, Any]:
    """Drive a coroutine and time each step between two awaits: in one step nothing else in this process runs."""
    stopwatch = watch.stopwatch
    send: Any = None
    error: BaseException | None = None
    has_waited = False
    while True:
        try:
            trap = work.send(send) if error is None else work.throw(error)
        except StopIteration as stop:
            return stop.value
        finally:
            took_s = stopwatch() - began
            if took_s > watch.block_s:
                watch.blocked(took_s)
        if not has_waited:
            has_waited = True
            watch.waits()
        error = send = None
        try:
            send = yield trap
        except BaseException as thrown:  # noqa: BLE001 - whatever trio throws in, above all cancellation, is the handler's
            error = thrown
        began = stopwatch()


def payload_of(text: str) -> Any:
    """The payload of a job as it was enqueued."""
    return json.loads(text)
