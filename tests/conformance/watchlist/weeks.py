"""A world for simulated weeks: artists that release, and catalogues, sources and targets that do anything but keep count."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import trio
from attrs import define, field

from cormorant.clients.files import Download
from cormorant.rules.errors import CormorantError
from cormorant.rules.search.outcomes import CredentialsRefused, SourceLimited, SourceRefused, SourceUnavailable
from cormorant.rules.search.requests import Result, SearchPage, SearchRequest
from cormorant.rules.settings.settings import JobSettings
from cormorant.rules.settings.watch import TargetSettings, WatchlistSettings
from cormorant.rules.watch.artists import Artist as Watched
from cormorant.rules.watch.handovers import (
    HandoverState,
    Parcel,
    ParcelKind,
    ParcelState,
    ParcelStatus,
    TargetInDoubt,
    TargetMisconfigured,
    TargetRefused,
    TargetUnavailable,
)
from cormorant.rules.watch.releases import Album, AlbumPage, Track
from cormorant.rules.watch.releases import CatalogueArtist as FoundArtist
from cormorant.rules.watch.wants import Want, WantState
from cormorant.scripted import album
from cormorant.testing import Recorder, Simulation, in_line, named_sources, settings
from storage.database import Database
from storage.search.sources import SourceRecord
from supervisors import Service, open_service
from tests.environments import environment_of

ARTISTS = ("a1", "a2")
SOURCES = ("one", "two")
CATALOGUE_MOODS = ("fine", "unavailable", "limited", "slow", "refused")
SOURCE_MOODS = ("fine", "nothing", "broken", "limited", "no torrent", "no download", "credentials")
TARGET_MOODS = ("fine", "refuses", "away", "away for long", "in doubt, taken", "in doubt, not taken", "hangs", "locked")
FATES = ("done", "runs", "fails", "stalls", "removed")
DAY_S = 86_400.0
PAGE = 2
"""So many releases are on a page."""
STEP_S = 100.0
"""How long the service lives after each thing that happens; the rest of the day is jumped over."""
SWEEP_S = 1_300.0
"""Longer than the sweep for wants without a job takes to notice one."""


@define(eq=False)
class MoodyCatalogue:
    """Knows what is out, and says so when it feels like it."""

    out: dict[str, list[Album]] = field(factory=lambda: {artist: [] for artist in ARTISTS})
    mood: str = "fine"

    async def albums_page(self, artist: Watched, *, after: str | None, timeout_s: float) -> AlbumPage:
        with trio.fail_after(timeout_s):
            await trio.sleep(100.0 if self.mood == "slow" else 0.1)
        self._raise()
        out, begin = self.out[artist.artist_id], int(after or 0)
        end = begin + PAGE
        return AlbumPage(albums=tuple(out[begin:end]), next=str(end) if end < len(out) else None)

    async def tracks_of(self, _artist: Watched, album: Album, *, timeout_s: float) -> Sequence[Track]:
        with trio.fail_after(timeout_s):
            await trio.sleep(0.1)
        return [Track(id=f"{album.id}-1", title="one", number=1)]

    async def find_artist(
        self, source: str, wanted: str, *, timeout_s: float, max_wait_s: float | None = None
    ) -> FoundArtist:
        raise SourceRefused(f"nobody asks {source} for {wanted} here: {timeout_s}, {max_wait_s}")

    def _raise(self) -> None:
        if self.mood == "unavailable":
            raise SourceUnavailable("it is away")
        if self.mood == "limited":
            raise SourceLimited("slower", retry_after_s=DAY_S)
        if self.mood == "refused":
            raise SourceRefused("no such artist")


@define(eq=False)
class MoodyTarget:
    """Takes parcels, counts how often each with effect, and sees when two candidates of one release are there."""

    can_be_asked: bool
    takes: frozenset[ParcelKind] = frozenset(ParcelKind)
    mood: str = "fine"
    fate: str = "done"
    shows_after_s: float = 0.0
    taken: Counter[str] = field(factory=Counter)
    since: dict[str, float] = field(factory=dict)
    fates: dict[str, str] = field(factory=dict)
    shown: set[str] = field(factory=set)
    about: dict[str, str] = field(factory=dict)
    """Which release a parcel is of."""

    async def submit(self, parcel: Parcel) -> ParcelStatus:
        await trio.lowlevel.checkpoint()
        self._refuse(parcel)
        if self.mood != "in doubt, not taken":
            self._take(parcel)
        if self.mood == "hangs":
            await trio.sleep_forever()
        if self.mood.startswith("in doubt"):
            raise TargetInDoubt("the connection broke")
        return ParcelStatus(target_id=parcel.key, standing=ParcelState.PRESENT)

    def _refuse(self, parcel: Parcel) -> None:
        if self.mood == "refuses":
            if parcel.key in self.fates:
                self.fates[parcel.key] = "fails"  # it was there, and the target says no: it wants it no more
            raise TargetRefused("not this one")
        if self.mood == "locked":
            raise TargetMisconfigured("wrong password")
        if self.mood.startswith("away"):
            raise TargetUnavailable("it is away", retry_after_s=3_600.0 if self.mood == "away for long" else None)

    def _take(self, parcel: Parcel) -> None:
        self.taken[parcel.key] += 1
        self.about[parcel.key] = parcel.folder_parts["title"]
        self.since.setdefault(parcel.key, trio.current_time())
        self.fates.setdefault(parcel.key, self.fate)

    async def status(self, parcel: Parcel, _receipt: ParcelStatus | None) -> ParcelStatus:
        await trio.lowlevel.checkpoint()
        if self.mood.startswith("away"):
            raise TargetUnavailable("it is away")
        since = self.since.get(parcel.key)
        if since is None or trio.current_time() < since + self.shows_after_s:
            return ParcelStatus(standing=ParcelState.ABSENT)
        if parcel.key not in self.shown:
            self.shown.add(parcel.key)  # nobody removes what was not there to be seen
            return ParcelStatus(target_id=parcel.key, standing=ParcelState.RUNNING)
        return _said(parcel.key, self.fates[parcel.key])

    async def test(self) -> str:
        await trio.lowlevel.checkpoint()
        return "moody"

    def there(self) -> Counter[str]:
        """How many parcels of each release are there and have not failed."""
        return Counter(self.about[key] for key, fate in self.fates.items() if fate not in {"fails", "stalls"})


def _said(key: str, fate: str) -> ParcelStatus:
    standing = {"done": ParcelState.DONE, "fails": ParcelState.FAILED, "removed": ParcelState.ABSENT}.get(
        fate, ParcelState.RUNNING
    )
    return ParcelStatus(target_id=key, standing=standing, is_stalled=fate == "stalls")


@define(eq=False)
class Weeks:
    """Everything around a service that is started again and again."""

    simulation: Simulation
    gateway: Database
    kind: str
    """Whether the target can be asked; if not, what is set for it."""
    chance: random.Random
    catalogue: MoodyCatalogue = field(factory=MoodyCatalogue)
    moods: dict[str, str] = field(factory=lambda: dict.fromkeys(SOURCES, "fine"))
    target: MoodyTarget = field(init=False)
    events: Recorder = field(factory=Recorder)
    sent_by_hand: Counter[str] = field(factory=Counter)
    """How often a person had a parcel sent again."""
    refusals: list[str] = field(factory=list)

    def __attrs_post_init__(self) -> None:
        self.target = MoodyTarget(can_be_asked=self.kind == "asked")

    def service(self) -> Service:
        """The service, on what the one before left behind."""
        in_doubt = "hold" if self.kind == "asked" else self.kind
        return open_service(
            settings(
                mode="live",
                sources=named_sources(*SOURCES, spacing_s=0.0, pace_s=0.0),
                jobs=JobSettings(poll_s=40.0, heartbeat_s=60.0, sweep_s=3_600.0),
                watchlist=WatchlistSettings(hand_to=("target",), interval_s=40.0, every_s=3_600.0),
                targets={"target": TargetSettings(url="http://target.test", in_doubt=in_doubt, stalled_s=3_600.0)},
            ),
            environment=environment_of(
                clock=self.simulation.clock,
                chance=self.simulation.chance,
                offload=in_line,
                database=self.gateway,
                listeners=[self.events],
                search=self.ask,
                download=self.fetch,
                catalogue=self.catalogue,
                targets={"target": self.target},
            ),
        )

    async def ask(self, record: SourceRecord, request: SearchRequest) -> SearchPage:
        """Every source finds two things for everything."""
        await trio.sleep(0.1)
        mood = self.moods[record.name]
        if mood == "broken":
            raise SourceUnavailable("broken")
        if mood == "limited":
            raise SourceLimited("slower", retry_after_s=DAY_S)
        if mood == "credentials":
            raise CredentialsRefused("wrong key")
        if mood == "nothing":
            return SearchPage(results=())
        titles = [f"{request.query} by {record.name}, {number}" for number in (1, 2)]
        return SearchPage(
            results=tuple(
                Result(title=title, guid=title, link=f"http://{record.name}.test/{title}", protocol="torrent")
                for title in titles
            )
        )

    async def fetch(self, record: SourceRecord, link: str) -> Download:
        """A torrent, unless the source is in no mood."""
        await trio.sleep(0.1)
        if self.moods[record.name] == "no torrent":
            raise SourceRefused("what it gave is HTML")
        if self.moods[record.name] == "no download":
            raise SourceUnavailable("no answer")
        infohash = random.Random(link).randbytes(20).hex()
        return Download(kind="torrent", body=b"d4:infod4:name1:aee", infohash=infohash)

    def release(self, artist: str, *, late_days: int) -> None:
        """Something comes out; the catalogue knows it late, and dates it back."""
        day = self.simulation.clock.now().toordinal() - late_days
        first = self.simulation.clock.start.toordinal()
        released = self.simulation.clock.now().fromordinal(max(day, first)).date().isoformat()
        number = sum(map(len, self.catalogue.out.values())) + 1
        self.catalogue.out[artist].append(album(f"Number {number}", released, by=artist))

    def titles(self) -> list[str]:
        """All that came out."""
        return [each.title for albums in self.catalogue.out.values() for each in albums]

    async def settle(self, service: Service) -> None:
        """A person looks at what is held, sees what the target really has, and says so."""
        for each in await service.wants.downloads(limit=1_000):
            if each.state is HandoverState.HELD:
                has_arrived = each.key in self.target.fates
                self.sent_by_hand[each.key] += not has_arrived
                await service.wants.settle(each.id, has_arrived=has_arrived)

    async def by_hand(self, service: Service, kind: str, number: int) -> None:
        """A person does something with a want; what cannot be done is said, and changes nothing."""
        wants = await service.wants.page(limit=1_000)
        if not wants:
            return
        want = wants[number % len(wants)]
        view = await service.wants.find(want.id)
        try:
            if kind == "retry":
                await service.wants.retry(want.id)
            elif kind == "ignore":
                await service.wants.ignore(want.id)
            else:
                ref = view.candidates[number % len(view.candidates)].ref if view.candidates else None
                await service.wants.hand_over(want.id, ref=ref)
        except CormorantError as refused:
            self.refusals.append(str(refused))

    async def check(self, service: Service) -> list[Want]:
        """What holds at any time."""
        wants = await service.wants.page(limit=1_000)
        for title, times in Counter(want.title for want in wants).items():
            assert times == 1, f"{title} is wanted {times} times"
            assert title in self.titles()
        for want in wants:
            assert want.reason, f"nobody knows why {want} is {want.state}"
        for title, there in self.target.there().items():
            assert there == 1, f"{there} parcels of {title} are at the target"
        for key, times in self.target.taken.items():
            may_be_twice = self.kind == "resend"
            assert times <= 1 + self.sent_by_hand[key] or may_be_twice, f"{key} was taken {times} times"
        crashed = [line for line in self.events.lines() if "child.crashed" in line]
        assert crashed == [], crashed
        return wants

    async def calm_down(self, service: Service) -> None:
        """Take every obstacle away: whatever waits must end now, week by week."""
        self.catalogue.mood = self.target.mood = "fine"
        self.target.fate = "done"
        self.moods = dict.fromkeys(SOURCES, "fine")
        self.target.fates = {key: "done" if fate == "runs" else fate for key, fate in self.target.fates.items()}
        wants: list[Want] = []
        left: list[Want] = []
        for _ in range(40):
            for name in SOURCES:
                await service.reset_source(name)
            await self.settle(service)
            await trio.sleep(SWEEP_S)
            wants = await self.check(service)
            left = [want for want in wants if want.state not in {WantState.DONE, WantState.GAVE_UP, WantState.IGNORED}]
            if not left and len(wants) == len(self.titles()):
                break
            self.simulation.clock.jump(8 * DAY_S)
        else:
            raise AssertionError(f"stuck: {left}, {len(wants)} wants for {len(self.titles())} releases")
        for want in wants:
            if want.state is WantState.DONE:
                keys = [key for key, title in self.target.about.items() if title == want.title]
                assert keys, f"{want} is said to be done, and the target never had it"
