"""One artist, saved search, price or handover that raises an unexpected exception fails alone and backs off."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any

import attrs
import pytest
import trio
from attrs import define, field
from trio.testing import MockClock

from actors import Environment
from actors.watch import due_enqueuer
from actors.watch.watch_jobs import collect_jobs
from cormorant.rules.events import ChildCrashed, ItemFailed
from cormorant.rules.settings.watch import PriceSettings, WatchlistSettings
from cormorant.rules.watch.artists import Artist, Charge, RetryCharge
from cormorant.rules.watch.events import SavedSearchChecked
from cormorant.rules.watch.handovers import FOLLOW_S, Parcel, ParcelStatus
from cormorant.rules.watch.prices import PriceCollected
from cormorant.rules.watch.wants import Want
from cormorant.scripted import ScriptedCatalogue, ScriptedTarget, WatchStep, album
from cormorant.testing import (
    START,
    Recorder,
    ScriptedSource,
    SimulatedClock,
    in_line,
    memory_gateway,
    settings,
)
from storage.jobs.jobs import NewJob
from storage.watch import watches
from storage.watch.choice import CandidateChoice
from supervisors import open_service
from tests.conformance.searching import search_place
from tests.conformance.test_collecting import Shop, service_of
from tests.conformance.watchlist.test_saved_searches import save
from tests.conformance.watchlist.watching import watch, watch_place
from tests.environments import environment_of

REASON = "an unexpected error, please report it: "


def failed(events: Recorder) -> list[tuple[str, str, str]]:
    return [(each.kind, each.item, each.error) for each in events.of(ItemFailed)]


async def test_a_mistake_for_one_artist_fails_it_alone_and_it_waits_twice_as_long_each_time(clock: MockClock) -> None:
    with watch_place() as place:
        place.catalogue.scripts["bad"] = [KeyError("albums")]
        async with place.service(every_s=600.0) as service:
            await trio.sleep(1)
            await watch(service, "bad", "good")

            await trio.sleep(1_300)

            bad = next(each for each in await service.artists.all() if each.artist_id == "bad")
        times = {who: [at for at, asked in place.catalogue.asked if asked == who] for who in ("bad", "good")}

        # After 1, 2, 4, 8 min; a tick begins every minute.
        assert times == {"bad": [60.0, 120.0, 240.0, 480.0, 960.0], "good": [60.0, 660.0, 1_260.0]}
        assert (bad.failures, bad.last_error) == (5, f"{REASON}KeyError: 'albums'")
        assert failed(place.events) == [("artist", "BAD", "KeyError: 'albums'")] * 5
        assert "in albums_page" in place.events.of(ItemFailed)[0].traceback
        assert place.events.of(ChildCrashed) == []


async def test_an_outage_in_the_middle_of_a_look_charges_nothing(clock: MockClock) -> None:
    with watch_place() as place:
        place.catalogue.takes_s = 1.0
        place.catalogue.scripts["a1"] = [[album("New", "2026-01-01")]]
        async with place.service(every_s=600.0) as service:
            await watch(service, "a1")
            await trio.sleep(60.5)
            place.gateway.go_away()
            await trio.sleep(120)
            place.gateway.come_back()
            await trio.sleep(120)
            [artist] = await service.artists.all()

        assert (artist.failures, artist.last_error) == (0, None)
        assert failed(place.events) == []


@define
class BrokenStore:
    """Keeps two artists in memory. The connection of the embedding program breaks in chosen methods."""

    artists: dict[str, Artist]
    broken: set[tuple[str, str]] = field(factory=set)
    """Pairs of method and artist id; claim and release have no artist."""
    wanted: list[str] = field(factory=list)

    def check(self, method: str, artist_id: str = "") -> None:
        if (method, artist_id) in self.broken:
            raise ConnectionError(f"{method}: connection reset by peer")

    async def claim(self, *, now: datetime, until: datetime, limit: int) -> tuple[list[Artist], list[Artist]]:
        await trio.lowlevel.checkpoint()
        self.check("claim")
        return [each for each in self.artists.values() if each.next_attempt_at <= now], []

    async def release(self, artists: Sequence[Artist], *, next_attempt_at: datetime | None = None) -> None:
        await trio.lowlevel.checkpoint()
        self.check("release")

    async def succeed(
        self, artist: Artist, wanted: Sequence[Want], *, looked_at: datetime, next_attempt_at: datetime
    ) -> list[Want]:
        await trio.lowlevel.checkpoint()
        self.check("succeed", artist.artist_id)
        self.artists[artist.artist_id] = attrs.evolve(artist, watermark=looked_at, next_attempt_at=next_attempt_at)
        self.wanted += [want.title for want in wanted]
        return list(wanted)

    async def fail(
        self, artist: Artist, charge: Charge, *, next_attempt_at: datetime, error: str, now: datetime
    ) -> RetryCharge:
        await trio.lowlevel.checkpoint()
        self.check("fail", artist.artist_id)
        cost = charge(artist)
        self.artists[artist.artist_id] = attrs.evolve(
            artist, failures=cost.failures, last_error=error, next_attempt_at=next_attempt_at
        )
        return cost


async def test_a_store_that_returns_an_artist_twice_does_not_stop_the_ticker(clock: MockClock) -> None:
    artist = Artist(source="own", artist_id="a1", name="A1", next_attempt_at=START, added_at=START)
    store, events = BrokenStore({"first": artist, "second": artist}), Recorder()

    with memory_gateway() as gateway:
        async with open_service(
            settings(watchlist=WatchlistSettings(db_io_mode="async")),
            environment=environment_of(
                clock=SimulatedClock(),
                offload=in_line,
                database=gateway,
                catalogue=ScriptedCatalogue(takes_s=1.0),
                watchlist=store,
                listeners=[events],
            ),
        ):
            await trio.sleep(200)

    assert (failed(events), events.of(ChildCrashed)) == ([], [])


@pytest.mark.parametrize(
    "broken",
    [
        {("claim", "")},
        {("succeed", "a1")},
        {("succeed", "a1"), ("fail", "a1")},
        {("release", "")},
    ],
    ids=["claim", "succeed", "succeed and fail", "release"],
)
async def test_a_store_whose_connection_breaks_does_not_stop_the_service(
    clock: MockClock, broken: set[tuple[str, str]]
) -> None:
    artists = {
        each: Artist(source="own", artist_id=each, name=each.upper(), next_attempt_at=START, added_at=START)
        for each in ("a1", "a2")
    }
    store, events = BrokenStore(artists, set(broken)), Recorder()
    out: dict[str, list[WatchStep]] = {each: [[album(f"New of {each}", "2026-01-01", by=each)]] for each in artists}
    slow = ("release", "") in broken  # the tick ends in the middle of a look and gives the artists back
    catalogue = ScriptedCatalogue(scripts=out, takes_s=20.0 if slow else 0.0)
    chosen = settings(watchlist=WatchlistSettings(db_io_mode="async", spotify_timeout_s=30.0))

    with memory_gateway() as gateway:
        async with open_service(
            chosen,
            environment=environment_of(
                clock=SimulatedClock(),
                offload=in_line,
                database=gateway,
                catalogue=catalogue,
                watchlist=store,
                listeners=[events],
            ),
        ):
            await trio.sleep(30)
            first = failed(events)
            store.broken.clear()
            catalogue.takes_s = 0.0
            await trio.sleep(120)

    assert {kind for kind, _, _ in first} <= {"artist", "watchlist"}
    assert first
    assert all("connection reset by peer" in error for _, _, error in first)
    assert sorted(store.wanted) == ["New of a1", "New of a2"]
    assert events.of(ChildCrashed) == []


@pytest.mark.slow("rounds of a whole service")
async def test_a_mistake_in_one_saved_search_fails_it_alone(clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    real = CandidateChoice.judge

    def broken(self: CandidateChoice, want: Want, *words: Any, **more: Any) -> Any:
        if want.watch == "saved:bad":
            raise KeyError("profile")
        return real(self, want, *words, **more)

    monkeypatch.setattr(CandidateChoice, "judge", broken)
    with watch_place("qbittorrent") as place:
        place.sources["indexer"] = ScriptedSource(["old"], ["old"], ["old", "new"])
        async with place.service() as service:
            for name in ("bad", "good"):
                await save(service, name)
            await trio.sleep(1_300)
            bad = next(each for each in await service.saved_searches.all() if each.name == "bad")

        # Its first check only learns what is there. The two that fail keep the interval of ten minutes.
        assert failed(place.events) == [("saved search", "bad", "KeyError: 'profile'")] * 2
        assert bad.last_error == f"{REASON}KeyError: 'profile'"
        assert [each.error for each in place.events.of(SavedSearchChecked) if each.saved == "good"] == [None] * 3
        assert place.events.of(ChildCrashed) == []


@pytest.mark.slow("a whole service")
async def test_a_mistake_for_one_price_fails_it_alone(clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(environment: Environment, intake: Any, place: int = 0, **words: Any) -> list[NewJob]:
        if intake.name == "bad":
            raise KeyError("sources")
        return collect_jobs(environment, intake, place, **words)

    monkeypatch.setattr(due_enqueuer, "collect_jobs", broken)
    watched = {name: PriceSettings(title="Morgan Dollar", every_s=600.0) for name in ("bad", "good")}
    with search_place(shop=Shop()) as place:
        async with service_of(place, prices=watched):
            await trio.sleep(1_290)

        # Both keep their interval of ten minutes; a round begins every 30 s.
        assert failed(place.events) == [("price", "bad", "KeyError: 'sources'")] * 3
        assert [each.price for each in place.events.of(PriceCollected)] == ["good"] * 3
        assert place.events.of(ChildCrashed) == []


@pytest.mark.slow("rounds of a whole service")
async def test_a_price_of_which_nothing_can_be_stored_is_tried_once_in_a_round(
    clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried_at, postpone = list[float](), watches.postpone

    def refuse(*args: Any, **words: Any) -> None:
        tried_at.append(trio.current_time())
        if len(tried_at) <= 20:
            raise RuntimeError("no such row can be")
        postpone(*args, **words)  # so that a round without an end fails the test and does not hang

    monkeypatch.setattr(due_enqueuer, "TOGETHER", 1)
    monkeypatch.setattr(due_enqueuer, "collect_jobs", _refuse)
    monkeypatch.setattr(watches, "postpone", refuse)
    with search_place(shop=Shop()) as place:
        async with service_of(place, prices={"bad": PriceSettings(title="Morgan Dollar")}):
            await trio.sleep(70)

        assert sorted(set(tried_at)) == [0.0, due_enqueuer.AGAIN_S]
        assert len(tried_at) <= 2 * 2, "the database runs a call that failed beside others a second time, alone"
        assert place.events.of(ChildCrashed) == []


@define(eq=False)
class OddTarget(ScriptedTarget):
    """Cannot say what became of one parcel."""

    bad: Sequence[str] = ("bad",)
    bad_at: list[float] = field(factory=list)

    async def status(self, parcel: Parcel, receipt: ParcelStatus | None) -> ParcelStatus:
        if parcel.title in self.bad:
            self.bad_at.append(trio.current_time())
            raise KeyError("progress")
        return await super().status(parcel, receipt)


@pytest.mark.slow("rounds of a whole service")
async def test_a_mistake_for_one_handover_fails_it_alone_and_it_is_followed_later(clock: MockClock) -> None:
    with watch_place("qbittorrent") as place:
        place.targets["qbittorrent"] = target = OddTarget()
        place.sources["indexer"] = ScriptedSource([], ["bad", "good"])
        async with place.service() as service:
            await save(service, "new")
            await trio.sleep(3_600)
            states = {want.title: want.state.value for want in await service.wants.page()}

        waits = [later - sooner for sooner, later in pairwise(target.bad_at)]
        assert states == {"bad": "handed over", "good": "done"}
        assert failed(place.events) == [("handover", "bad", "KeyError: 'progress'")] * len(target.bad_at)
        assert len(waits) > 2
        assert min(waits) >= FOLLOW_S
        # Ever longer, but for the second by which a tick may follow the one before.
        assert all(later > sooner - 1.0 for sooner, later in pairwise(waits))
        assert waits[-1] > 2 * waits[0]
        assert place.events.of(ChildCrashed) == []


@pytest.mark.slow("rounds of a whole service")
async def test_handovers_of_which_nothing_can_be_stored_are_asked_for_once_in_a_round(
    clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    titles = [f"find {number}" for number in range(4)]
    with watch_place("qbittorrent") as place:
        place.targets["qbittorrent"] = target = OddTarget(bad=titles)
        place.sources["indexer"] = ScriptedSource([], titles)
        async with place.service() as service:
            await save(service, "new")
            await trio.sleep(700)
            target.bad_at.clear()
            with monkeypatch.context() as wrong:
                wrong.setattr("storage.watch.handovers.change", _refuse)
                await trio.sleep(2 * FOLLOW_S)

        assert 0 < len(target.bad_at) <= 4 * len(titles)


def _refuse(*_: Any, **__: Any) -> Any:
    raise RuntimeError("no such row can be")
