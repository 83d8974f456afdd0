"""Who is to be started again, and when? Back-off is a deadline for each child, never a sleep."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import count

import trio
from attrs import define, field

from cormorant.rules.supervision import ChildState, OnExhausted
from supervisors.child import Child


@define(eq=False)
class RestartQueue:
    """The children that wait out their back-off, and a clock that stands still meanwhile."""

    _due: list[tuple[float, int, Child]] = field(init=False, factory=list)
    _order: Iterator[int] = field(init=False, factory=count)
    _waiting: set[Child] = field(init=False, factory=set)
    _stood_still_s: float = field(init=False, default=0.0)
    _standing_since: float = field(init=False, default=0.0)

    def plan(self, child: Child, delay_s: float) -> None:
        """Start a child again after a delay."""
        now = trio.current_time()
        if child.spec.on_exhausted is OnExhausted.ESCALATE:  # those that are set aside are counted by themselves
            if not self._waiting:
                self._standing_since = now
            self._waiting.add(child)
        child.state = ChildState.BACKING_OFF
        child.revive_at = now + delay_s
        heapq.heappush(self._due, (child.revive_at, next(self._order), child))

    def forget(self, child: Child) -> None:
        """Nothing is planned for a child any more."""
        child.revive_at = child.leader = None
        if child in self._waiting:
            self._waiting.remove(child)
            if not self._waiting:
                self._stood_still_s += trio.current_time() - self._standing_since

    def next(self) -> Child | None:
        """The child that is due first; its `revive_at` says when."""
        while self._due:
            revive_at, _, child = self._due[0]
            if child.revive_at == revive_at:
                return child
            heapq.heappop(self._due)
        return None

    def running_time(self) -> float:
        """Time that stands still while a child waits out its back-off."""
        now = self._standing_since if self._waiting else trio.current_time()
        return now - self._stood_still_s
