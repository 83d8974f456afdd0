"""ChildSpec, the state and scope of one child, ChildReport and ShutdownReport."""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, Protocol

import trio
from attrs import define, field, frozen

from cormorant.rules.errors import StartFailed, split_crash
from cormorant.rules.supervision import ChildState, ChildView, Ending, OnExhausted, Place, Restart

GRACE_S = 5.0
START_TIMEOUT_S = 30.0


class Runnable(Protocol):
    """What a child runs: it calls `task_status.started()` once it is up, and goes on until it is done.

    It may have three more methods, all plain: `placed(place)` tells it where in the tree it is; `stop()` asks it to end
    within its grace; `gone()` tells it that it will not be started again.
    """

    def __call__(self, *, task_status: trio.TaskStatus[Any]) -> Awaitable[Any]:
        """Run one incarnation."""
        ...


class Nested(ABC):
    """A child with children of its own: a supervisor."""

    stop_total_s: float
    report: ShutdownReport | None

    @abstractmethod
    def children(self) -> tuple[ChildView, ...]:
        """Every child with its state, in starting order."""


@frozen
class ChildSpec:
    """How to run, restart and stop one child."""

    name: str
    run: Runnable
    restart: Restart = field(default=Restart.PERMANENT, kw_only=True)
    grace_s: float = field(kw_only=True)
    start_timeout_s: float = field(default=START_TIMEOUT_S, kw_only=True)
    on_exhausted: OnExhausted = field(default=OnExhausted.ESCALATE, kw_only=True)

    @grace_s.default
    def _room_for_all_below(self) -> float:
        return self.run.stop_total_s if isinstance(self.run, Nested) else GRACE_S

    def __attrs_post_init__(self) -> None:
        run: object = self.run  # for those who do not check their types
        if not callable(run):
            kind = type(run).__name__
            raise TypeError(f"{self.name}: {kind} cannot be run; an actor is given as address.served_by({kind})")
        if self.grace_s < 0 or self.start_timeout_s <= 0:
            raise ValueError(f"{self.name}: grace_s must be at least 0 and start_timeout_s more than 0")
        below_s = self.run.stop_total_s if isinstance(self.run, Nested) else 0.0
        if self.grace_s < below_s:
            raise ValueError(
                f"{self.name}: grace_s={self.grace_s:g} is less than the stop_total_s={below_s:g} it must cover"
            )
        if inspect.iscoroutinefunction(getattr(self.run, "stop", None)):
            raise TypeError(f"{self.name}: stop() must be a plain function that asks and returns at once")


def stop_bound_s(children: Iterable[ChildSpec], *, added_s: float = 0.0) -> float:
    """How long a stop takes at most. Children added later stop together, then the listed ones one after the other.

    `added_s` is the longest grace that a child added later may have.
    """
    # Graces have at most a few decimals; 0.1 and 0.2 make 0.3.
    return round(added_s + sum(spec.grace_s for spec in children), 6)


