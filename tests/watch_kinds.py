"""The four kinds of watches, for tests of what they have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar

from attrs import evolve, frozen
from sqlalchemy import Connection, Table

from cormorant.rules.schedules import Schedule
from cormorant.rules.search.requests import SearchRequest
from cormorant.rules.watch.artists import Artist
from cormorant.rules.watch.feeds import Subscription
from cormorant.rules.watch.prices import PriceWatch
from cormorant.rules.watch.watches import SavedSearch, Watch
from storage.watch import feeds, watches
from storage.watch.artists import ARTIST
from storage.watch.feeds import FEED
from storage.watch.prices import PRICE
from storage.watch.saved_searches import SAVED
from storage.watch.watches import WatchKind

W = TypeVar("W", bound=Watch)
EVERY_S: Final = 60.0


def new_artist(name: str, now: datetime, **words: Any) -> Artist:
    """An artist whose id is its name in lower case."""
    usual = Artist(source="spotify", artist_id=name.lower(), name=name, next_attempt_at=now, added_at=now)
    return evolve(usual, **words)


def new_saved(name: str, now: datetime, **words: Any) -> SavedSearch:
    """A search for the words "words"."""
    request = SearchRequest(query="words")
    return evolve(SavedSearch(name=name, request=request, every_s=EVERY_S, next_attempt_at=now, added_at=now), **words)


def new_feed(name: str, now: datetime, **words: Any) -> Subscription:
    """A feed that is checked every minute."""
    schedule = Schedule(every_s=EVERY_S)
    usual = Subscription(name=name, url=f"http://x.test/{name}", schedule=schedule, next_attempt_at=now, added_at=now)
    return evolve(usual, **words)


def new_price(name: str, now: datetime, **words: Any) -> PriceWatch:
    """A coin at the source s."""
    usual = PriceWatch(name=name, title="Morgan", sources=("s",), every_s=EVERY_S, next_attempt_at=now, added_at=now)
    return evolve(usual, **words)


@frozen
class Case:
    """One kind of watch."""

    kind: WatchKind[Any]
    new: Callable[..., Any]
    """Makes a watch of a name, due at a time."""
    full: dict[str, Any]
    """A value for each field that an option sets."""
    is_in_file: bool = True

    @property
    def table(self) -> Table:
        """Where they are stored."""
        return self.kind.codec.table

    def configure(self, connection: Connection, wanted: Sequence[Any]) -> None:
        """Make those of the settings file what it says now."""
        if self.kind is FEED:
            feeds.set_configured(connection, wanted)
        else:
            watches.set_configured(connection, self.kind, wanted)

    def __str__(self) -> str:
        return self.kind.what


_SHARED: Final[dict[str, Any]] = {"sources": ("a", "b"), "profile": "p", "targets": ("t",)}
CASES: Final = (
    Case(ARTIST, new_artist, _SHARED | {"every_s": 90.0, "watermark": None}, is_in_file=False),
    Case(SAVED, new_saved, _SHARED | {"request": SearchRequest(query="q", categories=[3000]), "answered": ("a",)}),
    Case(
        FEED,
        new_feed,
        {
            "schedule": Schedule(cron="0 9 * * MON", zone="Europe/Berlin"),
            "accept": ("a", "b"),
            "reject": ("c",),
            "targets": ("t",),
            "folder": ("f", "g"),
            "is_adaptive": True,
        },
    ),
    Case(
        PRICE,
        new_price,
        {"sources": ("a",), "year": "1881", "mintmark": "S", "series": "m", "below_cents": 5, "above_cents": 9},
    ),
)


def added(connection: Connection, kind: WatchKind[W], watch: W) -> W:
    """The watch as it was added, or `AlreadyExists`."""
    [made] = watches.add_all(connection, kind, [watch])
    return made
