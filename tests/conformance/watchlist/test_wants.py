"""From a want to its end: searched, chosen with reasons, handed over once, or in a state that says why not."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from cormorant.rules.search.outcomes import SourceRefused, SourceUnavailable
from cormorant.rules.settings.watch import ProfileSettings, TargetSettings
from cormorant.rules.watch.events import HandoverEnded, HandoverInDoubt, HandoverSent, WatchlistSearch
from cormorant.rules.watch.handovers import ParcelState, TargetInDoubt, TargetRefused, TargetUnavailable
from cormorant.rules.watch.wants import Want
from cormorant.scripted import ScriptedTarget, album
from cormorant.testing import BROKEN, ScriptedSource, busy
from supervisors import Service
from tests.conformance.watchlist.watching import WatchPlace, watch, watch_place

LONG_S = 200.0


def with_release(place: WatchPlace, *titles: str) -> None:
    """An artist with a new album, and an indexer that finds these."""
    place.catalogue.scripts["a1"] = [[album("New", "2026-01-01")]]
    place.sources.setdefault("indexer", ScriptedSource(list(titles)))


async def the_want(service: Service) -> Want:
    [want] = await service.wants.page()
    return want


async def test_a_release_is_searched_chosen_handed_over_and_followed_to_its_end(clock: MockClock) -> None:
    with watch_place("qbittorrent") as place:
        with_release(place, "A1 - New [FLAC]")
        async with place.service() as service:
            await watch(service, "a1")
            await trio.sleep(65)
            assert (await the_want(service)).state.value == "handed over"
            await trio.sleep(LONG_S)

            assert (await the_want(service)).state.value == "done"
        [(_, parcel)] = place.targets["qbittorrent"].given
        assert parcel.title == "A1 - New [FLAC]"
        assert place.sources["indexer"].requests[0].query == "A1 New"
        assert [event.times for event in place.events.of(HandoverSent)] == [1]


async def test_a_target_is_asked_as_often_as_is_set_and_seldom_once_it_takes_long(clock: MockClock) -> None:
    with watch_place("qbittorrent") as place:
        with_release(place, "A1 - New [FLAC]")
        target = place.targets["qbittorrent"]
        target.standing = ParcelState.RUNNING
        quick = {"qbittorrent": TargetSettings(url="http://target.test", follow_s=4.0)}
        async with place.service(targets=quick) as service:
            await watch(service, "a1")
            await trio.sleep(60 + LONG_S)

    waits = [later - sooner for sooner, later in zip([target.given[0][0], *target.looked], target.looked, strict=False)]
    assert all(4 <= wait <= 6 for wait in waits[:5])
    assert waits[-1] > 10


async def test_in_observe_mode_it_is_shown_what_would_be_handed_over_and_can_be_done_by_hand(clock: MockClock) -> None:
    with watch_place("qbittorrent") as place:
        with_release(place, "A1 - New [FLAC]")
        async with place.service(mode="observe") as service:
            await watch(service, "a1")
            await trio.sleep(LONG_S)

            want = await the_want(service)
            assert (want.state.value, want.reason) == ("chosen", "observe mode: would be handed to qbittorrent")
            assert place.targets["qbittorrent"].given == []
            assert place.fetched == []

            await service.wants.hand_over(want.id)
            await trio.sleep(1)
            assert len(place.targets["qbittorrent"].given) == 1


async def test_each_candidate_has_its_reasons_and_nothing_is_chosen_that_does_not_fit(clock: MockClock) -> None:
    with watch_place("qbittorrent") as place:
        with_release(place, "A1 - New [MP3]", "A1 - New (Karaoke) [FLAC]")
        flac = ProfileSettings(accept=("flac",), reject=("karaoke",))
        async with place.service(profiles={"flac": flac}, choose="flac") as service:
            await watch(service, "a1")
            await trio.sleep(65)

            want = await the_want(service)
            assert want.state.value == "wanted"
            assert want.reason.startswith("no candidate: 2 rejected")
            view = await service.wants.find(want.id)
            assert {each.result.title: each.reasons for each in view.candidates} == {
                "A1 - New [MP3]": ("title: none of flac",),
                "A1 - New (Karaoke) [FLAC]": ("title: karaoke is rejected",),
            }
        assert len(place.events.of(WatchlistSearch)) == 1
        assert place.targets["qbittorrent"].given == []


async def test_what_is_not_found_is_looked_for_again_and_found_when_it_is_there(clock: MockClock) -> None:
    with watch_place("qbittorrent") as place:
        with_release(place)
        place.sources["indexer"] = ScriptedSource([], ["A1 - New"])
        async with place.service(every_s=86_400.0) as service:
            await watch(service, "a1")
            await trio.sleep(3_600)
            assert len(place.sources["indexer"].asked_at) == 1
            await trio.sleep(700)

            assert len(place.sources["indexer"].asked_at) == 2
            assert (await the_want(service)).state.value in {"handed over", "done"}


async def test_a_source_that_fails_is_asked_again_and_the_others_only_once(clock: MockClock) -> None:
    with watch_place("qbittorrent") as place:
        with_release(place, "A1 - New")
        place.sources["shaky"] = ScriptedSource(BROKEN, ["A1 - New, the better one"])
        async with place.service() as service:
            await watch(service, "a1")
            await trio.sleep(900)

            assert (await the_want(service)).state.value in {"handed over", "done"}
        assert len(place.sources["indexer"].asked_at) == 1
        assert len(place.sources["shaky"].asked_at) == 2


async def test_a_source_that_is_closed_for_long_does_not_hold_up_what_fits_for_ever(clock: MockClock) -> None:
    with watch_place("qbittorrent") as place:
        with_release(place, "A1 - New")
        place.sources["closed"] = ScriptedSource(busy(retry_after_s=86_400.0))
        async with place.service() as service:
            await watch(service, "a1")
            await trio.sleep(4_000)

            assert (await the_want(service)).state.value in {"handed over", "done"}


async def test_a_candidate_that_is_no_torrent_or_that_the_target_refuses_gives_way_to_the_next(
    clock: MockClock,
) -> None:
    with watch_place("qbittorrent") as place:
        with_release(place, "A1 - New one", "A1 - New two", "A1 - New three")
        place.not_torrents["http://indexer.test/A1 - New one"] = SourceRefused("what it gave is HTML")
        place.targets["qbittorrent"].script = [TargetRefused("it does not like it")]
        async with place.service() as service:
            await watch(service, "a1")
            await trio.sleep(65)

            want = await the_want(service)
            view = await service.wants.find(want.id)
            assert want.state.value == "handed over"
            assert {each.result.title: each.failed_because for each in view.candidates} == {
                "A1 - New one": "what it gave is HTML",
                "A1 - New three": "it does not like it",
                "A1 - New two": None,
            }
        assert len(place.targets["qbittorrent"].has) == 1


async def test_when_every_candidate_was_tried_in_vain_it_is_given_up_with_the_reason(clock: MockClock) -> None:
    with watch_place("qbittorrent") as place:
        with_release(place, "A1 - New")
        place.targets["qbittorrent"].script = [TargetRefused("the disk is full")]
        async with place.service() as service:
            await watch(service, "a1")
            await trio.sleep(65)

            want = await the_want(service)
            assert want.state.value == "gave up"
            assert "the disk is full" in want.reason

            await service.wants.retry(want.id)
            await trio.sleep(5)
            assert (await the_want(service)).state.value == "handed over"


async def test_a_target_that_cannot_be_reached_is_given_it_later_without_being_asked(clock: MockClock) -> None:
    with watch_place("qbittorrent") as place:
        with_release(place, "A1 - New")
        target = place.targets["qbittorrent"]
        target.script = [TargetUnavailable("it is away", retry_after_s=30.0)]
        async with place.service() as service:
            await watch(service, "a1")
            await trio.sleep(65)
            assert (await the_want(service)).reason == "waits: it is away"
            await trio.sleep(30)

            assert (await the_want(service)).state.value == "handed over"
        assert len(target.has) == 1
        assert [round(time - target.given[0][0]) for time, _ in target.given] == [0, 30]


@pytest.mark.parametrize("has_arrived", [True, False])
async def test_in_doubt_the_target_is_asked_and_gets_it_once(clock: MockClock, *, has_arrived: bool) -> None:
    with watch_place("qbittorrent") as place:
        with_release(place, "A1 - New")
        target = place.targets["qbittorrent"]
        doubt = TargetInDoubt("the connection broke")
        target.after, target.script = ([doubt], []) if has_arrived else ([], [doubt])
        target.shows_after_s = 5.0
        async with place.service() as service:
            await watch(service, "a1")
            await trio.sleep(65)
            assert (await the_want(service)).state.value == "in doubt"
            await trio.sleep(60)

            assert (await the_want(service)).state.value in {"handed over", "done"}
        asked_after = [round(time - target.given[0][0]) for time in target.looked[:2]]
        assert asked_after[0] == 10
        assert len(target.given) == (1 if has_arrived else 2)
        assert len({parcel.key for _, parcel in target.given}) == 1
        assert len(place.events.of(HandoverInDoubt)) == 1


@pytest.mark.parametrize(("in_doubt", "given"), [("hold", 1), ("resend", 2)])
async def test_a_target_that_cannot_be_asked_is_sent_to_again_or_held_as_set(
    clock: MockClock, in_doubt: str, given: int
) -> None:
    with watch_place() as place:
        place.targets["hook"] = ScriptedTarget(can_be_asked=False, after=[TargetInDoubt("no answer")])
        with_release(place, "A1 - New")
        hook = TargetSettings(kind="webhook", url="http://target.test", in_doubt=in_doubt)
        async with place.service(targets={"hook": hook}) as service:
            await watch(service, "a1")
            await trio.sleep(LONG_S)

            want = await the_want(service)
            assert len(place.targets["hook"].given) == given
            assert want.state.value == ("in doubt" if in_doubt == "hold" else "done")
            if in_doubt == "hold":
                [held] = await service.wants.downloads()
                await service.wants.settle(held.id, has_arrived=True)
                assert (await the_want(service)).state.value == "done"


async def test_a_handover_that_fails_at_its_target_takes_the_next_candidate(clock: MockClock) -> None:
    with watch_place("qbittorrent") as place:
        with_release(place, "A1 - New one", "A1 - New two")
        target = place.targets["qbittorrent"]
        target.standing = ParcelState.FAILED
        async with place.service() as service:
            await watch(service, "a1")
            await trio.sleep(110)
            assert len(target.given) == 1
            await trio.sleep(60)
            target.standing = ParcelState.DONE
            await trio.sleep(LONG_S)

            assert (await the_want(service)).state.value == "done"
        assert len({parcel.key for _, parcel in target.given}) == 2


async def test_after_a_handover_that_failed_at_its_target_the_next_candidate_is_sent_at_once(clock: MockClock) -> None:
    with watch_place("qbittorrent") as place:
        with_release(place, "A1 - New one", "A1 - New two")
        target = place.targets["qbittorrent"]
        target.standing = ParcelState.FAILED
        async with place.service() as service:
            await watch(service, "a1")
            while not place.events.of(HandoverEnded):
                await trio.sleep(0.5)
            await trio.sleep(0.5)

        assert len({parcel.key for _, parcel in target.given}) == 2


async def test_a_stop_while_it_is_sent_is_found_out_after_the_next_start(clock: MockClock) -> None:
    with watch_place("qbittorrent") as place:
        with_release(place, "A1 - New")
        target = place.targets["qbittorrent"]
        target.hangs = True
        async with place.service() as service:
            await watch(service, "a1")
            await trio.sleep(65)
            assert (await the_want(service)).state.value == "sending"
        target.hangs = False

        async with place.service() as service:
            await trio.sleep(30)
            assert (await the_want(service)).state.value in {"handed over", "done"}
        assert len(target.given) == 1


async def test_the_same_release_of_two_artists_and_two_looks_is_wanted_once(clock: MockClock) -> None:
    with watch_place("qbittorrent") as place:
        with_release(place, "A1 - New")
        async with place.service(every_s=60.0) as service:
            await watch(service, "a1")
            await trio.sleep(400)

            assert len(await service.wants.page()) == 1
        assert len(place.targets["qbittorrent"].given) == 1


async def test_a_search_that_fails_counts_against_the_artist(clock: MockClock) -> None:
    with watch_place("qbittorrent") as place:
        with_release(place)
        place.sources["indexer"] = ScriptedSource(SourceUnavailable("it is away"))
        async with place.service(every_s=86_400.0) as service:
            await watch(service, "a1")
            await trio.sleep(65)

            [artist] = await service.artists.all()
            assert artist.failures == 1


@pytest.mark.slow("hours of a whole service")
async def test_where_no_peer_has_the_whole_album_its_tracks_are_wanted_one_by_one(clock: MockClock) -> None:
    with watch_place("slskd") as place:
        place.catalogue.scripts["a1"] = [[album("New", "2026-01-01", tracks=3)]]
        place.sources["slskd"] = ScriptedSource([], [], ["New 1"], ["New 2"], ["New 3"])
        async with place.service(search=("slskd",), every_s=86_400.0) as service:
            await watch(service, "a1")
            await trio.sleep(300)
            assert [want.kind for want in await service.wants.page()] == ["album"]
            await trio.sleep(12 * 3_600)

            found = {(want.kind, want.title): want for want in await service.wants.page()}
        asked = [request.params.get("title") for request in place.sources["slskd"].requests]
        assert found["album", "New"].reason == "no whole album; its 3 tracks are wanted one by one"
        assert {title for kind, title in found if kind == "track"} == {"New 1", "New 2", "New 3"}
        assert sorted(filter(None, asked)) == ["New 1", "New 2", "New 3"]
        assert len(place.targets["slskd"].has) == 3
