"""How does a source get one of the few slots? It bids with its best ticket, and waits until it is granted."""

from __future__ import annotations

from collections.abc import Callable

import trio
from attrs import define, field

from cormorant.rules.search.slots import Rank, SlotPool

Wanted = tuple[Rank, bool]
"""What is bid for a ticket: its rank, and whether it is for people."""


@define(eq=False)
class SlotWaiters:
    """The slots of a service, shared by all its sources. Belongs to the search supervisor and outlives limiters."""

    pool: SlotPool[str] = field(factory=SlotPool[str])
    _waiting: dict[str, trio.Event] = field(init=False, factory=dict)
    _for_people: set[str] = field(init=False, factory=set)
    """Who bids, or was last granted a slot, for a person."""

    async def acquire_for(self, source: str, wanted: Wanted, best: Callable[[], Wanted | None]) -> None:
        """Wait for a slot for what is the best by then: who was granted one for a person who has left bids anew."""
        while True:
            await self.acquire(source, wanted[0], is_for_people=wanted[1])
            now_wanted = best()
            if now_wanted is None or now_wanted[1] or source not in self._for_people:
                return
            self.free(source)
            wanted = now_wanted

    async def acquire(self, source: str, rank: Rank, *, is_for_people: bool) -> None:
        """Wait for a slot. Cancelled, it holds none."""
        self._note(source, is_for_people)
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

    def change_bid(self, source: str, rank: Rank, *, is_for_people: bool) -> None:
        """Another ticket is the best now: a better one has come, or the best has left."""
        waiting = self._waiting.get(source)
        if waiting is not None and not waiting.is_set():
            self._note(source, is_for_people)
            self._grant(self.pool.change_bid(source, rank, is_for_people=is_for_people))

    def _note(self, source: str, is_for_people: bool) -> None:  # noqa: FBT001 - it is what is noted
        (self._for_people.add if is_for_people else self._for_people.discard)(source)

    def free(self, source: str) -> None:
        """Give a slot back."""
        self._grant(self.pool.free(source))

    def _grant(self, sources: tuple[str, ...]) -> None:
        for source in sources:
            self._waiting[source].set()
