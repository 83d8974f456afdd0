"""A process that claims a feed, an artist, a saved search, prices and a handover: the real service with stand-ins for all that it asks.

Each stand-in writes down that it began, waits until the gate is open, and answers with something that no other call answers
with: what is done twice is there twice. Started by `crew.py`.
"""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any, Final

import trio
from attrs import define, field, frozen

from actors.watch import handover_tracker
from cormorant.rules.search import priorities
from cormorant.rules.search.outcomes import SourceRefused
from cormorant.rules.search.priorities import Priority
from cormorant.rules.search.requests import Result, SearchPage, SearchRequest
from cormorant.rules.secrets import Secret
from cormorant.rules.settings.service import WebSettings
from cormorant.rules.settings.settings import JobSettings, ServiceSettings, Settings, StorageSettings
from cormorant.rules.settings.sources import SourceSettings
from cormorant.rules.settings.watch import SubscriptionSettings, TargetSettings, WatchlistSettings
from cormorant.rules.watch.artists import Artist
from cormorant.rules.watch.feeds import DueFeed, FeedEntryItem, FetchedFeed
from cormorant.rules.watch.handovers import FOLLOW_S_MAX, Parcel, ParcelKind, ParcelState, ParcelStatus
from cormorant.rules.watch.releases import Album, AlbumPage, CatalogueArtist, Track, read_release_date
from storage.search.sources import SourceRecord
from supervisors.service import open_service
from tests.chaos.journal import BEGAN, CRASHED, ENDED, STOPPED, Pen
from tests.chaos.worker import DEAD_AFTER_S, GATE_LOOK_S, serve, tell
from tests.environments import environment_of

FEED: Final = "feed"
ARTIST: Final = "artist"
SAVED: Final = "saved"
PRICE: Final = "price"
SECOND_PRICE: Final = "second"
HANDOVER: Final = "handover"
CLAIMED: Final = frozenset({FEED, ARTIST, SAVED, PRICE, HANDOVER})
"""What a process claims in these tests, as the journal names it."""
INDEXER: Final = "indexer"
SHOP: Final = "shop"
TARGET: Final = "target"
SEARCHED: Final = {INDEXER: {SAVED}, SHOP: {PRICE, SECOND_PRICE}}
"""The queries that wait at the gate, by source. All others, such as those for wants, find nothing at once."""
LONG_S: Final = 600.0
"""Longer than any wait of a test: only the gate ends a call."""


@frozen(kw_only=True)
class ClaimOrders:
    """Where everything is, and how fast it goes."""

    url: str
    journal: str
    gate: str
    concurrency: int = 4
    heartbeat_s: float = 0.2
    lock_timeout_s: float = DEAD_AFTER_S
    sweep_s: float = 1.0
    look_s: float = 0.5
    """How often is looked for due artists and handovers."""

    def settings(self) -> Settings:
        """The settings of the service."""
        free: dict[str, Any] = {"spacing_s": 0.0, "pace_s": 0.0, "per_minute": 10_000, "in_flight": 50}
        names = ("concurrency", "heartbeat_s", "lock_timeout_s", "sweep_s")
        return Settings(
            data=str(Path(self.journal).parent),
            mode="observe",
            storage=StorageSettings(url=Secret(self.url)),
            service=ServiceSettings(worker_id=f"claimer {os.getpid()}", stop_total_s=40.0),
            web=WebSettings(enabled=False),
            jobs=JobSettings(timeout_s=LONG_S, **{name: getattr(self, name) for name in names}),
            sources={
                INDEXER: SourceSettings(url=f"http://{INDEXER}.test/api", timeout_s=LONG_S, **free),
                SHOP: SourceSettings(kind="prices", url=f"http://{SHOP}.test/api", timeout_s=LONG_S, **free),
            },
            watchlist=WatchlistSettings(interval_s=self.look_s, tick_budget_s=LONG_S),
            subscriptions=SubscriptionSettings(check_timeout_s=LONG_S),
            targets={TARGET: TargetSettings(url=f"http://{TARGET}.test", follow_s=min(FOLLOW_S_MAX, 2 * self.look_s))},
        )


@define(eq=False)
class Gate:
    """Where every call waits, and is written down."""

    pen: Pen
    path: str
    _runs: Iterator[int] = field(init=False, factory=count)

    async def passed(self, item: str) -> str:
        """Wait until it is open. Returns words that no other call gets."""
        number = next(self._runs)
        facts = {"job": item, "attempt": 1, "run": f"{os.getpid()}.{number}"}
        self.pen.write(BEGAN, facts)
        try:
            while not await trio.Path(self.path).exists():
                await trio.sleep(GATE_LOOK_S)
        except trio.Cancelled:
            self.pen.write(STOPPED, facts)
            raise
        self.pen.write(ENDED, facts)
        return f"{item} call {number} of {os.getpid()}"


