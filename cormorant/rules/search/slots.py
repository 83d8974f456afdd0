"""SlotPool: which source gets the next request slot.

A source bids with the rank of its best ticket, and changes its bid when another one is the best. The last free slot is kept for
people, so that a person never waits for ten slow background searches.
"""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from typing import Final, Generic, TypeVar

from attrs import define, field

from cormorant.rules.search.priorities import Priority

__all__ = ["SLOTS", "Rank", "SlotPool"]

SLOTS: Final = 10

Rank = tuple[Priority, int]
"""The class that a ticket counts as by its age, and its number. The smaller goes first."""

S = TypeVar("S", bound=Hashable)
_SPARE: Final = 64


# Rank, whether it is for people, and its turn. A class of its own would take half as long again to make as the bid itself.
_Bid = tuple[Rank, bool, int]


@define(eq=False)
class SlotPool(Generic[S]):
    """The slots, which source holds one and which bids for one. Every call says which sources are granted a slot by it.

    Synchronous, and shared by all limiters, like `trio.CapacityLimiter`.

    >>> pool = SlotPool[str](slots=2)
    >>> pool.bid("a", (Priority.RSS, 1)), pool.bid("b", (Priority.RSS, 2))
    (('a',), ())
    >>> pool.bid("c", (Priority.INTERACTIVE, 3), is_for_people=True)
    ('c',)
    >>> pool.free("c"), pool.free("a")
    ((), ('b',))
    """

    slots: int = SLOTS
    kept: int = field(init=False)
    """How many slots are kept for people: one, where there are two or more."""
    _granted: dict[S, int] = field(init=False, factory=dict)
    _taken: int = field(init=False, default=0)
    _bids: dict[S, _Bid] = field(init=False, factory=dict)
    # Entries whose turn is not that of the source's bid are left over and skipped.
    _all: list[tuple[Rank, int, S]] = field(init=False, factory=list)
    _of_people: list[tuple[Rank, int, S]] = field(init=False, factory=list)
    _turn: int = field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        if self.slots < 1:
            raise ValueError(f"there must be 1 slot or more, not {self.slots}")
        self.kept = 1 if self.slots > 1 else 0

    @property
    def taken(self) -> int:
        """How many slots are in use."""
        return self._taken

    def holds(self, source: S) -> int:
        """How many slots a source has."""
        return self._granted.get(source, 0)

    def bid(self, source: S, rank: Rank, *, is_for_people: bool = False) -> tuple[S, ...]:
        """Ask for a slot. `is_for_people`: the ticket was submitted as interactive, and did not just grow old."""
        if source in self._bids:
            raise ValueError(f"{source!r} bids already; change its bid")
        free = self.slots - self._taken
        if not self._bids and (free > self.kept or (free and is_for_people)):
            self._granted[source] = self._granted.get(source, 0) + 1
            self._taken += 1
            return (source,)
        self._enter(source, rank, is_for_people=is_for_people)
        return self._grant()

    def change_bid(self, source: S, rank: Rank, *, is_for_people: bool = False) -> tuple[S, ...]:
        """Ask with another ticket, better or worse: the one before has left. One that does not bid changes nothing."""
        bid = self._bids.get(source)
        if bid is None or bid[:2] == (rank, is_for_people):
            return ()
        self._enter(source, rank, is_for_people=is_for_people)
        return self._grant()

    def withdraw(self, source: S) -> bool:
        """No longer ask. False: it does not bid; if it was granted a slot meanwhile, it must free it."""
        return self._bids.pop(source, None) is not None

    def free(self, source: S) -> tuple[S, ...]:
        """Give a slot back."""
        held = self._granted.get(source, 0)
        if not held:
            raise ValueError(f"{source!r} has no slot to give back")
        if held == 1:
            del self._granted[source]
        else:
            self._granted[source] = held - 1
        self._taken -= 1
        return self._grant() if self._bids else ()

    def _enter(self, source: S, rank: Rank, *, is_for_people: bool) -> None:
        self._turn = turn = self._turn + 1
        self._bids[source] = (rank, is_for_people, turn)
        # Turns are unique, so that sources themselves are never compared.
        entry = (rank, turn, source)
        heappush(self._all, entry)
        if is_for_people:
            heappush(self._of_people, entry)
        if len(self._all) + len(self._of_people) > 4 * len(self._bids) + _SPARE:
            self._rebuild()

    def _grant(self) -> tuple[S, ...]:
        granted: tuple[S, ...] = ()
        bids = self._bids
        while bids and (free := self.slots - self._taken) > 0:
            heap = self._all if free > self.kept else self._of_people
            source = self._taken_from(heap)
            if source is None:
                break
            del bids[source]
            self._granted[source] = self._granted.get(source, 0) + 1
            self._taken += 1
            granted += (source,)
        return granted

    def _taken_from(self, heap: list[tuple[Rank, int, S]]) -> S | None:
        while heap:
            _, turn, source = heappop(heap)
            bid = self._bids.get(source)
            if bid is not None and bid[2] == turn:
                return source
        return None

    def _rebuild(self) -> None:
        bids = self._bids.items()
        self._all = [(rank, turn, source) for source, (rank, _, turn) in bids]
        self._of_people = [(rank, turn, source) for source, (rank, is_for_people, turn) in bids if is_for_people]
        heapify(self._all)
        heapify(self._of_people)
