"""JobQueue: the in-memory queue with a ready heap and a delayed heap.

It holds durable jobs that this process has claimed, and delayed work that need not survive a restart.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from attrs import define, field, frozen

from cormorant.rules.errors import QueueFull, QueueShutDown, UnknownLabel
from cormorant.rules.jobs.events import QueueDeep
from cormorant.rules.ports import Emit, ignore

J = TypeVar("J")

PRIORITIES: Mapping[str, int] = {"high": 0, "normal": 5, "low": 10}


def check_terms(priorities: Mapping[str, int], label: str, delay_s: float) -> None:
    """Raise `UnknownLabel` or `ValueError` unless a job can have this priority and delay."""
    if label not in priorities:
        raise UnknownLabel(label, known=tuple(priorities))
    if not 0 <= delay_s < math.inf:
        raise ValueError(f"a delay of {delay_s!r} s is not possible: give 0 or more")


@frozen(order=False)
class QueueItem(Generic[J]):
    """A job with its place in the queue. Times are monotonic."""

    job: J
    priority_label: str
    priority_value: int
    enqueued_at: float
    ready_at: float
    seq: int


@frozen(kw_only=True)
class QueueSnapshot:
    """How full the queue is."""

    depth: int
    ready: int
    scheduled: int
    shutdown: bool


@define(eq=False)
class JobQueue(Generic[J]):
    """Two heaps: an item that is due later never stands before one that is ready, whatever its priority.

    Times are passed in. Order among the ready: priority, then when they became ready, then the order they came in.
    """

    priorities: Mapping[str, int] = PRIORITIES
    max_in_memory: int = 5_000
    warn_depth: int = 1_000
    emit: Emit = ignore
    _ready: list[tuple[int, float, int, QueueItem[J]]] = field(init=False, factory=list)
    _scheduled: list[tuple[float, int, QueueItem[J]]] = field(init=False, factory=list)
    _seq: int = field(init=False, default=0)
    _shut_down: bool = field(init=False, default=False)
    _warned: bool = field(init=False, default=False)

    def put(self, job: J, *, label: str, now: float, delay_s: float = 0.0) -> QueueItem[J]:
        """Add a job, ready at once or after a delay."""
        check_terms(self.priorities, label, delay_s)
        if len(self) >= self.max_in_memory and not self._shut_down:
            raise QueueFull(self.max_in_memory)
        return self._put(job, label, self.priorities[label], now=now, ready_at=now + delay_s)

    def put_claimed(self, job: J, *, priority: int, now: float) -> QueueItem[J]:
        """Add a durable job that was claimed with its priority. There is always room: it is ours, and claims are bounded."""
        return self._put(job, "", priority, now=now, ready_at=now)

    def _put(self, job: J, label: str, value: int, *, now: float, ready_at: float) -> QueueItem[J]:
        if self._shut_down:
            raise QueueShutDown
        self._seq += 1
        item = QueueItem(job, label, value, now, ready_at, self._seq)
        if ready_at <= now:
            heapq.heappush(self._ready, (value, ready_at, item.seq, item))
        else:
            heapq.heappush(self._scheduled, (ready_at, item.seq, item))
        self._warn_if_deep()
        return item

    def take(self, *, now: float) -> QueueItem[J] | None:
        """The most urgent ready item, or None."""
        self.promote(now)
        if not self._ready:
            return None
        item = heapq.heappop(self._ready)[-1]
        self._note_relief()
        return item

    @property
    def has_ready(self) -> bool:
        """Whether there is something to take."""
        return bool(self._ready)

    def next_ready_at(self) -> float:
        """When the next delayed item becomes ready; infinity when none waits."""
        return self._scheduled[0][0] if self._scheduled else math.inf

    def shut_down(self) -> None:
        """Take nothing more in; what is there can still be taken out."""
        self._shut_down = True

    def jobs(self) -> list[J]:
        """What is in it, the ready first, in order."""
        # A sequence number in each entry decides before the items themselves would be compared.
        return [entry[-1].job for entry in sorted(self._ready)] + [entry[-1].job for entry in sorted(self._scheduled)]

    def purge(self, which: Callable[[J], bool] = lambda _: True) -> list[J]:
        """Take jobs out of both heaps, all or those chosen, and leave the others in their places. Returns what was taken."""
        purged = [job for job in self.jobs() if which(job)]
        if purged:
            self._ready = [entry for entry in self._ready if not which(entry[-1].job)]
            self._scheduled = [entry for entry in self._scheduled if not which(entry[-1].job)]
            heapq.heapify(self._ready)
            heapq.heapify(self._scheduled)
            self._note_relief()
        return purged

    def snapshot(self) -> QueueSnapshot:
        """How full it is."""
        return QueueSnapshot(
            depth=len(self), ready=len(self._ready), scheduled=len(self._scheduled), shutdown=self._shut_down
        )

    def __len__(self) -> int:
        return len(self._ready) + len(self._scheduled)

    def promote(self, now: float) -> int:
        """Move what has become ready to the ready heap. Returns how many are ready."""
        while self._scheduled and self._scheduled[0][0] <= now:
            ready_at, seq, item = heapq.heappop(self._scheduled)
            heapq.heappush(self._ready, (item.priority_value, ready_at, seq, item))
        return len(self._ready)

    def _note_relief(self) -> None:
        if len(self) <= self.warn_depth // 2:
            self._warned = False

    def _warn_if_deep(self) -> None:
        if len(self) >= self.warn_depth and not self._warned:
            self._warned = True
            self.emit(QueueDeep(depth=len(self), warn_depth=self.warn_depth))
