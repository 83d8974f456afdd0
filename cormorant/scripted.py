"""Sources that answer as a test tells them, and remember when they were asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import trio
from attrs import define, field

from cormorant.rules.search.outcomes import SourceError, SourceLimited, SourceRefused, SourceUnavailable
from cormorant.rules.search.requests import Result, SearchPage, SearchRequest
from cormorant.rules.settings.sources import SourceSettings
from cormorant.rules.watch.artists import Artist as Watched
from cormorant.rules.watch.handovers import Parcel, ParcelKind, ParcelState, ParcelStatus, TargetError
from cormorant.rules.watch.releases import Album, AlbumPage, CatalogueArtist, Track, read_release_date
from storage.search.sources import SourceRecord

Step = Sequence[str] | BaseException | Callable[[], Any]
"""Titles that are found, an error that is raised, or an async function that does something."""


def busy(retry_after_s: float | None = None) -> SourceLimited:
    """The source says that it is asked too fast."""
    return SourceLimited("asked too fast", retry_after_s=retry_after_s)


BUSY: Final = busy()
BROKEN: Final = SourceUnavailable("it is broken")


async def TIMEOUT() -> None:  # noqa: N802 - reads as a constant in a script
    """It never answers."""
    await trio.sleep_forever()


@define(eq=False, init=False)
class ScriptedSource:
    """Answers with one step after the other; the last one holds for ever. Without a script it finds nothing."""

    script: list[Step]
    takes_s: float
    asked_at: list[float] = field(factory=list)
    requests: list[SearchRequest] = field(factory=list)
    in_flight: int = 0
    in_flight_most: int = 0

    def __init__(self, *script: Step, takes_s: float = 0.0) -> None:
        self.script = list(script)
        self.takes_s = takes_s
        self.asked_at = []
        self.requests = []
        self.in_flight = self.in_flight_most = 0

    async def __call__(self, source: SourceRecord, request: SearchRequest) -> SearchPage:
        """Be asked."""
        self.asked_at.append(round(trio.current_time(), 6))
        self.requests.append(request)
        self.in_flight += 1
        self.in_flight_most = max(self.in_flight_most, self.in_flight)
        try:
            await trio.sleep(self.takes_s)
            return await self._answer(source)
        finally:
            self.in_flight -= 1

    async def _answer(self, source: SourceRecord) -> SearchPage:
        step: Step = (self.script.pop(0) if len(self.script) > 1 else self.script[0]) if self.script else ()
        if isinstance(step, SourceError):
            raise type(step)(str(step), retry_after_s=step.retry_after_s)
        if isinstance(step, BaseException):
            raise step
        if callable(step):
            await step()
            return SearchPage(results=())
        return SearchPage(results=tuple(_result(title, source.name) for title in step))


def _result(title: str, source: str) -> Result:
    return Result(title=title, guid=f"{source}:{title}", link=f"http://{source}.test/{title}", protocol="torrent")


def scripted(sources: Mapping[str, ScriptedSource]) -> Callable[[SourceRecord, SearchRequest], Any]:
    """What `open_service(ask=…)` takes: each source by its name."""

    async def ask(record: SourceRecord, request: SearchRequest) -> SearchPage:
        return await sources[record.name](record, request)

    return ask


def named_sources(*names: str, **limits: Any) -> dict[str, SourceSettings]:
    """Settings of sources that differ in name alone, for `settings(sources=…)`."""
    return {name: SourceSettings(url=f"http://{name}.test/api", **limits) for name in names}


WatchStep = Sequence[Album] | Exception
"""Albums that are out, or an error that is raised."""


def album(title: str, released: str = "2026-01-02", *, by: str = "a1", tracks: int = 10) -> Album:
    """An album of an artist."""
    return Album(
        id=f"{by}-{title}".replace(" ", "-").lower(),
        title=title,
        artists=(CatalogueArtist(id=by, name=by.upper()),),
        kind="album",
        group="album",
        released=read_release_date(released),
        tracks_total=tracks,
    )


@define(eq=False)
class ScriptedCatalogue:
    """Answers for each artist with one step after the other; the last one holds for ever. Nobody has released anything."""

    scripts: dict[str, list[WatchStep]] = field(factory=dict)
    takes_s: float = 0.0
    asked: list[tuple[float, str]] = field(factory=list)
    together: int = 0
    together_most: int = 0
    artists: list[CatalogueArtist] = field(factory=list)
    page_size: int | None = None
    """How many albums are on a page; None: all."""
    between: list[Exception] = field(factory=list)
    """Raised, one after the other, when a page after the first is asked for."""
    _out: dict[str, Sequence[Album]] = field(init=False, factory=dict)

    async def albums_page(self, artist: Watched, *, after: str | None, timeout_s: float) -> AlbumPage:
        """Be asked for albums; the address of a page is the number of its first album."""
        self.asked.append((round(trio.current_time(), 6), artist.artist_id))
        self.together += 1
        self.together_most = max(self.together_most, self.together)
        try:
            with trio.fail_after(timeout_s):
                await trio.sleep(self.takes_s)
        finally:
            self.together -= 1
        if after is None:
            self._out[artist.artist_id] = self._step(artist.artist_id)
        elif self.between:
            raise self.between.pop(0)
        out, begin = self._out[artist.artist_id], int(after or 0)
        end = len(out) if self.page_size is None else begin + self.page_size
        return AlbumPage(albums=tuple(out[begin:end]), next=str(end) if end < len(out) else None)

    def _step(self, artist_id: str) -> Sequence[Album]:
        steps = self.scripts.get(artist_id, [()])
        step = steps.pop(0) if len(steps) > 1 else steps[0]
        if isinstance(step, Exception):
            raise step
        return step

    async def tracks_of(self, artist: Watched, album: Album, *, timeout_s: float) -> Sequence[Track]:  # noqa: ARG002 - a port
        """Be asked for tracks."""
        await trio.lowlevel.checkpoint()
        return [
            Track(id=f"{album.id}-{n}", title=f"{album.title} {n}", number=n) for n in range(1, album.tracks_total + 1)
        ]

    async def find_artist(
        self,
        source: str,
        wanted: str,
        *,
        timeout_s: float,  # noqa: ARG002 - a port
        max_wait_s: float | None = None,  # noqa: ARG002 - as above
    ) -> CatalogueArtist:
        """Be asked who this is: everybody in `artists` is known, by id and by name."""
        await trio.lowlevel.checkpoint()
        self.asked.append((round(trio.current_time(), 6), wanted))
        found = next((each for each in self.artists if wanted in {each.id, each.name}), None)
        if found is None:
            raise SourceRefused(f"{source} knows no artist called {wanted!r}")
        return found


@define(eq=False)
class ScriptedTarget:
    """Takes parcels, each by its key once, and raises the errors of its script first.

    An error in `script` is raised instead of taking; one in `after` is raised although it was taken.
    """

    takes: frozenset[ParcelKind] = frozenset(ParcelKind)
    can_be_asked: bool = True
    script: list[TargetError] = field(factory=list)
    after: list[TargetError] = field(factory=list)
    standing: ParcelState = ParcelState.DONE
    """What it says of a parcel that it has."""
    shows_after_s: float = 0.0
    hangs: bool = False
    """It takes what it is given, and never answers."""
    given: list[tuple[float, Parcel]] = field(factory=list)
    """Every call, in order."""
    has: dict[str, float] = field(factory=dict)
    """Since when it has which parcel, by key."""
    looked: list[float] = field(factory=list)

    async def submit(self, parcel: Parcel) -> ParcelStatus:
        """Be given something."""
        await trio.lowlevel.checkpoint()
        self.given.append((trio.current_time(), parcel))
        if self.script:
            raise self.script.pop(0)
        self.has.setdefault(parcel.key, trio.current_time())
        if self.hangs:
            await trio.sleep_forever()
        if self.after:
            raise self.after.pop(0)
        return ParcelStatus(target_id=parcel.key, standing=ParcelState.PRESENT)

    async def status(self, parcel: Parcel, receipt: ParcelStatus | None) -> ParcelStatus:  # noqa: ARG002 - a port
        """Be asked about something."""
        await trio.lowlevel.checkpoint()
        self.looked.append(trio.current_time())
        since = self.has.get(parcel.key)
        if since is None or trio.current_time() < since + self.shows_after_s:
            return ParcelStatus(standing=ParcelState.ABSENT)
        return ParcelStatus(target_id=parcel.key, standing=self.standing)

    async def test(self) -> str:
        """Be tried out."""
        await trio.lowlevel.checkpoint()
        return "it is a script"
