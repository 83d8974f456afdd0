"""What does the web need of watching? Only this; the composition hands it in."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Protocol

from cormorant.rules.search.requests import SearchRequest
from cormorant.rules.watch.artists import Artist, Start
from cormorant.rules.watch.handing import TargetView
from cormorant.rules.watch.handovers import Handover
from cormorant.rules.watch.releases import Artist as FoundArtist
from cormorant.rules.watch.wants import Want, WantState
from cormorant.rules.watch.watches import FirstCheck, SavedSearch
from storage.watch.wants import WantView

__all__ = ["WatchesPort"]


class WatchesPort(Protocol):
    """Artists, saved searches, wants, downloads and targets."""

    async def find_artist(self, wanted: str) -> FoundArtist:
        """Who is meant by a name, an id or a link."""
        ...

    async def watch_artist(  # noqa: PLR0913 - what can be said of an artist, all but two with a default
        self,
        artist_id: str,
        *,
        name: str,
        source: str | None = None,
        start: Start = Start.NOW,
        start_on: date | None = None,
        every_s: float | None = None,
        sources: Sequence[str] = (),
        profile: str = "",
        targets: Sequence[str] = (),
    ) -> Artist | None:
        """Watch an artist; None when it is watched already."""
        ...

    async def unwatch_artist(self, wanted: str) -> Artist:
        """Watch an artist no more."""
        ...

    async def artists(self) -> list[Artist]:
        """Everybody on the watchlist."""
        ...

    async def check_artist(self, wanted: str) -> Artist:
        """Look at an artist at the next tick."""
        ...

    async def pause_artist(self, wanted: str, *, is_paused: bool = True) -> Artist:
        """Leave an artist alone, or go on."""
        ...

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
        """Repeat a search from now on."""
        ...

    async def forget_search(self, name: str) -> None:
        """Repeat a search no more."""
        ...

    async def saved(self) -> list[SavedSearch]:
        """All saved searches."""
        ...

    async def pause_search(self, name: str, *, is_paused: bool = True) -> None:
        """Leave a saved search alone, or go on."""
        ...

    async def check_search(self, name: str) -> None:
        """Repeat a saved search at the next look."""
        ...

    async def wants(
        self,
        *,
        state: WantState | None = None,
        has_ignored: bool = True,
        before_id: int | None = None,
        limit: int = 100,
    ) -> list[Want]:
        """The latest wants."""
        ...

    async def want(self, want_id: int) -> WantView:
        """One want with its candidates."""
        ...

    async def retry(self, want_id: int) -> Want:
        """Search again."""
        ...

    async def ignore(self, want_id: int) -> Want:
        """Want something no more."""
        ...

    async def hand_over(self, want_id: int, *, ref: str | None = None) -> Want:
        """Hand a find over by hand."""
        ...

    async def downloads(self, *, before_id: int | None = None, limit: int = 100) -> list[Handover]:
        """What was handed over."""
        ...

    async def download(self, number: int) -> Handover:
        """One of them."""
        ...

    async def settle(self, number: int, *, has_arrived: bool) -> Want:
        """Decide about a handover that is held."""
        ...

    def targets(self) -> list[TargetView]:
        """Those that finds can be handed to."""
        ...

    async def test_target(self, name: str) -> str:
        """Try a target out."""
        ...
