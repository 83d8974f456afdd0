"""StaleClaims: finds claims of feeds that their process has not renewed, and frees them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import trio
from attrs import define, field

from cormorant.rules.jobs.states import LivenessObservation, observe
from storage.database import Database
from storage.watch import feed_claims

__all__ = ["StaleClaims"]

Claims = Mapping[tuple[int, int], int]
ASKED_FOR_MAX = 1_000


@define(eq=False, kw_only=True)
class StaleClaims:
    """Watches claims. Who lives renews them; what has not changed for `silence_s` of our own watching is freed."""

    database: Database
    interval_s: float
    """How often is looked at least."""
    silence_s: float
    asked_for: set[int] = field(init=False, factory=set)
    """Somebody wants to check these now, due or not, and another has them in hand."""
    _watch: LivenessObservation = field(init=False, factory=LivenessObservation)

    def ask_for(self, number: int) -> None:
        """Watch one that may not be due for long."""
        if len(self.asked_for) < ASKED_FOR_MAX:
            self.asked_for.add(number)

    @property
    def is_watching(self) -> bool:
        """Whether others had something in hand at the last look."""
        return bool(self._watch.sightings)

    def forget(self) -> None:
        """Begin anew: the database was away, perhaps for the others too."""
        self._watch = LivenessObservation()

    async def check(self, held: Claims, *, own: Collection[tuple[int, int]]) -> int:
        """Look at what is held now, and free what is dead. Returns how many."""
        others = {f"{number}:{token}": (number, token) for number, token in held if (number, token) not in own}
        self._watch, dead = observe(
            self._watch,
            {name: held[claim] for name, claim in others.items()},
            now=trio.current_time(),
            interval_s=self.interval_s,
            silence_s=self.silence_s,
        )
        if dead:
            silent = {others[name]: held[others[name]] for name in dead}
            await self.database.run(feed_claims.free, silent)
        self.asked_for &= {number for name, (number, _) in others.items() if name not in dead}
        return len(dead)
