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
_CLASSES: Final = tuple(Priority)  # a loop over the enum itself costs more than what is done in it


@define(eq=False)
class _Class(Generic[T]):
    """The tickets that were submitted with one priority. Numbers of tickets that no longer wait are left over and skipped."""

    priority: Priority
    order: list[int] = field(factory=list)
    deadlines: list[tuple[datetime, int]] = field(factory=list)
    head: T | None = None
    """The oldest that waits, as far as it is known. It may have died since."""
    rank: Priority = Priority.BACKGROUND
    """What the head counts as, until it rises."""
    rises_at: datetime | None = None

    def age(self, head: T, now: datetime) -> None:
        """Find out what the head counts as by now."""
        waited = now - head.submitted_at
        if waited >= _AGEING_STEP * self.priority:
            self.rank, self.rises_at = Priority.INTERACTIVE, None
        else:
            steps = max(0, waited // _AGEING_STEP)
            self.rank = aged(self.priority, steps * AGEING_STEP_S)
            self.rises_at = head.submitted_at + _AGEING_STEP * (steps + 1)


def _classes() -> tuple[_Class[T], ...]:
    return tuple(_Class(priority) for priority in _CLASSES)


@define(eq=False)
class SourceQueue(Generic[T]):
    """The tickets that wait for one source. Times are passed in.

    A ticket that is no longer live is dropped when it is met. It costs memory until then, at most as much as those that
    are live, if `cancel` is told of it.
    """

    _waiting: dict[int, T] = field(init=False, factory=dict)
    _classes: tuple[_Class[T], ...] = field(init=False, factory=_classes)
    _left_over: int = field(init=False, default=0)
    _holders: dict[Hashable, T] = field(init=False, factory=dict)
    _keys: dict[int, Hashable] = field(init=False, factory=dict)

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def entries(self) -> int:
        """How much is kept, what is left over included: what it costs in memory."""
        return sum(len(own.order) + len(own.deadlines) for own in self._classes)

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
        self._forget(ticket)
        return True

    def finished(self, ticket: T) -> None:
        """A ticket that was taken has ended: its key is free again."""
        key = self._keys.pop(ticket.sequence, None) if self._keys else None
        if key is not None:
            del self._holders[key]

    def best(self, now: datetime, opening_of: OpeningOf[T]) -> tuple[Priority, T] | None:
        """The ticket that would be taken now and the class it counts as; None: nothing can go now.

        The most urgent class by age goes first, within it the lower number. A class that is closed holds up no other.
        """
        best: T | None = None
        best_rank = Priority.BACKGROUND
        for own in self._classes:
            head = own.head
            # The usual case in line, because this is where the time goes: a head that lives and has not risen.
            if head is None or not head.is_live or ((rises_at := own.rises_at) is not None and rises_at <= now):
                head = self._head_at(own, now) if own.order else None
            if head is None:
                continue
            rank = own.rank
            if best is None or rank < best_rank or (rank == best_rank and head.sequence < best.sequence):
                opens_at = opening_of(head, rank)
                if opens_at is not None and opens_at <= now:
                    best, best_rank = head, rank
        return None if best is None else (best_rank, best)

    def take(self, now: datetime, opening_of: OpeningOf[T]) -> T | None:
        """Take the best ticket out. Its key stays taken until `finished`."""
        found = self.best(now, opening_of)
        if found is not None:
            self.take_head(found[1])
        return None if found is None else found[1]

    def take_head(self, ticket: T) -> None:
        """Take out the ticket that `best` has just named."""
        own = self._classes[ticket.priority]
        if ticket is not own.head:
            raise ValueError(f"ticket {ticket.sequence} is not the head of its class; take what `best` names")
        heapq.heappop(own.order)
        own.head = None
        del self._waiting[ticket.sequence]
        if ticket.deadline is not None:
            self._leave()

    def expired(self, now: datetime) -> list[T]:
        """Take out the tickets whose wait is over. At its very deadline a ticket may still go."""
        return [ticket for own in self._classes if own.deadlines for ticket in self._due(own, now)]

    def hopeless(self, opens_at: datetime, priority: Priority | None = None) -> list[T]:
        """Take out the tickets, of one class or all, whose wait ends before the source opens: they need not wait.

        `opens_at` must be the earliest time for any of them: that of the head, ageing included.
        """
        classes = self._classes if priority is None else (self._classes[priority],)
        return [ticket for own in classes for ticket in self._due(own, opens_at)]

    def head(self, priority: Priority) -> T | None:
        """The oldest live ticket that was submitted with this class."""
        return self._head_of(self._classes[priority])

    def next_event(self, now: datetime, opening_of: OpeningOf[T]) -> datetime | None:
        """When to look again: a class opens, a head's class rises, or a wait ends. None: nothing happens by itself.

        A time that has come means: look now.
        """
        earliest: datetime | None = None
        for own in self._classes:
            head = own.head
            # The usual case in line, because this is where the time goes: a head that lives and has not risen.
            if head is None or not head.is_live or ((rises_at := own.rises_at) is not None and rises_at <= now):
                head = self._head_at(own, now) if own.order else None
            if head is None:
                continue
            opens_at = opening_of(head, own.rank)
            if opens_at is not None and (earliest is None or opens_at < earliest):
                earliest = opens_at
            rises_at = own.rises_at
            if rises_at is not None and (earliest is None or rises_at < earliest):
                earliest = rises_at
            if own.deadlines and (earliest is None or own.deadlines[0][0] < earliest):
                earliest = self._next_deadline(own, earliest)
        return earliest

    def drain(self) -> list[T]:
        """Take out everything that still waits, by number: the service stops."""
        tickets = [ticket for _, ticket in sorted(self._waiting.items()) if ticket.is_live]
        for ticket in self._waiting.values():
            self.finished(ticket)
        self._waiting.clear()
        self._rebuild()
        return tickets

    def _enter(self, ticket: T) -> None:
        number, own = ticket.sequence, self._classes[ticket.priority]
        self._waiting[number] = ticket
        heapq.heappush(own.order, number)
        if own.order[0] == number:
            own.head = None
        if ticket.deadline is not None:
            heapq.heappush(own.deadlines, (ticket.deadline, number))

    def _head_at(self, own: _Class[T], now: datetime) -> T | None:
        """The head, with its rank brought up to now."""
        head = own.head
        if head is None or not head.is_live:
            head = self._head_of(own)
            if head is not None:
                own.age(head, now)
        elif own.rises_at is not None and own.rises_at <= now:
            own.age(head, now)
        return head

    def _head_of(self, own: _Class[T]) -> T | None:
        if own.head is not None and own.head.is_live:
            return own.head
        order = own.order
        while order:
            ticket = self._waiting.get(order[0])
            if ticket is not None and ticket.is_live:
                own.head = ticket
                # Long past: whoever asks for the rank finds it out anew.
                own.rank, own.rises_at = ticket.priority, ticket.submitted_at
                return ticket
            heapq.heappop(order)
            if ticket is not None:
                del self._waiting[ticket.sequence]
                self._forget(ticket)
        own.head = None
        return None

    def _due(self, own: _Class[T], before: datetime) -> Iterator[T]:
        deadlines = own.deadlines
        while deadlines and deadlines[0][0] < before:
            ticket = self._waiting.pop(heapq.heappop(deadlines)[1], None)
            if ticket is not None:
                self._forget(ticket)
                if ticket.is_live:
                    yield ticket

    def _next_deadline(self, own: _Class[T], earliest: datetime | None) -> datetime | None:
        """The first instant at which a wait is over, or what is earlier."""
        deadlines = own.deadlines
        while deadlines and deadlines[0][1] not in self._waiting:
            heapq.heappop(deadlines)
        if not deadlines or (earliest is not None and earliest <= deadlines[0][0]):
            return earliest
        return deadlines[0][0] + _INSTANT

    def _forget(self, ticket: T) -> None:
        """A ticket no longer waits, and was not taken."""
        own = self._classes[ticket.priority]
        if own.head is ticket:
            own.head = None
        self.finished(ticket)
        self._leave()

    def _leave(self) -> None:
        # Amortised: a rebuild costs as much as what was left over since the last one.
        self._left_over += 1
        if self._left_over > len(self._waiting) + _SPARE:
            self._rebuild()

    def _rebuild(self) -> None:
        self._left_over = 0
        for own in self._classes:
            own.order.clear()
            own.deadlines.clear()
            own.head = None
        for ticket in self._waiting.values():
            own = self._classes[ticket.priority]
            own.order.append(ticket.sequence)
            if ticket.deadline is not None:
                own.deadlines.append((ticket.deadline, ticket.sequence))
        for own in self._classes:
            heapq.heapify(own.order)
            heapq.heapify(own.deadlines)
