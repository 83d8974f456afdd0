"""Priority queue of one source.

One queue per class, ordered by sequence number, and one heap of deadlines per class. The head of a queue is its oldest
ticket, so that only heads are looked at, whatever waits behind them: each event costs O(log n).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator
from datetime import UTC, datetime, timedelta
from heapq import heapify, heappop, heappush
from typing import Final, Generic, Protocol, TypeVar

from attrs import define, field

from cormorant.rules.search.priorities import AGEING_STEP_S, Priority, aged

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
_PAST: Final = datetime.min.replace(tzinfo=UTC)
_NEVER: Final = datetime.max.replace(tzinfo=UTC)
_CLASSES: Final = tuple(Priority)  # a loop over the enum itself costs more than what is done in it


@define(eq=False)
class _Class(Generic[T]):
    """The tickets that were submitted with one priority. Those that no longer wait are left over and skipped."""

    priority: Priority
    fifo: deque[T] = field(factory=deque)
    """As they came, by rising number. A heap of all would touch a dozen of them at each taking, here it is one."""
    put_back: list[tuple[int, T]] = field(factory=list)
    """A heap of the few whose number is not the highest: they were taken before, or came late."""
    last: int = -1
    """The highest number in `fifo` so far."""
    deadlines: list[tuple[datetime, int]] = field(factory=list)
    head: T | None = None
    """The oldest that waits, as far as it is known. It may have died since."""
    rank: Priority = Priority.BACKGROUND
    """What the head counts as, until it rises."""
    rises_at: datetime = _PAST
    top_after: timedelta = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.top_after = _AGEING_STEP * self.priority

    def first(self) -> T | None:
        """The one with the lowest number, left over or not."""
        if self.put_back and (not self.fifo or self.put_back[0][0] < self.fifo[0].sequence):
            return self.put_back[0][1]
        return self.fifo[0] if self.fifo else None

    def drop_first(self, ticket: T) -> None:
        """Take out the first, which is this one."""
        if self.put_back and self.put_back[0][1] is ticket:
            heappop(self.put_back)
        elif self.fifo and self.fifo[0] is ticket:
            self.fifo.popleft()


def _classes() -> tuple[_Class[T], ...]:
    return tuple(_Class(priority) for priority in _CLASSES)


@define(eq=False)
class SourceQueue(Generic[T]):
    """The tickets that wait for one source. Times are passed in.

    A ticket that is no longer live is dropped when it is met. It costs memory until then, at most as much as those that
    are live, if `cancel` is told of it.
    """

    by_number: dict[int, T] = field(init=False, factory=dict)
    """Those that wait. Invariant: only the queue changes it."""
    _classes: tuple[_Class[T], ...] = field(init=False, factory=_classes)
    # At most as late as the first deadline: exact knowledge is only sought when it could matter.
    _no_end_before: datetime = field(init=False, default=_NEVER)
    # At most as late as the first head rises.
    _no_rise_before: datetime = field(init=False, default=_PAST)
    _left_over: int = field(init=False, default=0)
    _holders: dict[Hashable, T] = field(init=False, factory=dict)
    _keys: dict[int, Hashable] = field(init=False, factory=dict)

    def __len__(self) -> int:
        return len(self.by_number)

    @property
    def entries(self) -> int:
        """How much is kept, what is left over included: what it costs in memory."""
        return sum(len(own.fifo) + len(own.put_back) + len(own.deadlines) for own in self._classes)

    def waiting(self) -> list[T]:
        """Those that wait and for which somebody still waits, by number."""
        return [self.by_number[number] for number in sorted(self.by_number) if self.by_number[number].is_live]

    def push(self, ticket: T, *, key: Hashable | None = None) -> bool:
        """Take a ticket in. False: another one with its key waits or runs, and this one was not taken."""
        if key is not None and not self._hold(key, ticket):
            return False
        number, own = ticket.sequence, self._classes[ticket.priority]
        self.by_number[number] = ticket
        if number > own.last:
            own.last = number
            own.fifo.append(ticket)
        else:
            heappush(own.put_back, (number, ticket))
            if own.head is not None and number < own.head.sequence:
                own.head = None
        deadline = ticket.deadline
        if deadline is not None:
            heappush(own.deadlines, (deadline, number))
            self._no_end_before = min(self._no_end_before, deadline)
        return True

    def _hold(self, key: Hashable, ticket: T) -> bool:
        holder = self._holders.get(key)
        if holder is not None:
            if holder.is_live:
                return False
            self.finished(holder)
        self._holders[key] = ticket
        self._keys[ticket.sequence] = key
        return True

    def put_back(self, ticket: T) -> None:
        """Take back a ticket that was taken and could not go: to its old place, by its old number."""
        if ticket.is_live:
            self.push(ticket)
        else:
            self.finished(ticket)

    def cancel(self, ticket: T) -> bool:
        """Forget a waiting ticket, in O(1). False: it does not wait here (any more)."""
        if self.by_number.pop(ticket.sequence, None) is None:
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
        if self._no_rise_before <= now:
            self._rise(now)
        best: T | None = None
        best_rank = Priority.BACKGROUND
        for own in self._classes:
            head = own.head
            # The usual case in line, because this is where the time goes: a head that lives.
            if head is None or not head.is_live:
                head = self._head_at(own, now)
                if head is None:
                    continue
            rank = own.rank
            if best is None or (head.sequence < best.sequence if rank is best_rank else rank < best_rank):
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
        if own.put_back:
            own.drop_first(ticket)
        else:
            own.fifo.popleft()
        own.head = None
        waiting = self.by_number
        del waiting[ticket.sequence]
        if ticket.deadline is not None:
            self._left_over += 1
            if self._left_over > len(waiting) + _SPARE:
                self._rebuild()

    def expired(self, now: datetime) -> list[T]:
        """Take out the tickets whose wait is over. At its very deadline a ticket may still go."""
        return [ticket for own in self._classes if own.deadlines for ticket in self._due(own, now)]

    def unreachable(
        self,
        opens_at: datetime,
        priority: Priority | None = None,
        *,
        opens_for: Callable[[T], datetime] | None = None,
    ) -> list[T]:
        """Take out the tickets, of one class or all, whose wait ends before the source opens: they need not wait.

        `opens_at` must be the earliest time for any of them: that of the head, ageing included. Where it differs from
        ticket to ticket it is the latest, and `opens_for` tells that of each.
        """
        classes = self._classes if priority is None else (self._classes[priority],)
        return [ticket for own in classes for ticket in self._due(own, opens_at, opens_for)]

    def head(self, priority: Priority) -> T | None:
        """The oldest live ticket that was submitted with this class."""
        return self._head_of(self._classes[priority])

    def heads(self) -> list[T]:
        """The oldest live ticket of each class that has one, the most urgent class first."""
        return [
            head for own in self._classes if (own.fifo or own.put_back) and (head := self._head_of(own)) is not None
        ]

    def next_event(self, now: datetime, opening_of: OpeningOf[T]) -> datetime | None:
        """When to look again: a class opens, a head's class rises, or a wait ends. None: nothing happens by itself.

        A time that has come means: look now.
        """
        if self._no_rise_before <= now:
            self._rise(now)
        earliest = _NEVER
        for own in self._classes:
            head = own.head
            if head is None or not head.is_live:
                head = self._head_at(own, now)
                if head is None:
                    continue
            opens_at = opening_of(head, own.rank)
            if opens_at is not None and opens_at < earliest:
                earliest = opens_at
        if self._no_rise_before < earliest:
            self._rise(now)
            earliest = min(earliest, self._no_rise_before)
        if self._no_end_before < earliest:
            earliest = min(earliest, self._next_end())
        return None if earliest is _NEVER else earliest

    def drain(self) -> list[T]:
        """Take out everything that still waits, by number: the service stops."""
        tickets = self.waiting()
        for ticket in self.by_number.values():
            self.finished(ticket)
        self.by_number.clear()
        self._rebuild()
        for own in self._classes:
            own.head = None
        return tickets

    def _head_at(self, own: _Class[T], now: datetime) -> T | None:
        """The head, with its rank brought up to now."""
        fifo = own.fifo
        if own.head is None and fifo and not own.put_back:
            # The usual case: what stood behind the head that was taken.
            first = fifo[0]
            is_waiting = first.is_live and self.by_number.get(first.sequence) is first
            # One that was pushed anew with another class is left over here.
            if is_waiting and first.priority is own.priority:
                head: T | None = first
                own.head = first
            else:
                head = self._head_of(own)
        elif fifo or own.put_back:
            head = self._head_of(own)
        else:
            own.head = head = None
        if head is None:
            return None
        submitted_at = head.submitted_at
        waited = now - submitted_at
        if waited >= own.top_after:
            own.rank, own.rises_at = Priority.INTERACTIVE, _NEVER
            return head
        steps = max(0, waited // _AGEING_STEP)
        own.rank = aged(own.priority, steps * AGEING_STEP_S)
        own.rises_at = submitted_at + _AGEING_STEP * (steps + 1)
        self._no_rise_before = min(self._no_rise_before, own.rises_at)
        return head

    def _rise(self, now: datetime) -> None:
        """Bring the rank of every head up to now, and find out when the next one rises."""
        self._no_rise_before = _NEVER
        for own in self._classes:
            head = own.head
            if head is None or own.rises_at <= now or not head.is_live:
                head = self._head_at(own, now)
            if head is not None and own.rises_at < self._no_rise_before:
                self._no_rise_before = own.rises_at

    def _head_of(self, own: _Class[T]) -> T | None:
        head = own.head
        if head is not None and head.is_live:
            return head
        while (head := own.first() if own.put_back or not own.fifo else own.fifo[0]) is not None:
            # One that was taken out and pushed anew with another class is left over here.
            if self.by_number.get(head.sequence) is head and head.priority is own.priority:
                if head.is_live:
                    own.head = head
                    own.rises_at = self._no_rise_before = _PAST  # whoever needs the rank finds it out anew
                    return head
                del self.by_number[head.sequence]
                self._forget(head)
            own.drop_first(head)
        own.head = None
        return None

    def _due(self, own: _Class[T], before: datetime, opens_for: Callable[[T], datetime] | None = None) -> Iterator[T]:
        stay: list[tuple[datetime, int]] = []
        while own.deadlines and own.deadlines[0][0] < before:
            end, number = heappop(own.deadlines)
            ticket = self.by_number.get(number)
            # One that was taken out and pushed anew may wait longer now, or in another class.
            if ticket is not None and ticket.deadline == end and ticket.priority is own.priority:
                if opens_for is not None and opens_for(ticket) <= end:
                    stay.append((end, number))
                    continue
                del self.by_number[number]
                self._forget(ticket)
                if ticket.is_live:
                    yield ticket
        for entry in stay:
            heappush(own.deadlines, entry)

    def _next_end(self) -> datetime:
        """The first instant at which a wait is over."""
        self._no_end_before = _NEVER
        for own in self._classes:
            deadlines = own.deadlines
            while deadlines and deadlines[0][1] not in self.by_number:
                heappop(deadlines)
            if deadlines:
                self._no_end_before = min(self._no_end_before, deadlines[0][0])
        return _NEVER if self._no_end_before is _NEVER else self._no_end_before + _INSTANT

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
        if self._left_over > len(self.by_number) + _SPARE:
            self._rebuild()

    def _rebuild(self) -> None:
        self._left_over = 0
        waiting = self.by_number
        for own in self._classes:
            own.fifo = deque(ticket for ticket in own.fifo if waiting.get(ticket.sequence) is ticket)
            own.put_back = [each for each in own.put_back if waiting.get(each[0]) is each[1]]
            own.deadlines = [each for each in own.deadlines if each[1] in waiting]
            heapify(own.put_back)
            heapify(own.deadlines)