@define(eq=False)
class Child:
    """One row of a supervisor's table, written only by the supervisor's loop and by the child's own host."""

    spec: ChildSpec
    dynamic: bool = False
    state: ChildState = ChildState.NEW
    alive: bool = False
    is_told: bool = True
    """Whether the end of the last incarnation was told by an event."""
    launches: int = 0
    launched_at: float = 0.0
    ended_at: float = 0.0
    ran_before_s: float = 0.0
    ending: Ending = Ending.RETURNED
    """How its last incarnation ended."""
    crash: Exception | None = None
    last_crash: Exception | None = None
    crashes_in_a_row: int = 0
    restart_times: tuple[float, ...] = ()
    leader: Child | None = None
    """The sibling whose restart will bring this one back too."""
    revive_at: float | None = None
    scope: trio.CancelScope = field(factory=trio.CancelScope)
    asked_to_stop: bool = False
    stop_began_at: float = 0.0
    cancel_at: float = math.inf

    @property
    def name(self) -> str:
        """The name its supervisor knows it by."""
        return self.spec.name

    @property
    def ran_s(self) -> float:
        """How long its last incarnation ran."""
        return self.ended_at - self.launched_at

    def take_place(self, place: Place) -> None:
        """Let it know where in the tree it is."""
        placed = getattr(self.spec.run, "placed", None)
        if placed is not None:
            placed(place)

    def launch(
        self, nursery: trio.Nursery, acknowledge: Callable[[Child], None], ended: Callable[[Child], None]
    ) -> None:
        """Begin a new incarnation in a scope of its own, which only the supervisor cancels."""
        self.scope = trio.CancelScope(shield=True)
        self.state = ChildState.STARTING
        self.alive = True
        self.is_told = False
        self.launches += 1
        self.launched_at = trio.current_time()
        self.crash = self.leader = self.revive_at = None
        self.asked_to_stop = False
        self.cancel_at = math.inf
        nursery.start_soon(self._host, acknowledge, ended, name=self.name)

    async def _host(self, acknowledge: Callable[[Child], None], ended: Callable[[Child], None]) -> None:
        try:
            with self.scope:
                try:
                    await self.spec.run(task_status=_Status(self, acknowledge))
                except BaseException as error:
                    crash, rest = split_crash(error)
                    self.crash = self.crash or crash
                    if rest is not None:
                        raise rest from None
        finally:
            ended(self)

    def take_down_end(self) -> None:
        """Note that the incarnation is over."""
        self.alive = False
        self.ended_at = trio.current_time()
        self.ran_before_s += self.ran_s
        if self.state is ChildState.STARTING and self.crash is None:
            why = (
                f"it was not up within {self.spec.start_timeout_s:g} s"
                if self.scope.cancel_called
                else "it returned first"
            )
            self.crash = StartFailed(self.name, f"{why}, without calling task_status.started()")
        self.last_crash = self.crash or self.last_crash
        self.ending = self._how_it_ended()

    def _how_it_ended(self) -> Ending:
        if self.crash is not None:
            return Ending.CRASHED
        if self.scope.cancelled_caught:
            return Ending.OVERRAN if self.asked_to_stop else Ending.CANCELLED
        return Ending.STOPPED if self.state is ChildState.STOPPING else Ending.RETURNED

    def begin_stop(self) -> None:
        """Ask it to stop if it can be asked and has a grace, else cancel it. One that is not up has nothing to finish."""
        if self.state is ChildState.STOPPING:  # asked before, by a restart that this stop has interrupted
            return
        stop = getattr(self.spec.run, "stop", None)
        is_up = self.state is ChildState.RUNNING
        self.state = ChildState.STOPPING
        self.stop_began_at = trio.current_time()
        if stop is None or not is_up or not self.spec.grace_s:
            self.scope.cancel()
            return
        self.asked_to_stop = True
        self.cancel_at = self.stop_began_at + self.spec.grace_s
        try:
            stop()
        except Exception as error:
            self.crash = error
            self.scope.cancel()

    def report_removed(self) -> None:
        """Let it know that there will be no other incarnation, so that nobody waits for one."""
        gone = getattr(self.spec.run, "gone", None)
        if gone is not None:
            gone()

    def view(self) -> ChildView:
        """What is shown of it."""
        below = self.spec.run.children() if isinstance(self.spec.run, Nested) else ()
        return ChildView(self.name, self.state, max(0, self.launches - 1), self.last_crash, below)

    def report(self) -> ChildReport:
        """How it stopped."""
        below = self.spec.run.report if isinstance(self.spec.run, Nested) else None
        return ChildReport(
            name=self.name,
            ending=self.ending,
            took_s=max(0.0, self.ended_at - self.stop_began_at),
            error=self.crash,
            children=() if below is None else below.children,
        )


class _Status:
    """The `task_status` of one incarnation."""

    def __init__(self, child: Child, acknowledge: Callable[[Child], None]) -> None:
        self._child = child
        self._acknowledge = acknowledge

    def started(self, value: object = None) -> None:  # noqa: ARG002 - trio's signature; nobody reads the value here
        self._acknowledge(self._child)


_FORCED = frozenset({Ending.OVERRAN, Ending.CRASHED})


@frozen(kw_only=True)
class ChildReport:
    """How one child stopped."""

    name: str
    ending: Ending
    took_s: float
    error: BaseException | None = None
    children: tuple[ChildReport, ...] = ()

    def forced(self, above: str = "") -> Iterator[str]:
        """The names, with the path to them, of what did not stop as it should."""
        path = f"{above}{self.name}"
        if self.ending in _FORCED:
            yield path
        for child in self.children:
            yield from child.forced(f"{path}/")


@frozen(kw_only=True)
class ShutdownReport:
    """How a supervisor stopped, in the order its children ended."""

    took_s: float
    children: tuple[ChildReport, ...] = ()

    @property
    def forced(self) -> tuple[str, ...]:
        """What had to be cancelled past its grace, or crashed while stopping."""
        return tuple(name for child in self.children for name in child.forced())

    @property
    def clean(self) -> bool:
        """Whether everything stopped by itself, in time."""
        return not self.forced
