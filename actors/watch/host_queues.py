"""HostQueues: when a host may be asked again, and when the next feed of it has its turn."""

from __future__ import annotations

import math
from datetime import datetime, timedelta

import trio
from attrs import define, field

__all__ = ["HostQueues"]

HOSTS_MAX = 10_000
"""So many hosts are remembered, those that were asked last."""
TOOK_S = 1.0
"""So long a host takes of which nothing is known."""
PACE_S_MIN = 0.01
SOON_S = 1.0
"""Who is put off waits at least so long."""


@define(eq=False)
class HostQueues:
    """What is known of hosts that were asked."""

    delay_s: float
    """So long a host is left alone after it was asked."""
    _asked: dict[str, tuple[float, float]] = field(init=False, factory=dict)
    """When each was asked last, and how long that took."""
    _turns: dict[str, datetime] = field(init=False, factory=dict)
    """The last turn that was given to a feed of a host for later."""

    def ready_at(self, host: str) -> float:
        """When it may be asked (trio's time)."""
        return self._asked.get(host, (-math.inf, 0.0))[0] + self.delay_s

    def note(self, host: str, *, began: float) -> None:
        """It was asked just now."""
        now = trio.current_time()
        self._asked.pop(host, None)
        self._asked[host] = now, now - began
        while len(self._asked) > HOSTS_MAX:
            self._asked.pop(next(iter(self._asked)))

    def later(self, host: str, *, ahead: int, now: datetime) -> datetime:
        """The turn of one more, behind the claimed feeds that wait and all that were given turns before."""
        pace_s = max(PACE_S_MIN, self.delay_s + self._asked.get(host, (0.0, TOOK_S))[1])
        first = now + timedelta(seconds=max(SOON_S, ahead * pace_s))
        turn = max(first, self._turns.get(host, first)) + timedelta(seconds=pace_s)
        self._turns[host] = turn
        return turn

    def rest(self, host: str) -> None:
        """Nobody waits for it any more."""
        self._turns.pop(host, None)
