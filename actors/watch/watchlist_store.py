"""WatchlistStore: the storage port of the watchlist ticker (W11) and its database implementation."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from attrs import define, frozen

from cormorant.rules.watch.artists import Artist, CatalogueProgress, Charge, RetryCharge
from cormorant.rules.watch.wants import Want, WantState
from storage.database import Database
from storage.jobs.jobs import NewJob
from storage.watch import artists as watchlist
from storage.watch.artists import Key, claim_due, keep_progress, record_success


class WatchlistStore(Protocol):
    """What the ticker asks of whoever keeps the watchlist. Every method is one transaction."""

    async def claim(self, *, now: datetime, until: datetime, limit: int) -> tuple[list[Artist], list[Artist]]:
        """Take due artists in hand until then; and those that are due and left alone."""
        ...

    async def release(self, artists: Sequence[Artist], *, next_attempt_at: datetime | None = None) -> None:
        """Give artists back that were not looked at; nothing is charged."""
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

    database: Database
    make_job: Callable[[Want], NewJob]
    """The job that searches for a want."""
    notify: Callable[[], None]
    """Told when jobs may have come."""

    async def claim(self, *, now: datetime, until: datetime, limit: int) -> tuple[list[Artist], list[Artist]]:
        """Take due artists in hand until then; and those that are due and left alone."""
        return await self.database.run(claim_due, now=now, until=until, limit=limit)

    async def release(self, artists: Sequence[Artist], *, next_attempt_at: datetime | None = None) -> None:
        """Give artists back that were not looked at; nothing is charged."""
        await self.database.run(watchlist.release, artists, next_attempt_at=next_attempt_at)

    async def succeed(
        self, artist: Artist, wanted: Sequence[Want], *, looked_at: datetime, next_attempt_at: datetime
    ) -> list[Want]:
        """A look succeeded. Returns those wants that are new."""
        pairs = [(want, self.make_job(want) if want.state is WantState.WANTED else None) for want in wanted]
        new = await self.database.run(
            record_success, artist, pairs, looked_at=looked_at, next_attempt_at=next_attempt_at
        )
        if new:
            self.notify()
        return new

    async def fail(
        self, artist: Artist, charge: Charge, *, next_attempt_at: datetime, error: str, now: datetime
    ) -> RetryCharge:
        """A look failed. Returns what it cost."""
        cost = await self.database.run(
            watchlist.fail, artist, charge, next_attempt_at=next_attempt_at, error=error, now=now
        )
        return cost or RetryCharge(failures=artist.failures)  # another process has it in hand


class ProgressStore(Protocol):
    """Where the ticker keeps what it has read of lists that are too long for one tick."""

    async def find(self, artists: Sequence[Artist]) -> dict[Key, CatalogueProgress]:
        """What was kept for these artists."""
        ...

    async def keep(self, walks: Mapping[Key, CatalogueProgress], *, ended: Collection[Key]) -> None:
        """Keep these, and forget those that have ended."""
        ...


@frozen
class DatabaseProgressStore:
    """In the database of the service, whoever keeps the watchlist."""

    database: Database

    async def find(self, artists: Sequence[Artist]) -> dict[Key, CatalogueProgress]:
        """What was kept for these artists."""
        return await self.database.read(watchlist.find_progress, artists)

    async def keep(self, walks: Mapping[Key, CatalogueProgress], *, ended: Collection[Key]) -> None:
        """Keep these, and forget those that have ended."""
        await self.database.run(keep_progress, dict(walks), sorted(ended))
