"""Which of the searches that wait for one source goes next, which have waited too long, and when is it worth looking again?

One queue per class, ordered by sequence number, and one heap of deadlines per class. The head of a queue is its oldest
ticket, so that only heads are looked at, whatever waits behind them: each event costs O(log n).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterator
from datetime import datetime, timedelta
from typing import Final, Generic, Protocol, TypeVar

from attrs import define, field

from cormorant.rules.priorities import AGEING_STEP_S, Priority, aged

__all__ = ["OpeningOf", "QueueTicket", "SourceQueue"]


class QueueTicket(Protocol):
    """One search at one source, as far as its queue is concerned."""

    @property
    def sequence(self) -> int:
        """Its number among all tickets; unique, and rising with submission."""
        ...

    @property
    def priority(self) -> Priority:
        """The class it was submitted with."""
        ...

    @property
    def submitted_at(self) -> datetime:
        """Since when it waits."""
        ...

    @property
    def deadline(self) -> datetime | None:
        """When its wait is over, counted from submission; None: never."""
        ...

    @property
    def is_live(self) -> bool:
        """Whether somebody still waits for it."""
        ...


T = TypeVar("T", bound=QueueTicket)

OpeningOf = Callable[[T, Priority], datetime | None]
"""When the source opens for a ticket that counts as this class by now. None: nobody knows."""

_AGEING_STEP: Final = timedelta(seconds=AGEING_STEP_S)
_INSTANT: Final = timedelta.resolution
_SPARE: Final = 64


@define(eq=False)
class SourceQueue(Generic[T]):
    """The tickets that wait for one source. Times are passed in.

    A ticket that is no longer live is dropped when it is met. It costs memory until then, at most as much as those that
    are live, if `cancel` is told of it.
    """

    _waiting: dict[int, T] = field(init=False, factory=dict)
    # Entries whose number is not in _waiting are left over and skipped.
    _orders: tuple[list[int], ...] = field(init=False, factory=lambda: tuple([] for _ in Priority))
    _deadlines: tuple[list[tuple[datetime, int]], ...] = field(init=False, factory=lambda: tuple([] for _ in Priority))
    _left_over: int = field(init=False, default=0)
    _holders: dict[Hashable, T] = field(init=False, factory=dict)
    _keys: dict[int, Hashable] = field(init=False, factory=dict)

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def entries(self) -> int:
        """How much is kept, what is left over included: what it costs in memory."""
        return sum(map(len, self._orders)) + sum(map(len, self._deadlines))

    def push(self, ticket: T, *, key: Hashable | None = None) -> bool:
        """Take a ticket in. False: another one with its key waits or runs, and this one was not taken."""
        if key is not None:
            holder = self._holders.get(key)
            if holder is not None and holder.is_live:
                return False
            if holder is not None:
                self.finished(holder)
            self._holders[key] = ticket
            self._keys[ticket.sequence] = key
        self._enter(ticket)
        return True

    def put_back(self, ticket: T) -> None:
        """Take back a ticket that was taken and could not go: to its old place, by its old number."""
        if ticket.is_live:
            self._enter(ticket)
        else:
            self.finished(ticket)

    def cancel(self, ticket: T) -> bool:
        """Forget a waiting ticket, in O(1). False: it does not wait here (any more)."""
        if self._waiting.pop(ticket.sequence, None) is None:
            return False
        self.finished(ticket)
        self._leave()
        return True

    def finished(self, ticket: T) -> None:
        """A ticket that was taken has ended: its key is free again."""
        key = self._keys.pop(ticket.sequence, None)
        if key is not None:
            del self._holders[key]

    def best(self, now: datetime, opening_of: OpeningOf[T]) -> tuple[Priority, T] | None:
        """The ticket that would be taken now and the class it counts as; None: nothing can go now.

        The most urgent class by age goes first, within it the lower number. A class that is closed holds up no other.
        """
        found: tuple[Priority, T] | None = None
        for head in self._heads():
            rank = aged(head.priority, (now - head.submitted_at).total_seconds())
            if found is None or rank < found[0] or (rank == found[0] and head.sequence < found[1].sequence):
                opens_at = opening_of(head, rank)
                if opens_at is not None and opens_at <= now:
                    found = (rank, head)
        return found

    def take(self, now: datetime, opening_of: OpeningOf[T]) -> T | None:
        """Take the best ticket out. Its key stays taken until `finished`."""
        found = self.best(now, opening_of)
        if found is None:
            return None
        ticket = found[1]
        heapq.heappop(self._orders[ticket.priority])
        del self._waiting[ticket.sequence]
        if ticket.deadline is not None:
            self._leave()
        return ticket

    def expired(self, now: datetime) -> list[T]:
        """Take out the tickets whose wait is over. At its very deadline a ticket may still go."""
        return [ticket for priority in Priority for ticket in self._due(priority, now)]

    def hopeless(self, opens_at: datetime, priority: Priority | None = None) -> list[T]:
        """Take out the tickets, of one class or all, whose wait ends before the source opens: they need not wait.

        `opens_at` must be the earliest time for any of them: that of the head, ageing included.
        """
        classes = Priority if priority is None else (priority,)
        return [ticket for each in classes for ticket in self._due(each, opens_at)]

    def head(self, priority: Priority) -> T | None:
        """The oldest live ticket that was submitted with this class."""
        order = self._orders[priority]
        while order:
            ticket = self._waiting.get(order[0])
            if ticket is not None and ticket.is_live:
                return ticket
            number = heapq.heappop(order)
            if ticket is not None:
                del self._waiting[number]
                self.finished(ticket)
                self._leave()
        return None

    def next_event(self, now: datetime, opening_of: OpeningOf[T]) -> datetime | None:
        """When to look again: a class opens, a head's class rises, or a wait ends. None: nothing happens by itself.

        What can go now does not count: `best` has it.
        """
        times = [opens_at for opens_at in map(self._next_deadline, Priority) if opens_at is not None]
        for head in self._heads():
            waited = now - head.submitted_at
            rank = aged(head.priority, waited.total_seconds())
            opens_at = opening_of(head, rank)
            if opens_at is not None and opens_at > now:
                times.append(opens_at)
            if rank is not Priority.INTERACTIVE:
                times.append(head.submitted_at + _AGEING_STEP * (max(0, waited // _AGEING_STEP) + 1))
        return min(times, default=None)

    def drain(self) -> list[T]:
        """Take out everything that still waits, by number: the service stops."""
        tickets = [ticket for _, ticket in sorted(self._waiting.items()) if ticket.is_live]
        for ticket in tickets:
            self.finished(ticket)
        self._waiting.clear()
        self._rebuild()
        return tickets

    def _enter(self, ticket: T) -> None:
        self._waiting[ticket.sequence] = ticket
        heapq.heappush(self._orders[ticket.priority], ticket.sequence)
        if ticket.deadline is not None:
            heapq.heappush(self._deadlines[ticket.priority], (ticket.deadline, ticket.sequence))

    def _heads(self) -> Iterator[T]:
        for priority in Priority:
            if self._orders[priority]:
                head = self.head(priority)
                if head is not None:
                    yield head

    def _due(self, priority: Priority, before: datetime) -> Iterator[T]:
        deadlines = self._deadlines[priority]
        while deadlines and deadlines[0][0] < before:
            ticket = self._waiting.pop(heapq.heappop(deadlines)[1], None)
            if ticket is not None:
                self.finished(ticket)
                self._leave()
                if ticket.is_live:
                    yield ticket

    def _next_deadline(self, priority: Priority) -> datetime | None:
        """The first instant at which a wait is over."""
        deadlines = self._deadlines[priority]
        while deadlines and deadlines[0][1] not in self._waiting:
            heapq.heappop(deadlines)
        return deadlines[0][0] + _INSTANT if deadlines else None

    def _leave(self) -> None:
        # Amortised: a rebuild costs as much as what was left over since the last one.
        self._left_over += 1
        if self._left_over > len(self._waiting) + _SPARE:
            self._rebuild()

    def _rebuild(self) -> None:
        self._left_over = 0
        for order, deadlines in zip(self._orders, self._deadlines, strict=True):
            order.clear()
            deadlines.clear()
        for ticket in self._waiting.values():
            self._orders[ticket.priority].append(ticket.sequence)
            if ticket.deadline is not None:
                self._deadlines[ticket.priority].append((ticket.deadline, ticket.sequence))
        for order, deadlines in zip(self._orders, self._deadlines, strict=True):
            heapq.heapify(order)
            heapq.heapify(deadlines)
