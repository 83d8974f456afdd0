"""WatchOptions, SavedSearch, its next check, and the wants that its results become."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from attrs import evolve, field, frozen

from cormorant.rules.search.requests import Result, SearchRequest
from cormorant.rules.watch.wants import KEY_LENGTH_MAX, Want, WantState, short_key

SAVED_KIND: Final = "saved_search"
"""The kind of the jobs that repeat saved searches."""


class FirstCheck(StrEnum):
    """What the first check of a new search does with all that is there already."""

    SKIP = "skip"
    """It is known from then on, and not wanted."""
    TAKE = "take"


@frozen(kw_only=True)
class WatchOptions:
    """What can be said of any watch."""

    every_s: float | None = None
    search: tuple[str, ...] = ()
    choose: str = ""
    hand_to: tuple[str, ...] = ()


@frozen(kw_only=True)
class SavedSearch:
    """A search that is repeated; what is new in it is wanted."""

    id: int = 0
    name: str
    request: SearchRequest
    every_s: float
    sources: tuple[str, ...] = ()
    profile: str = ""
    targets: tuple[str, ...] = ()
    origin: str = "by command"
    first_check: FirstCheck = FirstCheck.SKIP
    answered: tuple[str, ...] = ()
    """The sources that have answered it before: what they had then is known."""
    is_paused: bool = False
    next_attempt_at: datetime
    last_checked: datetime | None = None
    last_error: str | None = None
    failures: int = 0
    added_at: datetime
    token: int = field(default=0, repr=False)


def next_check(*, due: datetime, every_s: float, now: datetime) -> datetime:
    """When it is due again: the cadence is kept, and what was missed meanwhile is not made up for.

    >>> from datetime import UTC
    >>> at = datetime(2026, 1, 1, tzinfo=UTC)
    >>> [next_check(due=at, every_s=60, now=at + timedelta(seconds=late)).minute for late in (10, 130)]
    [1, 3]
    >>> next_check(due=at + timedelta(days=365), every_s=60, now=at).isoformat()  # written by a clock that ran ahead
    '2026-01-01T00:01:00+00:00'
    """
    kept = min(due, now) + timedelta(seconds=every_s)
    return kept if kept > now else now + timedelta(seconds=every_s)


def known_to(saved: SavedSearch, want: Want) -> Want:
    """The note that a search has known something from the start. Its own: what one skips may be new to another."""
    key = short_key(f"known:{saved.name}:{want.key}", KEY_LENGTH_MAX)
    return evolve(want, key=key, state=WantState.IGNORED, reason="was there before the search was saved")


def want_for(saved: SavedSearch, source: str, result: Result, *, now: datetime) -> Want:
    """What a find of a saved search is wanted as: the same torrent is one want, wherever it is found."""
    about = result.infohash.lower() if result.infohash else f"{source}/{result.guid or result.title}"
    return Want(
        key=short_key(f"find:{about}".replace("\0", ""), KEY_LENGTH_MAX),
        kind="search",
        title=result.title,
        watch=f"saved:{saved.name}",
        state=WantState.SEARCHING,
        reason="found",
        sources=saved.sources,
        profile=saved.profile,
        targets=saved.targets,
        found_at=now,
        changed_at=now,
    )
