"""Watch (the fields of all four kinds), how settings become one, its next check; SavedSearch and its wants."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, TypeVar

import attrs
from attrs import evolve, field, frozen

from cormorant.rules.search.requests import Result, SearchRequest
from cormorant.rules.watch.wants import KEY_LENGTH_MAX, Want, WantState, short_key

CONFIGURED: Final = "configured"
"""The origin of a watch of the settings file."""
TAKEN_OUT: Final = "taken out of the settings"
"""The origin of a watch that the settings file no longer has. It is not checked, and what was collected stays."""
SAVED_KIND: Final = "saved_search"
"""The kind of the jobs that repeat saved searches."""


class FirstCheck(StrEnum):
    """What the first check of a new search does with all that is there already."""

    SKIP = "skip"
    """It is known from then on, and not wanted."""
    TAKE = "take"


# Without slots, because many are made at a time: a frozen object with slots takes twice as long.
@frozen(kw_only=True, slots=False)
class Watch:
    """The fields of every kind of watch."""

    id: int = 0
    name: str
    sources: tuple[str, ...] = ()
    profile: str = ""
    targets: tuple[str, ...] = ()
    origin: str = "by command"
    is_paused: bool = False
    next_attempt_at: datetime
    last_checked: datetime | None = None
    last_error: str | None = None
    failures: int = 0
    """Checks or attempts that failed since the last success."""
    added_at: datetime
    token: int = field(default=0, repr=False)
    """Rises with each claim: only the current owner may write."""


@frozen(kw_only=True, slots=False)
class SavedSearch(Watch):
    """A search that is repeated; what is new in it is wanted."""

    request: SearchRequest
    every_s: float
    first_check: FirstCheck = FirstCheck.SKIP
    answered: tuple[str, ...] = ()
    """The sources that have answered it before: what they had then is known."""


W = TypeVar("W", bound=Watch)

FIELD_OF_OPTION: Final = {"search": "sources", "choose": "profile", "hand_to": "targets", "adaptive": "is_adaptive"}
"""The fields of a watch that settings, commands and the API call by another name."""


def fields_set_by(options: type, watch: type[Watch]) -> dict[str, str]:
    """The fields of a watch that options set, each with the name that the options have for it."""
    names = [each.name for each in attrs.fields(options)]
    found = {FIELD_OF_OPTION.get(name, name): name for name in names}
    return {field: name for field, name in found.items() if field in attrs.fields_dict(watch)}


def watch_from(watch: type[W], options: Any, *, name: str, now: datetime, **named: Any) -> W:
    """The watch that options mean: its fields have the values of the options of the same meaning. `named` gives the others."""
    values: dict[str, Any] = {
        field: getattr(options, option) for field, option in fields_set_by(type(options), watch).items()
    }
    return watch(**values | {"name": name, "next_attempt_at": now, "added_at": now} | named)


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
