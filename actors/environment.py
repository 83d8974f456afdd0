"""Environment: what the system gives to every actor and service, as one frozen object, with its defaults."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from random import SystemRandom
from typing import TYPE_CHECKING, Any, TypeVar

import trio
from attrs import field, frozen

from cormorant.clients.files import Download
from cormorant.rules.notices import Message
from cormorant.rules.ports import Chance, Clock, Emit, Listener, Offload
from cormorant.rules.search.requests import Caps, SearchPage, SearchRequest
from cormorant.rules.settings.settings import Settings
from cormorant.rules.watch.feeds import DueFeed, FetchedFeed
from storage.database import Database, SystemClock
from storage.search.sources import SourceRecord

if TYPE_CHECKING:
    from actors.watch.watchlist_store import ArtistCatalogue, WatchlistStore
    from cormorant.clients.targets.target import Target

T = TypeVar("T")

NOT_GIVEN: Any = None
"""A part that `open_service` makes, because the program does not give it."""

SearchSource = Callable[[SourceRecord, SearchRequest], Awaitable[SearchPage]]
"""Searches a source with the client of its kind. Raises `SourceError`."""
AskCaps = Callable[[SourceRecord], Awaitable[Caps]]
"""Asks a source for its caps. Raises `SourceError`."""
DownloadFile = Callable[[SourceRecord, str], Awaitable[Download]]
"""Fetches the file that a link of a source leads to. Raises `SourceError`."""
FetchLink = Callable[[str], Awaitable[Download]]
"""Fetches the file that a link of a feed leads to; no source has it. Raises `SourceError`."""
FetchFeed = Callable[[DueFeed], Awaitable[FetchedFeed]]
"""Fetches a feed. Raises `SourceError`."""
SendMessage = Callable[[str, Message], Awaitable[None]]
"""Sends a notification to an Apprise address. Raises `NotTold`."""


async def in_thread(function: Callable[..., T], /, *args: Any) -> T:
    """Call `function(*args)` in a thread and wait for its end, also when cancelled: nothing is left half-way."""
    return await trio.to_thread.run_sync(function, *args, abandon_on_cancel=False)


@frozen(kw_only=True)
class Clients:
    """The functions that talk to the outside.

    `open_service` makes those that a program does not give, so that actors and services find all of them.
    """

    search: SearchSource = NOT_GIVEN
    caps: AskCaps | None = None
    """None where `search` is given: the sources are not asked for caps."""
    download: DownloadFile = NOT_GIVEN
    link: FetchLink = NOT_GIVEN
    feed: FetchFeed = NOT_GIVEN
    catalogue: ArtistCatalogue = NOT_GIVEN
    """Knows artists and their releases; otherwise the source that the settings name does."""
    targets: Mapping[str, Target] = NOT_GIVEN
    """Takes what was chosen, by name; otherwise the targets of the settings do."""
    notify: SendMessage = NOT_GIVEN
    watchlist: WatchlistStore | None = None
    """Stores the watchlist of an embedding program; None: the database does."""


@frozen
class Environment:
    """Settings, database, time, chance, events, threads and clients. The first argument of every actor and service.

    Everything but the settings may be left out: `open_service` makes `database`, `emit` and the clients from the settings.
    """

    settings: Settings
    database: Database = field(default=NOT_GIVEN, kw_only=True)
    clock: Clock = field(factory=SystemClock, kw_only=True)
    chance: Chance = field(factory=SystemRandom, kw_only=True)
    emit: Emit = field(default=NOT_GIVEN, kw_only=True)
    offload: Offload = field(default=in_thread, kw_only=True)
    listeners: Sequence[Listener] = field(default=(), kw_only=True)
    """Called with every event, in line. They must be quick and must not raise."""
    clients: Clients = field(factory=Clients, kw_only=True)

    def now(self) -> datetime:
        """The wall time."""
        return self.clock.now()
