"""Supervisor: the public class; entering, leaving, nesting."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Self

import trio

from actors.actor import Reply
from cormorant.rules.errors import StartFailed, SupervisionError
from cormorant.rules.ports import Chance, Emit, ignore
from cormorant.rules.supervision import ChildView, Place, Restart, Strategy
from supervisors.child import GRACE_S, Child, ChildReport, ChildSpec, Nested, ShutdownReport, stop_bound_s
from supervisors.loop import Policy, StartChild, StopChild, SupervisorLoop

ROUNDING_S = 1e-6
"""Sums of seconds are not exact; nobody plans in millionths."""


class Supervisor(Nested):
    """Starts its children in order, restarts them as OTP would, and stops them in reverse order, whatever happens.

    `async with Supervisor([...])` runs it around a body; given to a `ChildSpec` it is a child of another supervisor.
    Cancellation from outside becomes an ordered stop within `stop_total_s`; left out, that is the bound that follows from
    the graces. Children that are added later may have a grace of `added_s`.
    """

    def __init__(  # noqa: PLR0913 - all but the children have a default and are named
        self,
        children: Sequence[ChildSpec] = (),
        *,
        name: str = "supervisor",
        strategy: Strategy = Strategy.ONE_FOR_ONE,
        intensity: int = 3,
        period_s: float = 5.0,
        stop_total_s: float | None = None,
        added_s: float = GRACE_S,
        emit: Emit = ignore,
        chance: Chance | None = None,
    ) -> None:
        self.graces_s = stop_bound_s(children)
        self.stop_total_s = stop_bound_s(children, added_s=added_s) if stop_total_s is None else stop_total_s
        self._policy = Policy(
            name=name,
            strategy=strategy,
            intensity=intensity,
            period_s=period_s,
            stop_total_s=self.stop_total_s,
            emit=emit,
            chance=chance or random.Random(),  # noqa: S311 - spreads restarts, guards nothing
        )
        self._check(children)
        self._table = {spec.name: Child(spec) for spec in children}
        self._listed = len(self._table)
        self.placed(Place(self))
        self._loop: SupervisorLoop | None = None
        self._over = trio.Event()
        self._owner = _Owner(self)
        self.report: ShutdownReport | None = None
        """How the last run ended; None while it runs."""

    def _check(self, children: Sequence[ChildSpec]) -> None:
        policy = self._policy
        names = [spec.name for spec in children]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"{policy.name}: two children are called {', '.join(twice)}")
        if policy.intensity < 0 or policy.period_s <= 0:
            raise ValueError(f"{policy.name}: intensity must be at least 0 and period_s more than 0")
        if self.graces_s > self.stop_total_s + ROUNDING_S:
            raise ValueError(
                f"{policy.name}: the graces of its children add up to {self.graces_s:g} s, "
                f"more than its stop_total_s={self.stop_total_s:g}"
            )

    def children(self) -> tuple[ChildView, ...]:
        """Every child with its state, restarts and last crash, in starting order."""
        return tuple(child.view() for child in self._table.values())

    @property
    def specs(self) -> tuple[ChildSpec, ...]:
        """Every child as it was given, in starting order."""
        return tuple(child.spec for child in self._table.values())

    def child(self, name: str) -> ChildView | None:
        """A child by name."""
        child = self._table.get(name)
        return None if child is None else child.view()

    def placed(self, place: Place) -> None:
        """Take down where in a larger tree it is, and let its children know."""
        self._place = place
        for number, child in enumerate(self._table.values()):
            child.take_place(place.below(number))

    async def start_child(self, spec: ChildSpec) -> None:
        """Add a child and wait until it is up. Raises `StartFailed`, and forgets it, when it does not come up."""
        if self.graces_s + spec.grace_s > self.stop_total_s + ROUNDING_S:
            room_s = self.stop_total_s - self.graces_s
            raise ValueError(
                f"{spec.name}: grace_s={spec.grace_s:g} is more than the {room_s:g} s left of stop_total_s"
            )
        reply: Reply[None] = Reply()
        self._running(spec.name).command(StartChild(spec, self._place.below(self._listed), reply))
        await reply.wait()

    async def stop_child(self, name: str) -> ChildReport:
        """Stop a child, forget it, and say how it ended."""
        reply: Reply[ChildReport] = Reply()
        self._running(name).command(StopChild(name, reply))
        return await reply.wait()

    @property
    def failure(self) -> BaseException | None:
        """What ended the tree around a body, if it did not end by being stopped."""
        return self._owner.failure

    def on_failure(self, told: Callable[[BaseException], None]) -> None:
        """Call `told` as soon as the tree around a body cannot be kept running, before it is stopped."""
        self._owner.on_failure = told

    def stop(self) -> Stopping:
        """Ask for an ordered stop at once; await what this returns for the report."""
        self._ask_to_stop()
        return Stopping(self)

    def _ask_to_stop(self) -> None:
        if self._loop is not None:
            self._loop.ask_to_stop()

    def gone(self) -> None:
        """There will be no other run: tell all below, so that nobody waits for them."""
        for child in self._table.values():
            child.report_removed()

    def _running(self, child: str) -> SupervisorLoop:
        if self._loop is None:
            raise StartFailed(child, f"{self._policy.name} is not running")
        return self._loop

    async def __call__(self, *, task_status: trio.TaskStatus[Supervisor] = trio.TASK_STATUS_IGNORED) -> None:
        """Run once, until stopped, cancelled or out of restarts."""
        self._prepare()
        failure: SupervisionError | None = None
        async with trio.open_nursery() as nursery:
            loop = self._loop = SupervisorLoop(self._policy, self._table, nursery)
            try:
                await loop.start_all()
                task_status.started(self)
                await loop.serve()
            except SupervisionError as error:
                failure = error
                self._owner.fail(error)
            finally:
                # Invariant: however the loop ends, the children are stopped in order. Bounded: `stop_all` cancels what
                # is left after stop_total_s.
                with trio.CancelScope(shield=True):
                    try:
                        self.report = await loop.stop_all()
                    finally:
                        loop.cancel_all()
                        self._loop = None
                        self._over.set()
        if failure is not None:
            raise failure

    def _prepare(self) -> None:
        """A fresh table, as the first time, with the children that were added since and are to last."""
        self._over = trio.Event()
        self.report = None
        for child in list(self._table.values()):
            if child.dynamic and child.spec.restart is Restart.TEMPORARY:
                self._table.pop(child.name).report_removed()
        self._table = {child.name: Child(child.spec, dynamic=child.dynamic) for child in self._table.values()}

    async def __aenter__(self) -> Self:
        await self._owner.enter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return await self._owner.leave(error)


class Stopping:
    """A stop that has been asked for. Awaiting it waits for the end and gives the report."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    def __await__(self) -> Generator[Any, Any, ShutdownReport]:
        return self._wait().__await__()

    async def _wait(self) -> ShutdownReport:
        if self._supervisor._loop is not None:
            await self._supervisor._over.wait()
        return self._supervisor.report or ShutdownReport(took_s=0.0)


