"""How does a source get one of the few slots? It bids with its best ticket, and waits until it is granted."""

from __future__ import annotations

import trio
from attrs import define, field

from cormorant.rules.slots import Rank, SlotPool


@define(eq=False)
class Slots:
    """The slots of a service, shared by all its sources. Belongs to the search supervisor and outlives limiters."""

    pool: SlotPool[str] = field(factory=SlotPool[str])
    _waiting: dict[str, trio.Event] = field(init=False, factory=dict)

    async def acquire(self, source: str, rank: Rank, *, is_for_people: bool) -> None:
        """Wait for a slot. Cancelled, it holds none."""
        granted = trio.Event()
        self._waiting[source] = granted
        is_taken = False
        try:
            self._grant(self.pool.bid(source, rank, is_for_people=is_for_people))
            await granted.wait()
            is_taken = True
        finally:
            del self._waiting[source]
            if not is_taken and not self.pool.withdraw(source):
                self.free(source)  # granted and cancelled in the same tick

    def acquire_nowait(self, source: str, rank: Rank, *, is_for_people: bool) -> bool:
        """Take a slot if one is free for it. False: it has none, and does not bid."""
        granted_to = self.pool.bid(source, rank, is_for_people=is_for_people)
        if source not in granted_to:
            self.pool.withdraw(source)
        self._grant(tuple(each for each in granted_to if each != source))
        return source in granted_to

    def raise_bid(self, source: str, rank: Rank, *, is_for_people: bool) -> None:
        """A better ticket has come."""
        self._grant(self.pool.raise_bid(source, rank, is_for_people=is_for_people))

    def free(self, source: str) -> None:
        """Give a slot back."""
        self._grant(self.pool.free(source))

    def _grant(self, sources: tuple[str, ...]) -> None:
        for source in sources:
            self._waiting[source].set()
