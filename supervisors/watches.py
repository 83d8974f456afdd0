"""What can a program do with watches? Add and remove artists and saved searches, look at wants, decide by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, datetime

from attrs import define, frozen
from sqlalchemy import Connection

from cormorant.rules.errors import CormorantError
from cormorant.rules.handovers import Handover, HandoverState
from cormorant.rules.ports import Clock
from cormorant.rules.saved_searches import FirstCheck, SavedSearch
from cormorant.rules.searches import SearchRequest
from cormorant.rules.wants import Want, WantState
from cormorant.rules.watchlist import Artist, Start
from storage import downloads, jobs, saved_searches, wants, watchlist
from storage.database import Database
from storage.jobs import NewJob
from storage.wants import Candidate


class CannotHandOver(CormorantError):
    """A find cannot be handed over by hand as things are; the message says why."""


@frozen(kw_only=True)
class WantView:
    """A want with everything that was found for it, and where it went."""

    want: Want
    candidates: tuple[Candidate, ...]
    handovers: tuple[Handover, ...]


@define(eq=False, kw_only=True)
class Watches:
    """The watches of a service."""

    database: Database
    make_search: Callable[[Want], NewJob]
    make_handover: Callable[[Want], NewJob]
    ring: Callable[[], None]
    clock: Clock

    async def watch_artist(  # noqa: PLR0913 - what can be said of an artist, all but two with a default
        self,
        artist_id: str,
        *,
        name: str,
        source: str = "spotify",
        start: Start = Start.NOW,
        start_on: date | None = None,
        every_s: float | None = None,
        sources: Sequence[str] = (),
        profile: str = "",
        targets: Sequence[str] = (),
    ) -> Artist | None:
        """Watch an artist; None when it is watched already. What comes out from `start` on is wanted."""
        now = self.clock.now()
        since = {Start.NOW: now.date(), Start.ALL: None, Start.DATE: start_on}[start]
        artist = Artist(
            source=source,
            artist_id=artist_id,
            name=name,
            start=start,
            start_on=since,
            every_s=every_s,
            sources=tuple(sources),
            profile=profile,
            targets=tuple(targets),
            next_attempt_at=now,
            added_at=now,
        )
        return await self.database.run(watchlist.add, artist)

    async def unwatch_artist(self, wanted: str) -> Artist:
        """Watch an artist no more; by number, id or name."""
        return await self.database.run(_unwatch, wanted)

    async def artists(self) -> list[Artist]:
        """Everybody on the watchlist."""
        return await self.database.read(watchlist.all_artists)

    async def check_artist(self, wanted: str) -> Artist:
        """Look at an artist at the next tick."""
        return await self.database.run(_check_artist, wanted, now=self.clock.now())

    async def save_search(  # noqa: PLR0913 - what can be said of a search, all but three with a default
        self,
        name: str,
        request: SearchRequest,
        *,
        every_s: float,
        sources: Sequence[str] = (),
        profile: str = "",
        targets: Sequence[str] = (),
        first_check: FirstCheck = FirstCheck.SKIP,
    ) -> SavedSearch:
        """Repeat a search from now on; what is new in it is wanted."""
        now = self.clock.now()
        saved = SavedSearch(
            name=name,
            request=request,
            every_s=every_s,
            sources=tuple(sources),
            profile=profile,
            targets=tuple(targets),
            first_check=first_check,
            next_attempt_at=now,
            added_at=now,
        )
        return await self.database.run(saved_searches.add, saved)

    async def forget_search(self, name: str) -> None:
        """Repeat a search no more."""
        await self.database.run(saved_searches.remove, name)

    async def saved(self) -> list[SavedSearch]:
        """All saved searches, by name."""
        return await self.database.read(saved_searches.all_saved)

    async def pause_search(self, name: str, *, is_paused: bool = True) -> None:
        """Leave a saved search alone, or go on."""
        await self.database.run(saved_searches.set_paused, name, is_paused=is_paused)

    async def check_search(self, name: str) -> None:
        """Repeat a saved search at the next look."""
        await self.database.run(saved_searches.check_now, name, now=self.clock.now())

    async def wants(
        self, *, state: WantState | None = None, before_id: int | None = None, limit: int = 100
    ) -> list[Want]:
        """The latest wants, newest first."""
        return await self.database.read(wants.recent, state=state, before_id=before_id, limit=limit)

    async def want(self, want_id: int) -> WantView:
        """One want with its candidates and their reasons, or `UnknownWant`."""
        return await self.database.read(_view, want_id)

    async def counts(self) -> dict[WantState, int]:
        """How many wants are in each state."""
        return await self.database.read(wants.counts)

    async def retry(self, want_id: int) -> Want:
        """Search for something again that was given up or ignored, or has not been found yet."""
        want = await self.database.run(self._retry, want_id, now=self.clock.now())
        self.ring()
        return want

    async def ignore(self, want_id: int) -> Want:
        """Want something no more."""
        return await self.database.run(_ignore, want_id, now=self.clock.now())

    async def hand_over(self, want_id: int, *, ref: str | None = None) -> Want:
        """Hand a chosen find over by hand, also in observe mode; or another of its candidates."""
        want = await self.database.run(self._hand_over, want_id, ref, now=self.clock.now())
        self.ring()
        return want

    async def downloads(self, *, before_id: int | None = None, limit: int = 100) -> list[Handover]:
        """What was handed over, newest first."""
        return await self.database.read(downloads.recent, before_id=before_id, limit=limit)

    async def settle(self, number: int, *, has_arrived: bool) -> Want:
        """Decide about a handover that is held: it has arrived, or it is to be sent again."""
        want = await self.database.run(self._settle, number, has_arrived=has_arrived, now=self.clock.now())
        self.ring()
        return want

    def revive(self, orphans: Sequence[Want]) -> Callable[..., None]:
        """A statement that gives wants a job again that have none."""
        made = [
            self.make_handover(want)
            if want.state in {WantState.CHOSEN, WantState.SENDING, WantState.IN_DOUBT}
            else self.make_search(want)
            for want in orphans
        ]
        now = self.clock.now()

        def enqueue_all(connection: Connection) -> None:
            for job in made:
                jobs.enqueue(connection, job, now=now)

        return enqueue_all

    def _retry(self, connection: Connection, want_id: int, *, now: datetime) -> Want:
        _check_not_sent(connection, want_id)
        want = wants.change(connection, want_id, WantState.WANTED, reason="asked for by hand", looks=0, now=now)
        wants.forgive(connection, want_id)
        _run_now(connection, self.make_search(want), now=now)
        return want

    def _hand_over(self, connection: Connection, want_id: int, ref: str | None, *, now: datetime) -> Want:
        want = wants.find(connection, want_id, lock=True)
        _check_not_sent(connection, want_id)
        chosen = ref or want.chosen_ref
        if not want.targets:
            raise CannotHandOver(f"want {want_id} has no target; set hand_to for its watch")
        if chosen is None or wants.candidate(connection, want_id, chosen) is None:
            raise CannotHandOver(f"want {want_id} has no such candidate; `cormorant wants show {want_id}` lists them")
        changed = wants.change(
            connection,
            want_id,
            WantState.CHOSEN,
            reason="is handed over by hand",
            chosen_ref=chosen,
            next_at=now,
            now=now,
        )
        _run_now(connection, self.make_handover(want), now=now)
        return changed

    def _settle(self, connection: Connection, number: int, *, has_arrived: bool, now: datetime) -> Want:
        handover = downloads.find(connection, number)
        if handover.state is not HandoverState.HELD:
            raise CannotHandOver(f"download {number} is {handover.state.value}; only what is held can be decided")
        if has_arrived:
            downloads.change(connection, handover, HandoverState.DONE, reason="decided by hand", now=now)
            return wants.change(connection, handover.want_id, WantState.DONE, reason="decided by hand", now=now)
        downloads.change(connection, handover, HandoverState.WAITING, reason="decided by hand", now=now)
        want = wants.change(connection, handover.want_id, WantState.SENDING, reason="is sent again", now=now)
        _run_now(connection, self.make_handover(want), now=now)
        return want


def _run_now(connection: Connection, job: NewJob, *, now: datetime) -> None:
    """Also when such a job is there and waits for a later time."""
    jobs.enqueue(connection, job, now=now)
    assert job.dedupe_key is not None
    jobs.hurry(connection, job.kind, job.dedupe_key, now=now)


def _check_not_sent(connection: Connection, want_id: int) -> None:
    """What a target has, or may have, is not searched or sent a second time."""
    sent = downloads.live_of(connection, want_id)
    if sent is not None:
        raise CannotHandOver(
            f"want {want_id} was given to {sent.target} and is {sent.state.value} there;"
            f" remove it there, or decide about download {sent.id} when it is held"
        )


def _unwatch(connection: Connection, wanted: str) -> Artist:
    artist = watchlist.find(connection, wanted)
    watchlist.remove(connection, artist.id)
    return artist


def _check_artist(connection: Connection, wanted: str, *, now: datetime) -> Artist:
    artist = watchlist.find(connection, wanted)
    watchlist.check_now(connection, artist.id, now=now)
    return artist


def _view(connection: Connection, want_id: int) -> WantView:
    return WantView(
        want=wants.find(connection, want_id),
        candidates=tuple(wants.candidates(connection, want_id)),
        handovers=tuple(downloads.of_want(connection, want_id)),
    )


def _ignore(connection: Connection, want_id: int, *, now: datetime) -> Want:
    return wants.change(connection, want_id, WantState.IGNORED, reason="by hand", now=now)
