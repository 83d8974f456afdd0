"""WatchlistStore: the storage port of the watchlist ticker (W11) and its database implementation."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from attrs import define, field

from actors.environment import Environment
from actors.jobs.working_set import JobWakeUp, OwnerLease
from actors.watch.watch_jobs import search_job
from cormorant.rules.watch.artists import Artist, Charge, RetryCharge
from cormorant.rules.watch.releases import Album, AlbumPage, Track
from cormorant.rules.watch.releases import CatalogueArtist as FoundArtist
from cormorant.rules.watch.wants import Want, WantState
from storage.watch import artists as watchlist
from storage.watch.artists import claim_due, record_success


class ArtistCatalogue(Protocol):
    """Knows artists and their releases. Every request goes through the limiter of its source."""

    async def albums_page(self, artist: Artist, *, after: str | None, timeout_s: float) -> AlbumPage:
        """Part of what the artist has released: the first, or the one at an address. Raises `SourceError` or `SearchError`."""
        ...

    async def tracks_of(self, artist: Artist, album: Album, *, timeout_s: float) -> Sequence[Track]:
        """What is on an album."""
        ...

    async def find_artist(
        self, source: str, wanted: str, *, timeout_s: float, max_wait_s: float | None = None
    ) -> FoundArtist:
        """The artist of this id or name, or `SourceRefused`."""
        ...


class WatchlistStore(Protocol):
    """What the ticker asks of whoever keeps the watchlist. Every method is one transaction."""

    async def claim(self, *, now: datetime, until: datetime, limit: int) -> tuple[list[Artist], list[Artist]]:
        """Claim due artists, at least until then; and return those that are due and blocked."""
        ...

    async def release(self, artists: Sequence[Artist], *, next_attempt_at: datetime | None = None) -> None:
        """Release artists that were not checked. They are charged nothing."""
        ...

    async def succeed(
        self, artist: Artist, wanted: Sequence[Want], *, looked_at: datetime, next_attempt_at: datetime
    ) -> list[Want]:
        """A look succeeded. Returns those wants that are new."""
        ...

    async def fail(
        self, artist: Artist, charge: Charge, *, next_attempt_at: datetime, error: str, now: datetime
    ) -> RetryCharge:
        """A look failed. Returns what it cost, reckoned from what the artist has failed until now."""
        ...


@define(eq=False, kw_only=True)
class DatabaseArtistStore:
    """The watchlist in the database of the service."""

    environment: Environment = field(kw_only=False)
    producer: JobWakeUp
    lease: OwnerLease

    async def claim(
        self,
        *,
        now: datetime,
        until: datetime,  # noqa: ARG002 - for stores whose claims end by the clock
        limit: int,
    ) -> tuple[list[Artist], list[Artist]]:
        """Claim due artists in the name of this process, as long as it lives; and return those that are due and blocked."""
        return await self.environment.database.run(claim_due, worker=self.lease.owner, now=now, limit=limit)

    async def next_due(self) -> datetime | None:
        """When the next artist is due."""
        return await self.environment.database.read(watchlist.next_due, worker=self.lease.owner)

    async def release(self, artists: Sequence[Artist], *, next_attempt_at: datetime | None = None) -> None:
        """Release artists that were not checked. They are charged nothing."""
        await self.environment.database.run(watchlist.release, artists, next_attempt_at=next_attempt_at)

    async def succeed(
        self, artist: Artist, wanted: Sequence[Want], *, looked_at: datetime, next_attempt_at: datetime
    ) -> list[Want]:
        """A look succeeded. Returns those wants that are new."""
        pairs = [
            (want, search_job(self.environment, want) if want.state is WantState.WANTED else None) for want in wanted
        ]
        new = await self.environment.database.run(
            record_success, artist, pairs, looked_at=looked_at, next_attempt_at=next_attempt_at
        )
        if new:
            self.producer.set()
        return new

    async def fail(
        self, artist: Artist, charge: Charge, *, next_attempt_at: datetime, error: str, now: datetime
    ) -> RetryCharge:
        """A look failed. Returns what it cost."""
        cost = await self.environment.database.run(
            watchlist.fail, artist, charge, next_attempt_at=next_attempt_at, error=error, now=now
        )
        return cost or RetryCharge(failures=artist.failures)  # another process has claimed it
