"""What the scheduler of subscriptions does, on the mock clock with exact times."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

import pytest
import trio
from trio.testing import MockClock

from cormorant.rules.errors import AlreadyExists, NotFound
from cormorant.rules.search.outcomes import SourceUnavailable
from cormorant.rules.watch.feeds import CheckStatus, SubscriptionMisfired, SubscriptionPaused
from cormorant.testing import START
from tests.conformance.subscriptions.subscribing import HOUR, page, subscribe, subscription_place

BROKEN = SourceUnavailable("it is broken")


@pytest.mark.slow("the first in the file pays for the imports")
async def test_one_that_was_never_checked_is_checked_at_once_and_then_keeps_its_cadence(clock: MockClock) -> None:
    with subscription_place() as place:
        place.feeds.takes_s["x.test"] = 5.0
        async with place.opened() as subscriptions:
            await trio.sleep(10)
            await subscribe(subscriptions, "one")
            await trio.sleep(2.5 * HOUR)

        assert place.feeds.times("one") == [10.0, 10.0 + HOUR, 10.0 + 2 * HOUR]


async def test_the_first_check_imports_nothing_and_later_ones_each_new_item_once(clock: MockClock) -> None:
    with subscription_place() as place:
        place.feeds.scripts["http://x.test/one"] = [page("a", "b"), page("c", "a", "b"), page("c", "a"), page("d", "c")]
        async with place.opened() as subscriptions:
            await subscribe(subscriptions, "one", hand_to=("folder",))
            await trio.sleep(4.5 * HOUR)
            checks = await subscriptions.checks(1)

        assert place.taken == ["c", "d"]
        assert [(check.items_found, check.new_items) for check in reversed(checks)][:4] == [
            (2, 0),
            (3, 1),
            (2, 0),
            (2, 1),
        ]


async def test_what_is_there_at_first_is_taken_when_told(clock: MockClock) -> None:
    with subscription_place() as place:
        place.feeds.scripts["http://x.test/one"] = [page("a", "b")]
        async with place.opened() as subscriptions:
            await subscribe(subscriptions, "one", first_check="take")
            await trio.sleep(100)

        assert place.taken == ["a", "b"]


async def test_filters_let_through_what_is_accepted_and_not_rejected(clock: MockClock) -> None:
    with subscription_place() as place:
        place.feeds.scripts["http://x.test/one"] = [page("good show", "bad show", "good but bad")]
        async with place.opened() as subscriptions:
            await subscribe(subscriptions, "one", first_check="take", accept=("good",), reject=("bad",))
            await trio.sleep(100)

        assert place.taken == ["good show"]


async def test_from_the_third_failure_on_it_is_checked_less_often_and_the_tenth_pauses_it(clock: MockClock) -> None:
    with subscription_place() as place:
        place.feeds.scripts["http://x.test/one"] = [BROKEN]
        async with place.opened() as subscriptions:
            await subscribe(subscriptions, "one", every_s=6 * HOUR)
            await trio.sleep(12 * 24 * HOUR)
            one = await subscriptions.find("one")

            assert one.is_paused
            assert one.paused_because == "10 failures in a row; the last: it is broken"
            assert one.last_checked is not None
            assert one.schedule.every_s == 6 * HOUR
        times = place.feeds.times("one")
        gaps = [round((after - before) / HOUR) for before, after in pairwise(times)]
        assert gaps == [6, 6, 12, 24, 24, 24, 24, 24, 24]
        assert len(place.events.of(SubscriptionPaused)) == 1


@pytest.mark.slow("fourteen hours of looks")
async def test_a_success_restores_the_interval_and_a_resume_begins_anew(clock: MockClock) -> None:
    with subscription_place() as place:
        place.feeds.scripts["http://x.test/one"] = [*[BROKEN] * 4, page("a")]
        async with place.opened() as subscriptions:
            await subscribe(subscriptions, "one")
            await trio.sleep(9 * HOUR)
            one = await subscriptions.find("one")
            assert (one.failures, one.effective_s) == (0, None)

            await subscriptions.pause("one")
            await trio.sleep(5 * HOUR)
            asked = len(place.feeds.asked)
            assert (await subscriptions.find("one")).paused_because == "paused by hand"
            await subscriptions.resume("one")
            await trio.sleep(100)
            assert len(place.feeds.asked) == asked + 1


async def test_a_check_that_takes_too_long_fails_and_says_so(clock: MockClock) -> None:
    with subscription_place() as place:
        place.feeds.takes_s["x.test"] = 1_000.0
        async with place.opened() as subscriptions:
            await subscribe(subscriptions, "one")
            await trio.sleep(200)
            [check] = await subscriptions.checks(1)

        assert (check.status, check.duration_ms) == (CheckStatus.FAILED, 30_000)
        assert check.error == "no answer in full within 30 s"


async def test_one_host_is_asked_one_at_a_time_apart_and_a_slow_one_blocks_only_itself(clock: MockClock) -> None:
    with subscription_place() as place:
        place.feeds.takes_s["slow.test"] = 25.0
        async with place.opened() as subscriptions:
            await trio.sleep(5)  # all are seen by one look
            for number in range(4):
                await subscribe(subscriptions, f"s{number}", host="slow.test")
                await subscribe(subscriptions, f"q{number}", host="quick.test")
            await trio.sleep(300)

        quick = sorted(time for time, name in place.feeds.asked if name.startswith("q"))
        slow = sorted(time for time, name in place.feeds.asked if name.startswith("s"))
        assert [round(time - quick[0], 3) for time in quick] == [0.0, 1.0, 2.0, 3.0]
        assert [round(time - slow[0], 3) for time in slow] == [0.0, 26.0, 52.0, 78.0]


async def test_no_more_hosts_are_asked_together_than_allowed(clock: MockClock) -> None:
    with subscription_place() as place:
        async with place.opened() as subscriptions:
            for number in range(10):
                place.feeds.takes_s[f"h{number}.test"] = 5.0
                await subscribe(subscriptions, f"f{number}", host=f"h{number}.test")
            await trio.sleep(200)

        assert place.feeds.most == 3
        assert len(place.feeds.asked) == 10


async def test_a_check_by_hand_is_the_check_and_one_that_runs_is_joined(clock: MockClock) -> None:
    with subscription_place() as place:
        place.feeds.takes_s["x.test"] = 10.0
        async with place.opened() as subscriptions:
            await subscribe(subscriptions, "one")
            await trio.sleep(100)
            done = []

            async def check() -> None:
                done.append(await subscriptions.check_and_wait("one"))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(check)
                await trio.sleep(1)
                nursery.start_soon(check)

            assert len(place.feeds.asked) == 2
            assert done[0] == done[1]
            one = await subscriptions.find("one")
            assert one.next_attempt_at >= START + timedelta(seconds=HOUR)


async def test_after_a_long_sleep_each_runs_once_spread_over_a_minute(clock: MockClock) -> None:
    with subscription_place() as place:
        async with place.opened() as subscriptions:
            for number in range(20):
                await subscribe(subscriptions, f"f{number}", host=f"h{number}.test")
            await trio.sleep(200)
        asked = len(place.feeds.asked)
        place.clock.jump(10 * HOUR)
        began = trio.current_time()

        async with place.opened() as subscriptions:
            await trio.sleep(200)

        late = [time - began for time, _ in place.feeds.asked[asked:]]
        assert len(late) == 20
        assert max(late) <= 75.0
        assert len({round(time) for time in late}) > 10
        assert len(place.events.of(SubscriptionMisfired)) == 20


async def test_a_restart_loses_no_schedule_and_checks_nothing_early(clock: MockClock) -> None:
    with subscription_place() as place:
        async with place.opened() as subscriptions:
            await subscribe(subscriptions, "one")
            await trio.sleep(1_000)

        async with place.opened() as subscriptions:
            await trio.sleep(1_000)
            assert len(place.feeds.times("one")) == 1
            await trio.sleep(2_000)

        assert len(place.feeds.times("one")) == 2


async def test_a_stop_in_the_middle_of_a_check_leaves_it_due(clock: MockClock) -> None:
    with subscription_place() as place:
        place.feeds.takes_s["x.test"] = 20.0
        async with place.opened() as subscriptions:
            await subscribe(subscriptions, "one")
            await subscribe(subscriptions, "two")
            await trio.sleep(10)
            began = trio.current_time()
        assert trio.current_time() - began < 0.5
        asked = len(place.feeds.asked)

        async with place.opened():
            await trio.sleep(100)

        assert len(place.feeds.asked) >= asked + 2


async def test_status_and_statistics_have_the_names_of_old(clock: MockClock) -> None:
    with subscription_place() as place:
        place.feeds.scripts["http://x.test/one"] = [page("a")]
        place.feeds.scripts["http://x.test/two"] = [BROKEN]
        async with place.opened() as subscriptions:
            await subscribe(subscriptions, "one")
            await subscribe(subscriptions, "two")
            await trio.sleep(100)

            status = await subscriptions.status()
            statistics = subscriptions.statistics_now()

        assert list(status) == [
            "running",
            "total_jobs",
            "active_checks",
            "pending_jobs",
            "next_run",
            "concurrent_limit",
        ]
        assert (status["total_jobs"], status["concurrent_limit"]) == (2, 5)
        assert (statistics["total_checks"], statistics["success_rate"]) == (2, 50.0)


async def test_names_are_unique_and_unknown_ones_are_named(clock: MockClock) -> None:
    with subscription_place() as place:
        async with place.opened() as subscriptions:
            await subscribe(subscriptions, "one")
            with pytest.raises(AlreadyExists, match="'one' already"):
                await subscribe(subscriptions, "one")
            with pytest.raises(NotFound, match="no subscription 'none'"):
                await subscriptions.check_and_wait("none")


async def test_a_feed_that_moves_is_asked_there_and_is_the_operators_only_at_its_host(clock: MockClock) -> None:
    with subscription_place() as place:
        place.feeds.scripts["http://x.test/near"] = [page("a", moved_to="https://x.test/nearer")]
        place.feeds.scripts["http://x.test/far"] = [page("b", moved_to="https://y.test/far")]
        async with place.opened() as subscriptions:
            await subscribe(subscriptions, "near")
            await subscribe(subscriptions, "far")
            await trio.sleep(100)

            near, far = await subscriptions.find("near"), await subscriptions.find("far")

        assert (near.url, near.has_moved) == ("https://x.test/nearer", False)
        assert (far.url, far.has_moved) == ("https://y.test/far", True)
