"""Periodic, WakeUp and ClockWatch: how actors sleep until something is due."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

import trio
from attrs import define, field, frozen

from actors.actor import Actor, Address, Recheck
from actors.environment import Environment
from cormorant.rules.errors import CommitUnknown, StorageUnavailable
from cormorant.rules.events import ClockStepped, TickCutOff
from cormorant.rules.ports import Clock, SteppedClock

M = TypeVar("M")

AWAY_S = 1.0
"""The shortest time to the next tick after one that the database or its scope has ended."""
LOOK_S = 10.0
STEP_S = 1.0
"""A smaller difference between the clocks is drift."""


@define(eq=False, kw_only=True)
class Periodic(Actor[M]):
    """Runs one tick at a time: at its start, when the next thing is due, and after a `Recheck`.

    Every tick runs in a cancel scope. A database that is away ends a tick; the next one does what is due then.
    """

    environment: Environment = field(kw_only=False)
    interval_s: float = 1.0
    """The shortest time from the begin of a tick to the begin of the next."""
    budget_s: float = 30.0
    """For how long a tick begins anything."""
    item_s: float = 30.0
    """How long that which a tick has begun may take after the budget. Then its scope ends the tick."""
    grace_s: float = 0.0
    """How long a tick that runs may go on when the service stops. Then it is cancelled."""
    _began_at: float = field(init=False, default=-math.inf)
    _began_wall: datetime = field(init=False, default=datetime.min.replace(tzinfo=UTC))
    _scope: trio.CancelScope | None = field(init=False, default=None)
    """The scope of the tick that runs."""
    _ended: trio.Event | None = field(init=False, default=None)
    _follows_at: float = field(init=False, default=math.inf)
    """When another tick is to follow the one that runs, because a message asked for it."""

    @property
    def channels(self) -> Sequence[str]:
        """A commit that announces one of these channels sends a `Recheck`."""
        return ()

    @property
    def due_at(self) -> float:
        """A tick that runs is now."""
        return self.wake_at if self._scope is None else trio.current_time()

    @property
    def is_in_budget(self) -> bool:
        """Whether the tick that runs may begin something."""
        return trio.current_time() < self._began_at + self.budget_s

    async def begin(self) -> None:
        """Begin with a tick."""
        self.wake_at = trio.current_time()
        for channel in self.channels:
            await self.nursery.start(self.environment.database.listen, channel, self._on_change)

    def _on_change(self) -> None:
        address: Address[Any] = self.address  # every `M` has `Recheck`
        address.tell_once(Recheck())

    async def handle(self, message: M) -> None:  # noqa: ARG002 - `Recheck`; who takes others has a method of its own
        """Look again at what is due."""
        self.tick_soon()

    @abstractmethod
    async def tick(self) -> float | None:
        """Do what is due. Returns the seconds until the next thing is due, which the interval may put off.

        None: nothing is due before a message comes.
        """

    def seconds_until(self, due: datetime | None) -> float | None:
        """What `tick` returns for the time at which the next thing is due."""
        return None if due is None else max(0.0, (due - self.environment.now()).total_seconds())

    def tick_now(self) -> None:
        """Start a tick at once. While one runs, another follows it."""
        self._tick_at(trio.current_time())

    def tick_soon(self) -> None:
        """Start a tick as soon as the interval has passed by one of the clocks. After a suspend it has, by the wall clock."""
        by_wall_s = (self.environment.now() - self._began_wall).total_seconds()
        passed_s = max(trio.current_time() - self._began_at, by_wall_s)
        self._tick_at(trio.current_time() + max(0.0, self.interval_s - passed_s))

    def _tick_at(self, time: float) -> None:
        if self._scope is None:
            self.wake_at = min(self.wake_at, time)
        else:
            self._follows_at = min(self._follows_at, time)

    async def wake(self) -> None:
        """Start a tick. There is no other: the next time is set only when it has ended."""
        self.start_tick(self.nursery)

    def start_tick(self, nursery: trio.Nursery) -> None:
        """Start a tick in a nursery."""
        self.wake_at, self._follows_at = math.inf, math.inf
        self._began_at, self._began_wall = trio.current_time(), self.environment.now()
        self._ended = trio.Event()
        self._scope = trio.CancelScope(deadline=self._began_at + self.budget_s + self.item_s)
        nursery.start_soon(self._tick, self._ended, self._scope)

    async def end(self) -> None:
        """Let a tick that runs finish within the grace, then cancel it."""
        if self._ended is None:
            return
        with trio.move_on_after(self.grace_s):
            await self._ended.wait()
        if self._scope is not None:
            self._scope.cancel()
        await self._ended.wait()

    async def _tick(self, ended: trio.Event, scope: trio.CancelScope) -> None:
        due_s: float | None = AWAY_S
        try:
            with scope:
                due_s = await self.tick()
            if scope.cancelled_caught and trio.current_time() >= scope.deadline:
                self.environment.emit(TickCutOff(actor=self.address.name, after_s=trio.current_time() - self._began_at))
        except* (StorageUnavailable, CommitUnknown):
            pass  # what was claimed is released by a later tick
        finally:
            self._scope = None
            ended.set()
            now = trio.current_time()
            due_s = min(math.inf if due_s is None else due_s, self._poll_s)
            due_at = max(self._began_at + self.interval_s, now + due_s)
            self.wake_at = max(now, min(due_at, self._follows_at))

    @property
    def _poll_s(self) -> float:
        """The longest sleep: where a notification may get lost, the actor looks by itself."""
        may_miss = bool(self.channels) and self.environment.database.may_miss_changes
        return self.environment.settings.jobs.poll_s if may_miss else math.inf


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


@frozen(kw_only=True)
class ClockWatch:
    """Wakes the actors when the wall clock has moved against the one by which they sleep. A child without messages.

    Due times are wall time, and sleeping is monotonic: after a suspend, or when the clock is set, a sleeping actor would
    begin too late. It has no `stop`: cancelling it leaves nothing half done.
    """

    environment: Environment
    sleepers: Callable[[], Iterable[Address[Any]]]
    """The actors that sleep until something is due."""

    async def __call__(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Watch until cancelled."""
        clock = self.environment.clock
        task_status.started()
        while True:
            by_s = await (clock.wait_for_step() if isinstance(clock, SteppedClock) else _step_of(clock))
            self.environment.emit(ClockStepped(by_s=round(by_s, 3)))
            for address in self.sleepers():
                address.tell_once(Recheck())


async def _step_of(clock: Clock) -> float:
    """Compare the clocks until they have moved apart by a step. Returns by how much."""
    before_s = _difference_s(clock)
    while True:
        await trio.sleep(LOOK_S)
        by_s = _difference_s(clock) - before_s
        if abs(by_s) > STEP_S:
            return by_s
        before_s += by_s


def _difference_s(clock: Clock) -> float:
    return clock.now().timestamp() - trio.current_time()
