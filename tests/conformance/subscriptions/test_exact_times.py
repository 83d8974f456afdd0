"""When each check is made, to the second: cadence, failures and recovery, activity, hosts and slots, sleep, jumps of the clock."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from cormorant.rules.schedules import Schedule, overdue_delay_s
from cormorant.rules.search.outcomes import SourceUnavailable
from cormorant.rules.watch.feeds import FetchedFeed, SubscriptionMisfired, SubscriptionPaused, SubscriptionsMaintained
from cormorant.testing import START
from tests.conformance.subscriptions.subscribing import HOUR, SubscriptionPlace, page, prepared, subscription_place

pytestmark = pytest.mark.slow("days on the mock clock")

BROKEN = SourceUnavailable("it is broken")
DAY = 24 * HOUR
SOON_S = 11.0
"""The clock watch looks every ten seconds, and a tick follows the one before by a second."""


def gaps(place: SubscriptionPlace, name: str) -> list[float]:
    """From check to check, in hours."""
    return [round((after - before) / HOUR, 6) for before, after in pairwise(place.feeds.times(name))]


async def test_one_that_was_never_checked_is_checked_now_and_then_every_hour_however_long_it_takes(
    clock: MockClock,
) -> None:
    with subscription_place() as place:
        place.feeds.takes_s["x.test"] = 17.0
        await prepared(place, "one")
        began = trio.current_time()
        async with place.opened() as subscriptions:
            await trio.sleep(3.5 * HOUR)
            one = await subscriptions.find("one")

        assert [time - began for time in place.feeds.times("one")] == [0.0, HOUR, 2 * HOUR, 3 * HOUR]
        assert one.next_attempt_at == START + timedelta(seconds=began + 4 * HOUR)


async def test_a_tenth_failure_pauses_until_it_is_resumed_and_a_success_is_a_new_beginning(clock: MockClock) -> None:
    with subscription_place() as place:
        place.feeds.scripts["http://x.test/one"] = [*[BROKEN] * 10, page("a")]
        await prepared(place, "one", every_s=6 * HOUR)
        async with place.opened() as subscriptions:
            await trio.sleep(15 * DAY)
            paused = await subscriptions.find("one")
            asked = len(place.feeds.asked)
            await subscriptions.resume("one")
            resumed = await subscriptions.find("one")
            await trio.sleep(6 * HOUR + 1)
            again = await subscriptions.find("one")
            await trio.sleep(12 * HOUR)

        assert gaps(place, "one")[:9] == [6, 6, 12, 24, 24, 24, 24, 24, 24]
        assert (asked, paused.is_paused, paused.failures) == (10, True, 10)
        assert paused.paused_because == "10 failures in a row; the last: it is broken"
        assert (resumed.is_paused, resumed.failures, resumed.effective_s) == (False, 0, None)
        assert (again.failures, again.last_error, again.schedule) == (0, None, Schedule(every_s=6 * HOUR))
        assert gaps(place, "one")[-2:] == [6, 6]
        assert len(place.events.of(SubscriptionPaused)) == 1


async def test_a_success_before_the_tenth_failure_counts_anew_and_nothing_is_paused(clock: MockClock) -> None:
    with subscription_place() as place:
        place.feeds.scripts["http://x.test/one"] = [*[BROKEN] * 9, page("a"), *[BROKEN] * 9, page("a")]
        await prepared(place, "one")
        async with place.opened() as subscriptions:
            await trio.sleep(9 * DAY)
            one = await subscriptions.find("one")

        assert gaps(place, "one")[:12] == [1, 1, 2, 4, 8, 16, 24, 24, 24, 1, 1, 1]
        assert not one.is_paused
        assert not place.events.of(SubscriptionPaused)


async def test_failures_pause_one_by_cron_too(clock: MockClock) -> None:
    with subscription_place() as place:
        place.feeds.scripts["http://x.test/one"] = [BROKEN]
        await prepared(place, "one", cron="0 9 * * *")
        async with place.opened() as subscriptions:
            await trio.sleep(12 * DAY)

            assert (await subscriptions.find("one")).is_paused
        assert gaps(place, "one") == [9, *[24] * 8]


BUSY = [page(*(f"{check}/{number}" for number in range(11))) for check in range(9)]
EVEN = [page(*(f"{check}/{number}" for number in range(10))) for check in range(9)]
ONE = [page(f"{check}") for check in range(9)]


@pytest.mark.parametrize(
    ("pages", "every_s", "hours"),
    [
        (BUSY, 2 * HOUR, 1.0),
        (EVEN, 2 * HOUR, 2.0),
        (ONE, 2 * HOUR, 2.0),
        ([FetchedFeed()], 2 * HOUR, 4.0),
        (BUSY, 1_200.0, 0.25),
        (BUSY, 600.0, 1 / 6),
        ([FetchedFeed()], 20 * HOUR, 24.0),
        ([FetchedFeed()], 30 * HOUR, 30.0),
    ],
    ids=["busy", "ten", "one", "quiet", "at least 15 min", "never slower when busy", "at most a day", "never sooner"],
)
async def test_activity_sets_the_interval_and_never_the_base(
    clock: MockClock, pages: list[FetchedFeed], every_s: float, hours: float
) -> None:
    with subscription_place() as place:
        place.feeds.scripts["http://x.test/one"] = list(pages)
        await prepared(place, "one", every_s=every_s, adaptive=True, first_check="take")
        async with place.opened() as subscriptions:
            await trio.sleep(3.5 * hours * HOUR)
            one = await subscriptions.find("one")

        assert gaps(place, "one")[:3] == pytest.approx([hours] * 3, abs=1e-5)
        assert one.schedule.every_s == every_s


async def test_what_is_there_at_first_says_nothing_of_how_busy_a_feed_is(clock: MockClock) -> None:
    with subscription_place() as place:
        place.feeds.scripts["http://x.test/one"] = [BUSY[0]]
        await prepared(place, "one", adaptive=True)
        async with place.opened() as subscriptions:
            await trio.sleep(10)

            assert (await subscriptions.find("one")).effective_s is None


async def test_a_host_that_waits_for_its_turn_holds_no_slot(clock: MockClock) -> None:
    with subscription_place() as place:
        await prepared(place, "a1", "a2", host="a.test")
        await prepared(place, "b1", "b2", host="b.test")
        began = trio.current_time()
        async with place.opened(max_concurrent_domains=1, domain_request_delay_s=3.5):
            await trio.sleep(30)

        times = {name: time - began for time, name in place.feeds.asked}
        assert times == {"a1": 0.0, "b1": 0.0, "a2": 3.5, "b2": 3.5}


@pytest.mark.parametrize(
    ("options", "most"),
    [
        ({}, 3),
        ({"max_concurrent_domains": 9}, 5),
        ({"max_concurrent_checks": 2}, 2),
        ({"max_concurrent_checks": 7, "max_concurrent_domains": 6}, 6),
    ],
)
async def test_neither_more_checks_nor_more_hosts_at_once_than_set(
    clock: MockClock, options: dict[str, Any], most: int
) -> None:
    with subscription_place() as place:
        place.feeds.takes_s = {f"{name}.test": 5.0 for name in "abcdefghi"}
        await prepared(place, *"abcdefghi", host="{}.test")
        async with place.opened(**options):
            await trio.sleep(50)

        assert (place.feeds.most, len(place.feeds.asked)) == (most, 9)


async def test_after_a_long_sleep_each_is_checked_once_at_its_share_of_the_minute(clock: MockClock) -> None:
    with subscription_place() as place:
        await prepared(place, *"abcdefghij", host="{}.test")
        async with place.opened():
            await trio.sleep(100)
        place.feeds.asked.clear()
        place.clock.jump(30 * DAY)
        began = trio.current_time()

        async with place.opened() as subscriptions:
            await trio.sleep(0.9 * HOUR)
            known = await subscriptions.page()

        late = {name: time - began for time, name in place.feeds.asked}
        assert len(place.feeds.asked) == len(late) == 10
        for each in known:  # looks are at least a second apart
            assert -1e-3 <= late[each.name] - overdue_delay_s(each.id) <= 1.0
            assert each.next_attempt_at - START >= timedelta(days=30, seconds=HOUR)
        assert {event.late_s > 29 * DAY for event in place.events.of(SubscriptionMisfired)} == {True}
        assert len(place.events.of(SubscriptionMisfired)) == 10


@pytest.mark.parametrize(("late_s", "is_told"), [(299.0, False), (301.0, True)])
async def test_what_is_later_than_the_grace_is_told_and_made_all_the_same(
    clock: MockClock, late_s: float, *, is_told: bool
) -> None:
    with subscription_place() as place:
        await prepared(place, "one")
        place.clock.jump(late_s)

        async with place.opened():
            await trio.sleep(120)

        assert len(place.feeds.asked) == 1
        assert [round(event.late_s) for event in place.events.of(SubscriptionMisfired)] == [late_s] * is_told


@pytest.mark.parametrize(
    ("jump_s", "soonest_s", "latest_s"),
    [
        # What is overdue waits its share of a minute.
        (HOUR, 0.0, 60.0 + SOON_S),
        (DAY, 0.0, 60.0 + SOON_S),
        (365 * DAY, 0.0, 60.0 + SOON_S),
        # So little is not told from a zone that was set wrong: what was to come in half an hour comes in one and a half.
        (-HOUR, 1.5 * HOUR, 1.5 * HOUR),
        (-DAY, 0.0, SOON_S),
        (-365 * DAY, 0.0, SOON_S),
    ],
    ids=["hour", "day", "year", "hour back", "day back", "year back"],
)
async def test_after_a_jump_of_the_clock_it_is_checked_once_soon_and_then_keeps_its_cadence(
    clock: MockClock, jump_s: float, soonest_s: float, latest_s: float
) -> None:
    with subscription_place() as place:
        await prepared(place, "one")
        began = trio.current_time()
        async with place.opened():
            await trio.sleep(0.5 * HOUR)
            place.clock.jump(jump_s)
            await trio.sleep(5 * HOUR)

        first, second, *rest = (time - began for time in place.feeds.times("one"))
        assert first == 0.0
        assert soonest_s <= second - 0.5 * HOUR <= latest_s
        assert rest[0] - second == pytest.approx(HOUR, abs=1.0)
        assert [round(after - before, 3) for before, after in pairwise(rest)] == [HOUR] * (len(rest) - 1)
        assert len(rest) >= 3


async def test_once_an_hour_old_records_are_forgotten_and_all_are_counted(clock: MockClock) -> None:
    with subscription_place() as place:
        await prepared(place, "one", every_s=600)
        async with place.opened(keep_checks_s=HOUR) as subscriptions:
            await trio.sleep(3.2 * HOUR)
            kept = await subscriptions.checks(1, limit=100)

        told = [(event.scheduled_jobs, event.pruned) for event in place.events.of(SubscriptionsMaintained)]
        # A minute after the start, and every hour after that.
        assert told == [(1, 0), (1, 1), (1, 6), (1, 6)]
        assert len(kept) == 20 - 13
