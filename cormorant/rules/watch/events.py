"""What happens to watches, to what they want, and to what is handed over."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from attrs import frozen

from cormorant.rules.events import Event


@frozen(kw_only=True)
class WatchlistStarted(Event):
    """Artists are looked at from now on."""

    name: ClassVar[str] = "watchlist.started"

    interval_s: float


@frozen(kw_only=True)
class WatchlistStopped(Event):
    """No more artists are looked at. `cancelled` artists were in hand and not finished within the grace."""

    name: ClassVar[str] = "watchlist.stopped"

    cancelled: int


@frozen(kw_only=True)
class WatchlistHeartbeat(Event):
    """A tick had nothing to do."""

    name: ClassVar[str] = "watchlist.heartbeat"
    level: ClassVar[str] = "debug"


@frozen(kw_only=True)
class WatchlistTick(Event):
    """A tick has ended. `count` artists were due, `unstarted` of them it had no time for; those are charged nothing."""

    name: ClassVar[str] = "watchlist.tick"

    count: int
    unstarted: int
    duration_s: float
    budget_s: float
    concurrency: int


@frozen(kw_only=True)
class WatchlistProcess(Event):
    """An artist was looked at. `status` is ok, failed, waiting or out of time; `queued` releases are wanted now."""

    name: ClassVar[str] = "watchlist.process"

    artist: str
    status: str
    queued: int
    attempts: int
    retries: int
    error: str | None = None


@frozen(kw_only=True)
class CooldownSet(Event):
    """So much failed for an artist that it is left alone for a while."""

    name: ClassVar[str] = "watchlist.cooldown.set"
    level: ClassVar[str] = "warning"

    artist: str
    minutes: float
    retry_block_until: datetime


@frozen(kw_only=True)
class CooldownSkip(Event):
    """An artist was due and is left alone until then."""

    name: ClassVar[str] = "watchlist.cooldown.skip"
    level: ClassVar[str] = "debug"

    artist: str
    retry_block_until: datetime


@frozen(kw_only=True)
class CooldownClear(Event):
    """Looking at an artist succeeded again."""

    name: ClassVar[str] = "watchlist.cooldown.clear"

    artist: str


@frozen(kw_only=True)
class WatchlistDownload(Event):
    """Releases of an artist are wanted."""

    name: ClassVar[str] = "watchlist.download"

    artist: str
    titles: tuple[str, ...]


@frozen(kw_only=True)
class WatchlistSearch(Event):
    """A search for a release found nothing that fits."""

    name: ClassVar[str] = "watchlist.search"

    want: int
    title: str
    why: str


@frozen(kw_only=True)
class SavedSearchChecked(Event):
    """A saved search was repeated. `found` results, `wanted` of them new."""

    name: ClassVar[str] = "saved_search.checked"

    saved: str
    found: int
    wanted: int
    error: str | None = None


@frozen(kw_only=True)
class WantChanged(Event):
    """A want is in another state now, and why."""

    name: ClassVar[str] = "want.changed"

    want: int
    title: str
    state: str
    reason: str


@frozen(kw_only=True)
class HandoverSent(Event):
    """A find was handed to a target."""

    name: ClassVar[str] = "handover.sent"

    want: int
    title: str
    target: str
    times: int


@frozen(kw_only=True)
class HandoverInDoubt(Event):
    """Nobody knows whether a find arrived at its target. `next_step` is what follows."""

    name: ClassVar[str] = "handover.in_doubt"
    level: ClassVar[str] = "warning"

    want: int
    title: str
    target: str
    next_step: str


@frozen(kw_only=True)
class HandoverEnded(Event):
    """A target has finished with a find, or failed; then the next candidate is taken."""

    name: ClassVar[str] = "handover.ended"

    want: int
    title: str
    target: str
    state: str
    reason: str
