"""What happens to watches, to what they want, and to what is handed over."""

from __future__ import annotations

from datetime import datetime
from typing import Self

from cormorant.rules.events import Event, event
from cormorant.rules.watch.handovers import Handover, HandoverState
from cormorant.rules.watch.wants import Want


@event("watchlist.started")
class WatchlistStarted(Event):
    """Artists are looked at from now on."""

    interval_s: float


@event("watchlist.stopped")
class WatchlistStopped(Event):
    """No more artists are looked at. `cancelled` artists were in hand and not finished within the grace."""

    cancelled: int


@event("watchlist.heartbeat", level="debug")
class WatchlistHeartbeat(Event):
    """A tick had nothing to do."""


@event("watchlist.tick")
class WatchlistTick(Event):
    """A tick has ended. `count` artists were due, `unstarted` of them it had no time for; those are charged nothing."""

    count: int
    unstarted: int
    duration_s: float
    budget_s: float
    concurrency: int


@event("watchlist.process")
class WatchlistProcess(Event):
    """An artist was looked at. `status` is ok, failed, waiting or out of time; `queued` releases are wanted now."""

    artist: str
    status: str
    queued: int
    attempts: int
    retries: int
    error: str | None = None


@event("watchlist.cooldown.set", level="warning")
class CooldownSet(Event):
    """So much failed for an artist that it is left alone for a while."""

    artist: str
    minutes: float
    retry_block_until: datetime


@event("watchlist.cooldown.skip", level="debug")
class CooldownSkip(Event):
    """An artist was due and is left alone until then."""

    artist: str
    retry_block_until: datetime


@event("watchlist.cooldown.clear")
class CooldownClear(Event):
    """Looking at an artist succeeded again."""

    artist: str


@event("watchlist.download")
class WatchlistDownload(Event):
    """Releases of an artist are wanted."""

    artist: str
    titles: tuple[str, ...]


@event("watchlist.search")
class WatchlistSearch(Event):
    """A search for a release found nothing that fits."""

    want: int
    title: str
    why: str


@event("saved_search.checked")
class SavedSearchChecked(Event):
    """A saved search was repeated. `found` results, `wanted` of them new."""

    saved: str
    found: int
    wanted: int
    error: str | None = None


@event("want.changed")
class WantChanged(Event):
    """A want is in another state now, and why."""

    want: int
    title: str
    state: str
    reason: str

    @classmethod
    def of(cls, want: Want, *, reason: str | None = None) -> Self:
        """The event for a want as it is now; `reason` replaces its own."""
        why = want.reason if reason is None else reason
        return cls(want=want.id, title=want.words, state=want.state.value, reason=why)


@event("handover.sent")
class HandoverSent(Event):
    """A find was handed to a target."""

    want: int
    title: str
    target: str
    times: int


@event("handover.in_doubt", level="warning")
class HandoverInDoubt(Event):
    """Nobody knows whether a find arrived at its target. `next_step` is what follows."""

    want: int
    title: str
    target: str
    next_step: str


@event("handover.ended")
class HandoverEnded(Event):
    """A target has finished with a find, or failed; then the next candidate is taken."""

    want: int
    title: str
    target: str
    state: str
    reason: str

    @classmethod
    def of(cls, handover: Handover, state: HandoverState, reason: str) -> Self:
        """The event for the end of a handover."""
        return cls(
            want=handover.want_id, title=handover.title, target=handover.target, state=state.value, reason=reason
        )