class _Owner:
    """Runs a supervisor around the body of an `async with`.

    Not an async generator: leaving one early breaks scopes and nurseries.
    """

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._manager: AbstractAsyncContextManager[trio.Nursery] | None = None
        self._body = trio.CancelScope()
        self._up = trio.Event()
        self._down = trio.Event()
        self._leaving = False
        self.failure: BaseException | None = None
        self.on_failure: Callable[[BaseException], None] = lambda error: None  # noqa: ARG005 - nobody listens

    async def enter(self) -> None:
        if self._manager is not None:
            raise RuntimeError("a supervisor is entered once: make another one")
        self._manager = trio.open_nursery()
        nursery = await self._manager.__aenter__()
        nursery.start_soon(self._run, name=self._supervisor._policy.name)
        error: BaseException | None = None
        try:
            await self._up.wait()
        except BaseException as interruption:
            error = interruption
        if error is not None or self.failure is not None:
            _raise_all([error, await self._end(), self.failure])
        self._body.__enter__()

    def started(self, value: object = None) -> None:  # noqa: ARG002 - trio's signature for a task status
        self._up.set()

    def fail(self, failure: BaseException) -> None:
        """The tree cannot be kept running: the body is cancelled while the tree stops."""
        if self._manager is not None and self.failure is None:
            self.failure = failure
            self.on_failure(failure)
            self._body.cancel()

    async def _run(self) -> None:
        # The tree outlives the body and ends when the body has: `_end` asks it to stop, bounded by stop_total_s.
        with trio.CancelScope(shield=True):
            try:
                if not self._leaving:  # cancelled before the first step: there is nothing to end
                    await self._supervisor(task_status=self)
            except BaseException as failure:  # out of restarts, or Ctrl-C inside a child; raised again by `leave`
                self.fail(failure)
            finally:
                self._supervisor.gone()
                self._up.set()
                self._down.set()

    async def _end(self) -> BaseException | None:
        """Stop the tree and wait for it, also through Ctrl-C, which is returned."""
        assert self._manager is not None
        interruption: BaseException | None = None
        self._leaving = True
        self._supervisor._ask_to_stop()
        while not self._down.is_set():
            try:
                with trio.CancelScope(shield=True):  # bounded by stop_total_s
                    await self._down.wait()
            except KeyboardInterrupt as pressed:
                interruption = pressed
        await self._manager.__aexit__(None, None, None)
        return interruption

    async def leave(self, error: BaseException | None) -> bool:
        """End the tree. The body's error leaves as it is; so does the tree's; both make a group."""
        remains = self._leave_body(error)
        interruption = await self._end()
        if remains is error and interruption is None and self.failure is None:
            return error is None
        _raise_all([remains, interruption, self.failure])
        return True

    def _leave_body(self, error: BaseException | None) -> BaseException | None:
        """What is left of the body's error when our own cancellation of the body is taken out."""
        try:
            swallowed = self._body.__exit__(
                type(error) if error else None, error, error.__traceback__ if error else None
            )
        except BaseException as rest:
            return rest
        return None if swallowed else error


def _raise_all(errors: Sequence[BaseException | None]) -> None:
    """Raise one error as itself, several as a group. Beside an error, being cancelled is no news."""
    found = [error for error in errors if error is not None]
    telling = [error for error in found if not _is_cancellation(error)] or found[:1]
    if len(telling) == 1:
        raise telling[0]
    if telling:
        raise BaseExceptionGroup("the body and its supervisor failed", telling)


def _is_cancellation(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(_is_cancellation(inner) for inner in error.exceptions)
    return isinstance(error, trio.Cancelled)
