"""WatchlistTicker: checks due artists within the tick budget and charges retries."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import ClassVar, TypeVar

import trio
from attrs import define, field, frozen

from actors.actor import Recheck
from actors.contained import Failed, contained
from actors.watch.due_ticker import RELEASE_S, DueTicker
from actors.watch.watchlist_store import DatabaseArtistStore, WatchlistStore
from cormorant.rules.errors import ActorError
from cormorant.rules.search.outcomes import (
    CredentialsRefused,
    RateLimitWaitError,
    SearchError,
    SourceError,
    SourceLimited,
    SourceRefused,
    wait_for_opening_s,
)
from cormorant.rules.watch.artists import (
    Artist,
    CatalogueProgress,
    can_continue,
    charged,
    clamped_s,
    delay_after_crash,
    delay_before_retry,
    looked_at_before,
    new_releases,
    with_page,
)
from cormorant.rules.watch.events import (
    CooldownClear,
    CooldownSet,
    CooldownSkip,
    WatchlistDownload,
    WatchlistHeartbeat,
    WatchlistProcess,
    WatchlistStarted,
    WatchlistStopped,
    WatchlistTick,
)
from cormorant.rules.watch.releases import Album, Release, Track, distinct_releases, is_by, want_key
from cormorant.rules.watch.wants import Want, WantState
from storage import pauses
from storage.jobs.workers import FREED
from storage.tables import ARTISTS, ClaimedTable
from storage.watch.artists import Key, find_progress, keep_progress

T = TypeVar("T")

CLAIM_SPARE_S = 30.0
"""So much longer than its budget a tick has its artists to itself: for writing down what it learned."""
TRACKS_ASKED_MAX = 10
"""For so many new releases the tracks are asked for at once; a whole back catalogue would eat every budget."""

SHARE_WITHOUT_TRACKS = 0.25
"""In the last part of its budget a tick asks for no tracks."""


@frozen
class TickNow:
    """Command: tick at once, whatever the interval. Coalesced."""

    def lost(self, error: ActorError) -> None:
        """The ticker that is started next begins with a tick."""


@frozen(kw_only=True)
class _ArtistCheck:
    """What came of looking at one artist."""

    status: str
    queued: int = 0
    attempts: int = 1
    error: str | None = None


@define(eq=False, kw_only=True)
class WatchlistTicker(DueTicker[TickNow | Recheck]):
    """One tick at a time; none begins while the service stops."""

    store: WatchlistStore
    table: ClassVar[ClaimedTable] = ARTISTS
    _deadline: float = field(init=False, default=math.inf)
    _in_hand: dict[Key, Artist] = field(init=False, factory=dict)
    _read: dict[Key, CatalogueProgress] = field(init=False, factory=dict)
    """What was read of lists that have not been looked through to their end."""
    _kept: set[Key] = field(init=False, factory=set)
    """Of which lists something is kept from earlier ticks."""

    def __attrs_post_init__(self) -> None:
        options = self.environment.settings.watchlist
        self.interval_s, self.grace_s = options.interval_s, options.shutdown_grace_s
        self.budget_s, self.item_s = options.tick_budget_s, CLAIM_SPARE_S

    async def begin(self) -> None:
        """Start with the lease. What a dead process has claimed is taken over at once, whatever the interval."""
        await super().begin()
        await self.nursery.start(self.environment.database.listen, FREED, self._on_freed)
        self.environment.emit(WatchlistStarted(interval_s=self.interval_s))

    def _on_freed(self) -> None:
        self.address.tell_once(TickNow())

    async def end(self) -> None:
        """Let a tick that runs finish within the grace, then cancel it and release its artists."""
        await super().end()
        self.environment.emit(WatchlistStopped(cancelled=len(self._in_hand)))

    async def handle(self, message: TickNow | Recheck) -> None:
        """Tick at once, or as soon as the interval allows."""
        if isinstance(message, TickNow):
            self.tick_now()
        else:
            self.tick_soon()

    async def tick(self) -> float | None:
        """Claim due artists, check as many as the budget allows, and release the others."""
        if await self.environment.database.read(pauses.is_all_paused):
            return None
        began, now, options = trio.current_time(), self.environment.now(), self.environment.settings.watchlist
        until = now + timedelta(seconds=options.tick_budget_s + CLAIM_SPARE_S)
        batch = await self._of_store(partial(self._claim, now=now, until=until, limit=options.max_per_tick))
        if isinstance(batch, Failed):
            return 0.0
        if batch:
            await self._check_batch(batch, began)
        else:
            self.environment.emit(WatchlistHeartbeat())
        return await self._next_due_s()

    async def _next_due_s(self) -> float | None:
        """Seconds until the next artist is due. The store of an embedding program announces nothing: it is asked every interval."""
        return self.seconds_until(await self.store.next_due()) if isinstance(self.store, DatabaseArtistStore) else 0.0

    async def _check_batch(self, batch: Sequence[Artist], began: float) -> None:
        pending = deque(batch)
        self._in_hand.clear()
        self._read, self._kept = {}, set()
        self._deadline = began + self.environment.settings.watchlist.tick_budget_s
        try:
            await self._work_through(pending)
        finally:
            await self._close(batch, pending, began)

    async def _claim(self, *, now: datetime, until: datetime, limit: int) -> list[Artist]:
        claimed, left_alone = await self.store.claim(now=now, until=until, limit=limit)
        for artist in left_alone:
            assert artist.retry_block_until is not None
            self.environment.emit(CooldownSkip(artist=artist.name, retry_block_until=artist.retry_block_until))
        return list(claimed)

    async def _of_store(self, step: Callable[[], Awaitable[T]]) -> T | Failed:
        """Run a step for all artists together. An embedding program may have written the store."""
        return await contained(step, kind="watchlist", item="store", emit=self.environment.emit)

    async def _contained(self, artist: Artist, step: Callable[[], Awaitable[T]]) -> T | Failed:
        return await contained(step, kind="artist", item=artist.name, emit=self.environment.emit)

    async def _resume_catalogue(self, artist: Artist) -> None:
        """Go on where an earlier tick had to end."""
        kept = (await self.environment.database.read(find_progress, [artist])).get(_key(artist))
        if kept is None:
            return
        self._kept.add(_key(artist))
        if can_continue(kept, artist, now=self.environment.now()):
            self._read[_key(artist)] = kept

    async def _work_through(self, pending: deque[Artist]) -> None:
        with trio.CancelScope(deadline=self._deadline):
            async with trio.open_nursery() as nursery:
                for _ in range(min(self.environment.settings.watchlist.max_concurrency, len(pending))):
                    nursery.start_soon(self._work, pending)

    async def _close(self, batch: Sequence[Artist], pending: Sequence[Artist], began: float) -> None:
        """Give back what was not looked at, charged nothing, also when the tick is cancelled."""
        with trio.CancelScope(shield=True, deadline=trio.current_time() + RELEASE_S):
            if self._read or self._kept:
                # First, and in half of the time: who takes an artist next goes on from there.
                with trio.move_on_after(RELEASE_S / 2):
                    await self._of_store(partial(self._keep, self._read, self._kept - self._read.keys()))
            if self._in_hand or pending:
                await self._of_store(partial(self.store.release, pending))
                # To the end of the line: a few that always take too long must not keep all others from their turn.
                late = [*self._in_hand.values()]
                await self._of_store(partial(self.store.release, late, next_attempt_at=self.environment.now()))
        for artist in self._in_hand.values():
            self._emit_out_of_time(artist)
        self.environment.emit(
            WatchlistTick(
                count=len(batch),
                unstarted=len(pending),
                duration_s=round(trio.current_time() - began, 6),
                budget_s=self.environment.settings.watchlist.tick_budget_s,
                concurrency=self.environment.settings.watchlist.max_concurrency,
            )
        )

    def _emit_out_of_time(self, artist: Artist) -> None:
        walk = self._read.get(_key(artist))
        so_far = None if walk is None else f"{len(walk.albums)} releases so far; the next tick goes on from there"
        self.environment.emit(
            WatchlistProcess(artist=artist.name, status="out of time", queued=0, attempts=1, retries=0, error=so_far)
        )

    async def _work(self, pending: deque[Artist]) -> None:
        while pending:
            artist = pending.popleft()
            self._in_hand[_key(artist)] = artist
            looked = await self._contained(artist, partial(self._check, artist))
            if isinstance(looked, Failed):
                looked = await self._back_off(artist, looked)
            self._in_hand.pop(_key(artist), None)  # a store may return an artist twice
            self.environment.emit(
                WatchlistProcess(
                    artist=artist.name,
                    status=looked.status,
                    queued=looked.queued,
                    attempts=looked.attempts,
                    retries=looked.attempts - 1,
                    error=looked.error,
                )
            )

    async def _back_off(self, artist: Artist, failed: Failed) -> _ArtistCheck:
        """Charge an unexpected error. If the store cannot take that either, the next tick releases the artist."""
        self._read.pop(_key(artist), None)  # a page that was read may be what fails
        charged = await self._contained(artist, partial(self._charge, artist, failed.reason))
        return _ArtistCheck(status="failed", error=failed.reason) if isinstance(charged, Failed) else charged

    async def _charge(self, artist: Artist, reason: str) -> _ArtistCheck:
        again_s = delay_after_crash(artist, every_s=self._every_s(artist))
        return await self._fail(artist, reason, 1, failed=1, again_s=again_s)

    async def _check(self, artist: Artist) -> _ArtistCheck:
        await self._resume_catalogue(artist)
        attempt = 0
        while True:
            attempt += 1
            looked_at = self.environment.now()
            try:
                walk = await self._walk(artist)
                wanted = await self._wanted(artist, walk.albums)
            except (SourceLimited, RateLimitWaitError, CredentialsRefused) as closed:
                return await self._wait(artist, closed, attempt)
            except SourceRefused as refused:
                self._read.pop(_key(artist), None)  # its next page may be what is refused
                return await self._fail(artist, str(refused), attempt, failed=0, again_s=self._every_s(artist))
            except (SourceError, SearchError, trio.TooSlowError) as trouble:
                delay_s = self._delay_s(attempt)
                if attempt >= self.environment.settings.watchlist.retry_max or delay_s >= self._left_s():
                    return await self._fail(artist, str(trouble), attempt, failed=attempt, again_s=0.0)
                await trio.sleep(delay_s)
            else:
                next_at = looked_at + timedelta(seconds=self._every_s(artist))
                # As of the first page: what came out while the others were read is found by the next look.
                new = await self.store.succeed(artist, wanted, looked_at=walk.began_at, next_attempt_at=next_at)
                self._read.pop(_key(artist), None)
                return self._succeeded(artist, new, attempt)

    def _succeeded(self, artist: Artist, new: Sequence[Want], attempt: int) -> _ArtistCheck:
        if artist.retry_block_until is not None:
            self.environment.emit(CooldownClear(artist=artist.name))
        if new:
            self.environment.emit(WatchlistDownload(artist=artist.name, titles=tuple(want.title for want in new)))
        return _ArtistCheck(status="ok", queued=len(new), attempts=attempt)

    async def _walk(self, artist: Artist) -> CatalogueProgress:
        """Read the list to its end. Each page that was read stays read, whatever happens to the next."""
        walk = self._read.get(_key(artist)) or CatalogueProgress(began_at=self.environment.now())
        while not walk.is_done:
            page = await self.environment.clients.catalogue.albums_page(
                artist, after=walk.following, timeout_s=self._timeout_s()
            )
            walk = with_page(walk, page, name=artist.name)
            self._read[_key(artist)] = walk
        return walk

    async def _wanted(self, artist: Artist, albums: Sequence[Album]) -> list[Want]:
        own = [album for album in albums if is_by(artist.artist_id, album)]
        news = new_releases(looked_at_before(artist, now=self.environment.now()), distinct_releases(own))
        wanted = []
        for place, release in enumerate(news.wanted):
            tracks = await self._tracks(artist, release) if place < TRACKS_ASKED_MAX else ()
            wanted.append(self._want(artist, release, tracks))
        known = [self._want(artist, release, (), is_known=True) for release in news.known]
        return [*wanted, *known]

    async def _tracks(self, artist: Artist, release: Release) -> Sequence[Track]:
        """Good to know, and no more: for their sake a release is not missed, nor the time to write it down."""
        left_s = self._left_s() - self.environment.settings.watchlist.tick_budget_s * SHARE_WITHOUT_TRACKS
        if left_s <= 0:
            return ()
        try:
            with trio.move_on_after(left_s):
                return await self.environment.clients.catalogue.tracks_of(
                    artist, release.album, timeout_s=self._timeout_s()
                )
        except (SourceError, SearchError, trio.TooSlowError):
            pass
        return ()

    def _want(self, artist: Artist, release: Release, tracks: Sequence[Track], *, is_known: bool = False) -> Want:
        now, album = self.environment.now(), release.album
        return Want(
            key=f"{artist.source}:{want_key(artist.artist_id, album)}",
            kind="album",
            title=album.title,
            artist=artist.name,
            watch=f"artist:{artist.id}",
            state=WantState.IGNORED if is_known else WantState.WANTED,
            reason="out before it was watched, as far as its date tells" if is_known else "new release",
            sources=artist.sources or self.environment.settings.watchlist.search,
            profile=artist.profile or self.environment.settings.watchlist.choose,
            targets=artist.targets or self.environment.settings.watchlist.hand_to,
            facts={
                "album_id": album.id,
                "kind": album.kind,
                "released": str(album.released or ""),
                "tracks_total": album.tracks_total,
                "tracks": [track.title for track in tracks],
            },
            found_at=now,
            changed_at=now,
        )

    async def _wait(self, artist: Artist, closed: Exception, attempt: int) -> _ArtistCheck:
        """The source takes nobody now. That is not the artist's fault, and costs it nothing."""
        next_at = self.environment.now() + timedelta(seconds=wait_for_opening_s(closed))
        await self._keep_read(artist)
        await self.store.release([artist], next_attempt_at=next_at)
        return _ArtistCheck(status="waiting", attempts=attempt, error=str(closed))

    async def _fail(self, artist: Artist, error: str, attempt: int, *, failed: int, again_s: float) -> _ArtistCheck:
        now, options = self.environment.now(), self.environment.settings.watchlist
        charge = partial(charged, failed=failed, budget=options.retry_budget, cooldown_s=options.cooldown_s, now=now)
        next_at = now + timedelta(seconds=again_s)
        await self._keep_read(artist)
        cost = await self.store.fail(artist, charge, next_attempt_at=next_at, error=error, now=now)
        if cost.block_until is not None:
            minutes = options.cooldown_s / 60
            self.environment.emit(CooldownSet(artist=artist.name, minutes=minutes, retry_block_until=cost.block_until))
        return _ArtistCheck(status="failed", attempts=attempt, error=error)

    async def _keep_read(self, artist: Artist) -> None:
        """Store what was read before an artist is released: another process may claim it at once."""
        walk = self._read.get(_key(artist))
        if walk is not None:
            await self._keep({_key(artist): walk}, ())
            del self._read[_key(artist)]
            self._kept.discard(_key(artist))

    async def _keep(self, walks: Mapping[Key, CatalogueProgress], ended: Collection[Key]) -> None:
        """Store these, and forget those that have ended. They are in the database, also if the watchlist is elsewhere."""
        await self.environment.database.run(keep_progress, dict(walks), sorted(ended))

    def _every_s(self, artist: Artist) -> float:
        return artist.every_s or self.environment.settings.watchlist.every_s

    def _delay_s(self, attempt: int) -> float:
        options = self.environment.settings.watchlist
        return delay_before_retry(
            attempt=attempt,
            base_s=options.backoff_base_s,
            spread=options.jitter,
            jitter=self.environment.chance.random(),
        )

    def _left_s(self) -> float:
        return self._deadline - trio.current_time()

    def _timeout_s(self) -> float:
        return clamped_s(self.environment.settings.watchlist.spotify_timeout_s, left_s=self._left_s())


def _key(artist: Artist) -> Key:
    return artist.source, artist.artist_id
