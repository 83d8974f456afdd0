"""The flow of a tick: who is due, within which budget, at what cost, on the mock clock with exact times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import attrs
import pytest
import trio
from trio.testing import MockClock

from cormorant.rules.search.outcomes import RateLimitWaitError, SourceLimited, SourceRefused, SourceUnavailable
from cormorant.rules.search.priorities import Priority
from cormorant.rules.watch.events import (
    CooldownClear,
    CooldownSet,
    CooldownSkip,
    WatchlistDownload,
    WatchlistProcess,
    WatchlistStopped,
    WatchlistTick,
)
from cormorant.scripted import album
from cormorant.testing import START, SimulatedClock
from tests.conformance.watchlist.watching import WatchPlace, file_gateway, watch, watch_place

BROKEN = SourceUnavailable("it is broken")


async def test_a_new_artist_is_looked_at_at_the_next_tick_and_again_when_its_time_has_come(clock: MockClock) -> None:
    with watch_place() as place:
        async with place.service(every_s=600.0) as service:
            await trio.sleep(1)
            await watch(service, "a1")

            await trio.sleep(1_300)

        assert place.catalogue.asked == [(60.0, "a1"), (660.0, "a1"), (1_260.0, "a1")]


async def test_what_was_out_before_is_not_wanted_and_what_comes_out_is(clock: MockClock) -> None:
    with watch_place() as place:
        old, new = album("Old", "2025-06-01"), album("New", "2026-01-01")
        place.catalogue.scripts["a1"] = [[old], [old, new]]
        async with place.service(every_s=600.0) as service:
            await watch(service, "a1")

            await trio.sleep(700)

            assert [want.title for want in await service.wants.page()] == ["New"]
        assert place.events.of(WatchlistDownload) == [WatchlistDownload(artist="A1", titles=("New",))]


async def test_a_back_catalogue_is_wanted_only_when_it_is_asked_for(clock: MockClock) -> None:
    with watch_place() as place:
        place.catalogue.scripts["a1"] = [[album("Old", "1998"), album("Older", "1981-12")]]
        async with place.service() as service:
            await watch(service, "a1", start="all")

            await trio.sleep(65)

            assert {want.title for want in await service.wants.page()} == {"Old", "Older"}


async def test_a_release_dated_by_its_year_alone_is_not_news_when_it_was_there_at_the_first_look(
    clock: MockClock,
) -> None:
    with watch_place() as place:
        place.clock = SimulatedClock(start=datetime(2026, 6, 1, tzinfo=UTC))
        vague, new = album("Vague", "2026"), album("Surprise", "2026")
        place.catalogue.scripts["a1"] = [[vague], [vague, new]]
        async with place.service(every_s=600.0) as service:
            await watch(service, "a1")

            await trio.sleep(700)

            states = {want.title: want.state.value for want in await service.wants.page()}
            assert states["Vague"] == "ignored"
            assert states["Surprise"] != "ignored"


async def test_a_release_that_came_out_between_a_failure_and_the_next_success_is_found(clock: MockClock) -> None:
    with watch_place() as place:
        out = album("Meanwhile", "2026-01-01")
        place.catalogue.scripts["a1"] = [[], BROKEN, BROKEN, BROKEN, [out]]
        async with place.service(every_s=600.0) as service:
            await watch(service, "a1")

            await trio.sleep(800)

            assert [want.title for want in await service.wants.page()] == ["Meanwhile"]


async def test_failures_are_tried_again_within_the_tick_with_jittered_doubling_waits(clock: MockClock) -> None:
    with watch_place() as place:
        place.catalogue.scripts["a1"] = [BROKEN, BROKEN, []]
        async with place.service(jitter=0.0) as service:
            await watch(service, "a1")

            await trio.sleep(65)

        times = [time for time, _ in place.catalogue.asked]
        assert [round(time - times[0], 6) for time in times] == [0.0, 0.25, 0.75]
        assert [(event.status, event.attempts, event.retries) for event in place.events.of(WatchlistProcess)] == [
            ("ok", 3, 2)
        ]


async def test_the_budget_of_an_artist_ends_in_a_cooldown_that_is_skipped_and_cleared(clock: MockClock) -> None:
    with watch_place() as place:
        place.catalogue.scripts["a1"] = [*[BROKEN] * 6, []]
        async with place.service(jitter=0.0) as service:
            await watch(service, "a1")

            await trio.sleep(130)

            until = START + timedelta(seconds=120.75 + 900)
            assert place.events.of(CooldownSet) == [CooldownSet(artist="A1", minutes=15.0, retry_block_until=until)]
            await trio.sleep(60)
            assert place.events.of(CooldownSkip)[0] == CooldownSkip(artist="A1", retry_block_until=until)
            asked = len(place.catalogue.asked)
            await trio.sleep(800)
            assert len(place.catalogue.asked) == asked == 6
            await trio.sleep(100)

        assert place.events.of(CooldownClear) == [CooldownClear(artist="A1")]


async def test_a_cooldown_survives_a_restart(clock: MockClock) -> None:
    with watch_place() as place:
        place.catalogue.scripts["a1"] = [*[BROKEN] * 6, []]
        async with place.service() as service:
            await watch(service, "a1")
            await trio.sleep(130)

        async with place.service() as service:
            await trio.sleep(300)
            assert len(place.catalogue.asked) == 6
            [artist] = await service.artists.all()
            assert artist.retry_block_until is not None
            await trio.sleep(900)

        assert len(place.catalogue.asked) == 7


async def test_no_more_artists_are_looked_at_together_than_allowed_nor_in_one_tick(clock: MockClock) -> None:
    with watch_place() as place:
        place.catalogue.takes_s = 0.5
        ids = [f"a{n}" for n in range(30)]
        async with place.service(every_s=3_600.0) as service:
            await watch(service, *ids)

            await trio.sleep(70)
            first = len(place.catalogue.asked)
            await trio.sleep(60)

        assert place.catalogue.together_most == 4
        assert first == 20
        by_time = sorted(place.catalogue.asked, key=lambda each: (each[0], ids.index(each[1])))
        assert [artist for _, artist in by_time] == ids


async def test_a_tick_that_runs_out_of_time_charges_nobody(clock: MockClock) -> None:
    with watch_place() as place:
        place.catalogue.takes_s = 5.0
        async with place.service(every_s=3_600.0, max_concurrency=1) as service:
            await watch(service, "a1", "a2", "a3")

            await trio.sleep(70)

            first = place.events.of(WatchlistTick)[0]
            assert (first.count, first.unstarted, first.duration_s) == (3, 1, 8.0)
            artists = await service.artists.all()
            assert [artist.failures for artist in artists] == [0, 0, 0]
            assert [artist.last_checked is not None for artist in artists] == [True, False, False]
            await trio.sleep(120)

        assert [artist for _, artist in place.catalogue.asked] == ["a1", "a2", "a3", "a2", "a2"]


async def test_a_call_may_take_no_longer_than_the_tick_has_left(clock: MockClock) -> None:
    with watch_place() as place:
        place.catalogue.takes_s = 60.0
        async with place.service(tick_budget_s=20.0, spotify_timeout_s=8.0, jitter=0.0) as service:
            await watch(service, "a1")

            await trio.sleep(100)

            [artist] = await service.artists.all()
            assert artist.failures == 0
        assert [time for time, _ in place.catalogue.asked][:3] == [60.0, 68.25, 76.75]
        assert place.events.of(WatchlistTick)[0].duration_s == 20.0
        assert place.events.of(WatchlistProcess)[0].status == "out of time"


async def test_artists_that_always_take_too_long_do_not_keep_others_from_their_turn(clock: MockClock) -> None:
    with watch_place() as place:
        place.catalogue.takes_s = 9.0
        async with place.service(max_concurrency=1) as service:
            await watch(service, "a1", "a2", "a3")

            await trio.sleep(190)

        assert [artist for _, artist in place.catalogue.asked] == ["a1", "a2", "a3"]


@pytest.mark.parametrize(
    "closed",
    [
        SourceLimited("asked too fast", retry_after_s=86_400.0),
        RateLimitWaitError("spotify", wait_s=86_400.0, max_wait_s=8.0, priority=Priority.BACKGROUND),
    ],
)
async def test_a_source_that_is_closed_for_a_day_is_stored_not_slept_and_charges_nobody(
    clock: MockClock, closed: Exception
) -> None:
    with watch_place() as place:
        place.catalogue.scripts["a1"] = [closed, []]
        async with place.service() as service:
            await watch(service, "a1")
            await trio.sleep(65)

            [artist] = await service.artists.all()
            assert artist.failures == 0
            assert artist.next_attempt_at == START + timedelta(seconds=60 + 86_400)
            assert place.events.of(WatchlistTick)[0].duration_s == 0.0
            assert place.events.of(WatchlistProcess)[0].status == "waiting"


async def test_an_artist_that_is_unknown_is_named_and_looked_at_when_its_time_comes_again(clock: MockClock) -> None:
    with watch_place() as place:
        place.catalogue.scripts["a1"] = [SourceRefused("Spotify knows no artist a1")]
        async with place.service(every_s=3_600.0) as service:
            await watch(service, "a1")
            await trio.sleep(300)

            [artist] = await service.artists.all()
            assert artist.last_error == "Spotify knows no artist a1"
            assert (artist.failures, len(place.catalogue.asked)) == (0, 1)


async def test_while_the_service_is_paused_nobody_is_looked_at(clock: MockClock) -> None:
    with watch_place() as place:
        async with place.service() as service:
            await service.pause()
            await watch(service, "a1")
            await trio.sleep(300)
            assert place.catalogue.asked == []

            await service.resume()
            await trio.sleep(60)

        assert len(place.catalogue.asked) == 1


async def test_an_artist_that_is_paused_is_left_alone_and_what_came_out_meanwhile_is_found(clock: MockClock) -> None:
    with watch_place() as place:
        place.catalogue.scripts["a1"] = [[], [album("Meanwhile", "2026-01-01")]]
        async with place.service(every_s=60.0) as service:
            await watch(service, "a1", "a2")
            await trio.sleep(65)
            await service.artists.pause("a1")
            await trio.sleep(300)
            assert [artist for _, artist in place.catalogue.asked].count("a1") == 1

            await service.artists.resume("A1")
            await trio.sleep(60)

            assert [artist for _, artist in place.catalogue.asked].count("a1") == 2
            assert [want.title for want in await service.wants.page()] == ["Meanwhile"]


@pytest.mark.parametrize("takes_s", [1.0, 100.0])
async def test_a_stop_in_the_middle_of_a_tick_ends_within_the_grace(clock: MockClock, takes_s: float) -> None:
    with watch_place() as place:
        place.catalogue.takes_s = takes_s
        async with place.service(tick_budget_s=200.0, spotify_timeout_s=60.0) as service:
            await watch(service, "a1")
            await trio.sleep(60.1)
            assert place.catalogue.together == 1
            began = trio.current_time()

        took_s = trio.current_time() - began
        assert took_s == pytest.approx(min(takes_s - 0.1, 2.0), abs=0.1)
        assert service.report is not None
        assert service.report.clean
        assert place.events.of(WatchlistStopped) == [WatchlistStopped(cancelled=0 if takes_s == 1.0 else 1)]


async def test_what_a_stop_cancelled_is_looked_at_right_after_the_next_start(clock: MockClock) -> None:
    with watch_place() as place:
        place.catalogue.takes_s = 50.0
        async with place.service(tick_budget_s=200.0, spotify_timeout_s=60.0) as service:
            await watch(service, "a1")
            await trio.sleep(61)
        place.catalogue.takes_s = 0.0

        async with place.service():
            await trio.sleep(1)

        assert len(place.catalogue.asked) == 2


async def test_two_processes_share_the_watchlist_without_doing_an_artist_twice(
    clock: MockClock, tmp_path: Path
) -> None:
    with file_gateway(tmp_path / "one.db") as gateway, file_gateway(tmp_path / "one.db") as second:
        place = WatchPlace(gateway)
        place.catalogue.takes_s = 1.0
        ids = [f"a{n}" for n in range(40)]
        async with place.service(every_s=3_600.0) as one:
            await watch(one, *ids)
            other = attrs.evolve(place, gateway=second)
            async with other.service(every_s=3_600.0):
                await trio.sleep(125)

        assert sorted(artist for _, artist in place.catalogue.asked) == sorted(ids)
