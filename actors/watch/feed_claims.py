"""FeedClaims: the feeds that this process has claimed, and the renewal of these claims."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable
from datetime import datetime, timedelta

import trio
from attrs import define, field, frozen

from cormorant.rules.errors import CommitUnknown, StorageUnavailable
from cormorant.rules.ports import Clock
from cormorant.rules.watch.feeds import DueFeed
from storage.database import Database
from storage.watch import feed_claims
from storage.watch.feed_claims import CheckedElsewhere

__all__ = ["BEAT_S", "ClaimedFeed", "FeedClaims", "silence_s"]

BEAT_S = 15.0
"""How often what is in hand is renewed, and what others have is watched."""
CLAIM_FRESH_S = 10.0
"""What was renewed longer ago may be another's, or paused, changed or removed meanwhile: no check begins then."""


def silence_s(check_timeout_s: float) -> float:
    """After so long without a renewal nobody checks any more what was in hand: who did began in time, and had this long."""
    return check_timeout_s + 2 * BEAT_S


@frozen
class ClaimedFeed:
    """One in hand, and when the database last knew of it (trio's time)."""

    subscription: DueFeed
    sure_at: float


@define(eq=False, kw_only=True)
class FeedClaims:
    """What this process has claimed, by number."""

    database: Database
    asked_for: Container[int]
    """Whether somebody waits for its check: then it is made though it is paused."""
    timeout_s: float
    clock: Clock
    held: dict[int, ClaimedFeed] = field(init=False, factory=dict)
    _begun: set[int] = field(init=False, factory=set)
    """Those whose check has begun: it is brought to its end, whoever pauses them."""
    _has_some: trio.Event = field(init=False, factory=trio.Event)

    def put(self, held: ClaimedFeed) -> None:
        """Have one in hand, perhaps in the place of an older claim."""
        self.held[held.subscription.id] = held
        self._has_some.set()

    def drop(self, number: int) -> None:
        """It is no longer in hand."""
        self.held.pop(number, None)
        self._begun.discard(number)

    def until(self) -> datetime:
        """Until when a claim of now is good, for people to see."""
        return self.clock.now() + timedelta(seconds=silence_s(self.timeout_s))

    async def begin(self, number: int) -> DueFeed:
        """Begin the check of one. Who waited long for its host may have lost it: `CheckedElsewhere`, and no second check."""
        if trio.current_time() - self.held[number].sure_at > CLAIM_FRESH_S:
            await self._renew([number])
        if self.held[number].sure_at == -math.inf:
            raise CheckedElsewhere(number)
        self._begun.add(number)
        return self.held[number].subscription

    async def beat(self) -> None:
        """Show the others that what is in hand is in living hands."""
        while True:
            await self._has_some.wait()
            await trio.sleep(BEAT_S)
            try:
                await self._renew(self.held)
            except (StorageUnavailable, CommitUnknown):
                continue
            if not self.held:
                self._has_some = trio.Event()

    async def _renew(self, numbers: Iterable[int]) -> None:
        asked_at = trio.current_time()
        mine = [self.held[number].subscription for number in numbers]
        if not mine:
            return
        keep_even_if_paused = {each.id for each in mine if each.id in self._begun or each.id in self.asked_for}
        kept = await self.database.run(
            feed_claims.renew_running, mine, keep_even_if_paused=keep_even_if_paused, until=self.until()
        )
        for each in mine:
            held = self.held.get(each.id)
            if held is not None and held.subscription.token == each.token:
                self.held[each.id] = ClaimedFeed(each, asked_at if each.id in kept else -math.inf)
        # Not together with the renewals: all must touch rows in one order.
        if paused := [each for each in mine if each.id not in kept and each.id not in keep_even_if_paused]:
            await self.database.run(feed_claims.release, paused)
