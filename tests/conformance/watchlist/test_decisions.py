"""People decide while jobs run, jobs get lost, and targets cannot say: nothing is done twice, and nothing waits for ever."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio
from attrs import define
from trio.testing import MockClock

from cormorant.clients.files import Download
from cormorant.rules.jobs.events import JobFailed, JobRetried
from cormorant.rules.search.outcomes import SourceRefused, SourceUnavailable
from cormorant.rules.settings.watch import TargetSettings
from cormorant.rules.watch.artists import Artist
from cormorant.rules.watch.events import WatchlistProcess
from cormorant.rules.watch.handovers import (
    Parcel,
    ParcelState,
    ParcelStatus,
    TargetError,
    TargetInDoubt,
    TargetRefused,
    TargetUnavailable,
)
from cormorant.rules.watch.releases import Album, Track
from cormorant.rules.watch.wants import CannotHandOver, Want
from cormorant.scripted import ScriptedCatalogue, ScriptedTarget, album
from cormorant.testing import ScriptedSource, memory_gateway
from storage.jobs import jobs, reports
from storage.search.sources import SourceRecord
from supervisors import Service
from tests.conformance.watchlist.watching import WatchPlace, watch, watch_place

SWEPT_S = 1_300.0
"""By then a want without a job was noticed."""


def with_release(place: WatchPlace, *titles: str, takes_s: float = 0.0) -> None:
    """An artist with a new album, and an indexer that finds these."""
    place.catalogue.scripts["a1"] = [[album("New", "2026-01-01")]]
    place.sources.setdefault("indexer", ScriptedSource(list(titles), takes_s=takes_s))


async def the_want(service: Service) -> Want:
    [want] = await service.wants.page()
    return want


async def lose_jobs(service: Service, place: WatchPlace) -> None:
    """Cancel every job that waits or runs, as a person may who does not know what they are for."""
    for job in await place.gateway.read(reports.recent, limit=100):
        if job.state.value in {"pending", "retryable", "running"}:
            await place.gateway.run(jobs.cancel, job.id, now=place.clock.now())


@define
class SlowPlace(WatchPlace):
    """Where fetching takes its time."""

    async def fetch(self, record: SourceRecord, link: str) -> Download:
        await trio.sleep(10)
        return await super().fetch(record, link)


def crashes(place: WatchPlace) -> list[str]:
    return [line for line in place.events.lines() if " child.crashed " in line]


async def test_what_a_target_has_is_neither_searched_nor_sent_again_by_hand(clock: MockClock) -> None:
    with watch_place("qbittorrent") as place:
        with_release(place, "A1 - New", "A1 - New, another")
        place.targets["qbittorrent"].standing = ParcelState.RUNNING
        async with place.service() as service:
            await watch(service, "a1")
            await trio.sleep(65)
            want = await the_want(service)
            view = await service.wants.find(want.id)

            with pytest.raises(CannotHandOver, match="may be at its target already"):
                await service.wants.retry(want.id)
            with pytest.raises(CannotHandOver, match="may be at its target already"):
                await service.wants.hand_over(want.id, ref=view.candidates[1].ref)
            place.targets["qbittorrent"].standing = ParcelState.DONE
            await trio.sleep(200)
            assert (await the_want(service)).state.value == "done"
        assert crashes(place) == []


async def test_asked_for_by_hand_it_is_searched_at_once_however_far_the_next_look(clock: MockClock) -> None:
    with watch_place("qbittorrent") as place:
        with_release(place)
        place.sources["indexer"] = ScriptedSource([], ["A1 - New"])
        async with place.service() as service:
            await watch(service, "a1")
            await trio.sleep(65)
            want = await the_want(service)
            assert want.next_at is not None

            await service.wants.retry(want.id)
            await trio.sleep(2)
            assert (await the_want(service)).state.value == "handed over"


async def test_what_is_ignored_while_it_is_searched_stays_ignored(clock: MockClock) -> None:
    with watch_place("qbittorrent") as place:
        with_release(place, "A1 - New", takes_s=10.0)
        async with place.service() as service:
            await watch(service, "a1")
            await trio.sleep(65)
            want = await the_want(service)
            assert want.state.value == "searching"

            await service.wants.ignore(want.id)
            await trio.sleep(30)
            assert (await the_want(service)).state.value == "ignored"
        assert place.events.of(JobRetried) == []
        assert place.events.of(JobFailed) == []


@pytest.mark.slow("rounds of a whole service")
async def test_whoever_chooses_another_while_one_is_fetched_gets_that_one(clock: MockClock) -> None:
    with memory_gateway() as gateway:
        place = SlowPlace(gateway, targets={"qbittorrent": ScriptedTarget()})
        with_release(place, "A1 - New one", "A1 - New two")
        async with place.service() as service:
            await watch(service, "a1")
            await trio.sleep(65)
            want = await the_want(service)
            other = next(each for each in (await service.wants.find(want.id)).candidates if each.ref != want.chosen_ref)

            await service.wants.hand_over(want.id, ref=other.ref)
            await trio.sleep(60)
        assert [parcel.title for _, parcel in place.targets["qbittorrent"].given] == [other.result.title]


@pytest.mark.slow("rounds of a whole service")
async def test_a_chosen_find_whose_job_is_lost_is_handed_over_after_all(clock: MockClock) -> None:
    with memory_gateway() as gateway:
        place = SlowPlace(gateway, targets={"qbittorrent": ScriptedTarget()})
        with_release(place, "A1 - New")
        async with place.service() as service:
            await watch(service, "a1")
            await trio.sleep(65)
            assert (await the_want(service)).state.value == "chosen"
            await lose_jobs(service, place)

            await trio.sleep(SWEPT_S)
            assert (await the_want(service)).state.value == "done"


@pytest.mark.slow("rounds of a whole service")
async def test_a_job_that_was_lost_is_no_reason_to_look_sooner(clock: MockClock) -> None:
    with watch_place("qbittorrent") as place:
        with_release(place)
        async with place.service() as service:
            await watch(service, "a1")
            await trio.sleep(65)
            await lose_jobs(service, place)
            await trio.sleep(SWEPT_S)

            assert len(place.sources["indexer"].asked_at) == 1
            await trio.sleep(3_000)
            assert len(place.sources["indexer"].asked_at) == 2


async def test_a_database_that_is_away_in_the_middle_of_a_tick_crashes_nobody(clock: MockClock) -> None:
    with watch_place("qbittorrent") as place:
        with_release(place, "A1 - New")
        place.catalogue.takes_s = 2.0
        async with place.service(tick_budget_s=60.0) as service:
            await watch(service, "a1", "a2")
            await trio.sleep(61)
            place.gateway.go_away()
            await trio.sleep(45)
            place.gateway.come_back()
            await trio.sleep(300)

            assert (await the_want(service)).state.value in {"handed over", "done"}
        assert crashes(place) == []


async def test_a_clock_that_ran_ahead_and_was_set_back_makes_no_release_be_missed(clock: MockClock) -> None:
    with watch_place("qbittorrent") as place:
        place.catalogue.scripts["a1"] = [(), [album("New", "2026-01-01")]]
        place.sources["indexer"] = ScriptedSource([])
        async with place.service(every_s=30 * 86_400.0) as service:
            place.clock.jump(60 * 86_400.0)
            await watch(service, "a1", start="2025-12-01")
            await trio.sleep(65)
            place.clock.jump(-60 * 86_400.0)
            await trio.sleep(65)

            assert (await the_want(service)).title == "New"


class ShyCatalogue(ScriptedCatalogue):
    """Tells albums, and of tracks nothing."""

    async def tracks_of(self, artist: Artist, album: Album, *, timeout_s: float) -> Sequence[Track]:
        if album.title == "Broken":
            raise SourceUnavailable("no tracks")
        await trio.sleep(1_000)
        return ()


async def test_a_release_is_not_missed_because_its_tracks_cannot_be_had(clock: MockClock) -> None:
    with memory_gateway() as gateway:
        place = WatchPlace(gateway, catalogue=ShyCatalogue(), targets={"qbittorrent": ScriptedTarget()})
        place.catalogue.scripts["a1"] = [[album("Broken", "2026-01-01"), album("Endless", "2026-01-01")]]
        place.sources["indexer"] = ScriptedSource([])
        async with place.service() as service:
            await watch(service, "a1")
            await trio.sleep(75)

            assert {want.title for want in await service.wants.page()} == {"Broken", "Endless"}
        assert place.events.of(WatchlistProcess)[0].status == "ok"


class Silent(ScriptedTarget):
    """Can be asked, and cannot say."""

    async def status(self, parcel: Parcel, receipt: ParcelStatus | None) -> ParcelStatus:
        await trio.lowlevel.checkpoint()
        return ParcelStatus(standing=ParcelState.UNKNOWN, reason="it cannot say")


async def test_a_target_that_cannot_say_has_not_said_no(clock: MockClock) -> None:
    with memory_gateway() as gateway:
        target = Silent(after=[TargetInDoubt("the connection broke")])
        place = WatchPlace(gateway, targets={"qbittorrent": target})
        with_release(place, "A1 - New")
        held = TargetSettings(url="http://target.test", in_doubt="hold")
        async with place.service(targets={"qbittorrent": held}) as service:
            await watch(service, "a1")
            await trio.sleep(200)

            [download] = await service.wants.downloads()
            assert download.state.value == "held"
        assert len(target.given) == 1


async def test_what_may_have_arrived_and_cannot_be_fetched_again_is_held_and_not_replaced(clock: MockClock) -> None:
    with watch_place() as place:
        place.targets["hook"] = ScriptedTarget(can_be_asked=False, after=[TargetInDoubt("no answer")])
        with_release(place, "A1 - New one", "A1 - New two")
        hook = TargetSettings(kind="webhook", url="http://target.test", in_doubt="resend")
        async with place.service(targets={"hook": hook}) as service:
            await watch(service, "a1")
            await trio.sleep(65)
            for title in ("one", "two"):
                place.not_torrents[f"http://indexer.test/A1 - New {title}"] = SourceRefused("it is gone")
            await trio.sleep(60)

            [download] = await service.wants.downloads()
            assert (download.state.value, download.reason) == ("held", "it cannot be sent again: it is gone")
        assert len(place.targets["hook"].given) == 1


@pytest.mark.slow("rounds of a whole service")
@pytest.mark.parametrize(
    ("second", "state"), [(TargetRefused("no"), "held"), (TargetUnavailable("away", retry_after_s=1e5), "in doubt")]
)
async def test_what_may_have_arrived_and_is_not_taken_a_second_time_is_not_replaced(
    clock: MockClock, second: TargetError, state: str
) -> None:
    with watch_place() as place:
        hook = place.targets["hook"] = ScriptedTarget(can_be_asked=False, script=[TargetInDoubt("no answer"), second])
        with_release(place, "A1 - New one", "A1 - New two")
        said = TargetSettings(kind="webhook", url="http://target.test", in_doubt="resend")
        async with place.service(targets={"hook": said}) as service:
            await watch(service, "a1")
            await trio.sleep(100)

            [download] = await service.wants.downloads()
            assert download.state.value == state
        assert len(hook.given) == 2


async def test_what_waits_to_be_handed_over_is_only_shown_after_a_change_to_observe_mode(clock: MockClock) -> None:
    with watch_place("qbittorrent") as place:
        place.catalogue.scripts["a1"] = [[album("New", "2026-01-01")]]
        place.sources["indexer"] = ScriptedSource(["A1 - New"])
        async with place.service() as service:
            await service.jobs.pause_kind("handover")
            await watch(service, "a1")
            await trio.sleep(65)

        async with place.service(mode="observe") as service:
            await service.jobs.resume_kind("handover")
            await trio.sleep(60)
            [want] = await service.wants.page()

        assert place.targets["qbittorrent"].given == []
        assert (want.state.value, want.reason) == ("chosen", "observe mode: would be handed to qbittorrent")
