"""Handler and JobContext: how jobs of a kind are run, and what a handler knows of its job."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, Unpack

from attrs import field, frozen
from sqlalchemy import Connection

from actors.jobs.new_jobs import JobTerms
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

    async def enqueue(self, kind: str, payload: Any, **how: Unpack[JobTerms]) -> int:
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

    async def enqueue(self, kind: str, payload: Any, **how: Unpack[JobTerms]) -> int:
        """Take in another durable job, as `service.enqueue` does, under the same correlation id unless one is given."""
        how.setdefault("correlation_id", self.correlation_id)
        return await self.reach.enqueue(kind, payload, **how)

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