@frozen
class FeedStandIn:
    """A feed with one item."""

    gate: Gate

    async def __call__(self, subscription: DueFeed) -> FetchedFeed:
        said = await self.gate.passed(subscription.name)
        return FetchedFeed(items=(FeedEntryItem(key=said, title=said, link="http://x.test/item"),))


@frozen
class SearchStandIn:
    """Sources with one find."""

    gate: Gate

    async def __call__(self, source: SourceRecord, request: SearchRequest) -> SearchPage:
        if request.query not in SEARCHED[source.name]:
            await trio.lowlevel.checkpoint()
            return SearchPage(results=())
        said = await self.gate.passed(request.query)
        priced = {"price_cents": ("100",), "price_type": ("sold",), "price_id": (said,)}
        attributes = priced if source.name == SHOP else {}
        link = f"http://{source.name}.test/find"
        return SearchPage(
            results=(Result(title=said, guid=said, link=link, protocol="torrent", attributes=attributes),)
        )


@frozen
class CatalogueStandIn:
    """A catalogue in which each artist has one release."""

    gate: Gate

    async def albums_page(self, artist: Artist, *, after: str | None, timeout_s: float) -> AlbumPage:
        said = await self.gate.passed(artist.name)
        by = CatalogueArtist(id=artist.artist_id, name=artist.name)
        out = read_release_date(str(datetime.now(UTC).date()))
        album = Album(id=said, title=said, artists=(by,), kind="album", group="album", released=out, tracks_total=1)
        return AlbumPage(albums=(album,), next=None)

    async def tracks_of(self, artist: Artist, album: Album, *, timeout_s: float) -> Sequence[Track]:
        await trio.lowlevel.checkpoint()
        return ()

    async def find_artist(
        self, source: str, wanted: str, *, timeout_s: float, max_wait_s: float | None = None
    ) -> CatalogueArtist:
        raise SourceRefused(f"{source} is not asked for {wanted} within {timeout_s} or {max_wait_s} s")


@frozen
class TargetStandIn:
    """A target that has everything, and nothing is sent to it."""

    gate: Gate
    takes: frozenset[ParcelKind] = frozenset(ParcelKind)
    can_be_asked: bool = True

    async def submit(self, parcel: Parcel) -> ParcelStatus:
        raise AssertionError(f"nothing is sent in this mode: {parcel}")

    async def status(self, parcel: Parcel, receipt: ParcelStatus | None) -> ParcelStatus:
        said = await self.gate.passed(parcel.title)
        return ParcelStatus(target_id=parcel.key, standing=ParcelState.DONE, reason=said)

    async def test(self) -> str:
        await trio.lowlevel.checkpoint()
        return "a stand-in"


async def claim(orders: ClaimOrders, pen: Pen) -> None:
    """Work until told to stop."""
    # These are no settings.
    vars(handover_tracker).update(LOOK_S=LONG_S, FOLLOW_S=2 * orders.look_s)
    vars(priorities).update(TIMEOUT_S=dict.fromkeys(Priority, LONG_S))
    gate = Gate(pen, orders.gate)
    service = open_service(
        orders.settings(),
        environment=environment_of(
            listeners=[lambda stamped: tell(pen, stamped)],
            feed=FeedStandIn(gate),
            search=SearchStandIn(gate),
            catalogue=CatalogueStandIn(gate),
            targets={TARGET: TargetStandIn(gate)},
        ),
    )
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        async with service:
            await anext(aiter(signals))
    assert service.report is not None
    pen.write("left", {"forced": service.report.forced})


def piped_pen(path: Path) -> Pen:
    """A pen whose lines another process writes: a limit on the files of this process does not hold them up."""
    reads, writes = os.pipe()
    if os.fork() == 0:
        os.close(writes)
        _copy_lines(reads, path)
        os._exit(0)
    os.close(reads)
    pen = Pen(Path(f"/proc/self/fd/{writes}"))
    os.close(writes)
    return pen


def _copy_lines(reads: int, path: Path) -> None:
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    with os.fdopen(reads, "rb") as lines:
        for line in lines:
            os.write(file, line)


def run(orders: ClaimOrders) -> int:
    """A whole life; the exit code."""
    pen = piped_pen(Path(orders.journal))
    try:
        trio.run(claim, orders, pen)
    except BaseException:  # noqa: BLE001 - the end of the process: whatever it is, the test shall see it
        pen.write(CRASHED, {"trace": traceback.format_exc()})
        return 1
    return 0


if __name__ == "__main__":
    serve(lambda orders: run(ClaimOrders(**orders)))
