"""What the ticker holds in its hands: long lanes, lost claims, jumps of the clock, and who waits for an answer."""

from __future__ import annotations

from functools import partial

import pytest
import trio
from sqlalchemy import Connection, text
from trio.testing import MockClock

from actors.watch.feed_ticker import HAND_MAX
from cormorant.rules.errors import ActorCrashed, ActorGone, CormorantError, StorageUnavailable
from cormorant.rules.events import ChildCrashed
from cormorant.rules.watch.feeds import FeedCheck, SubscriptionMisfired
from cormorant.services.watch.feeds import Feeds
from cormorant.testing import START
from storage.watch import feed_claims as table
from storage.watch.feed_claims import CheckedElsewhere
from tests.conformance.subscriptions.subscribing import HOUR, page, prepared, subscribe, subscription_place
from tests.leases import WORKER, register


async def gather(subscriptions: Feeds, name: str, got: list[FeedCheck | CormorantError]) -> None:
    try:
        got.append(await subscriptions.check_and_wait(name))
    except CormorantError as error:
        got.append(error)


def take_over(connection: Connection, number: int) -> None:
    """Do as another process would that takes the owner for dead, and then die."""
    connection.execute(text("UPDATE subscriptions SET claimed_by = NULL WHERE id = :id"), {"id": number})
    register(connection)
    assert table.claim_one(connection, number, worker=WORKER) is not None


async def test_in_a_long_lane_of_one_host_nobody_is_taken_by_another_process(clock: MockClock) -> None:
    with subscription_place() as place:
        place.feeds.takes_s["x.test"] = 29.0
        async with place.opened() as subscriptions:
            for number in range(40):
                await subscribe(subscriptions, f"f{number}", every_s=86_400)
            await place.gateway.run(register)
            for _ in range(40):
                await trio.sleep(30)
                stolen = await place.gateway.run(table.claim, worker=WORKER, now=place.clock.now(), limit=9)
                running = {subscription.name for subscription in stolen} & {name for _, name in place.feeds.asked[-1:]}
                assert not running
                await place.gateway.run(table.release, stolen)
            await trio.sleep(600)

        names = [name for _, name in place.feeds.asked]
        assert set(names) == {f"f{number}" for number in range(40)}


async def test_what_another_process_has_taken_over_is_undone_and_new_for_that_one(clock: MockClock) -> None:
    with subscription_place(is_shared=True) as place:
        place.feeds.takes_s["x.test"] = 20.0
        place.feeds.scripts["http://x.test/one"] = [page("a")]
        got: list[FeedCheck | CormorantError] = []
        async with place.opened(has_heartbeat=True) as subscriptions, trio.open_nursery() as nursery:
            await subscribe(subscriptions, "one", first_check="take")
            nursery.start_soon(gather, subscriptions, "one", got)
            await trio.sleep(5)
            await place.gateway.run(take_over, 1)
            await trio.sleep(20)

            [lost] = got
            assert isinstance(lost, CheckedElsewhere)
            assert place.taken == []
            assert await subscriptions.checks(1) == []
            await trio.sleep(2 * HOUR)

        assert place.taken == ["a"]


async def test_a_jump_of_the_clock_while_it_is_checked_makes_no_second_check(clock: MockClock) -> None:
    with subscription_place() as place:
        place.feeds.takes_s["x.test"] = 25.0
        place.feeds.scripts["http://x.test/one"] = [page("a")]
        async with place.opened() as subscriptions:
            await subscribe(subscriptions, "one", first_check="take")
            await trio.sleep(4)
            place.clock.jump(HOUR)
            await trio.sleep(200)
            checks = await subscriptions.checks(1)

        assert len(place.feeds.asked) == len(checks) == 1
        assert place.taken == ["a"]


async def test_a_clock_that_is_set_back_does_not_put_checks_off_for_longer_than_an_hour(clock: MockClock) -> None:
    with subscription_place() as place:
        async with place.opened() as subscriptions:
            await subscribe(subscriptions, "one")
            await trio.sleep(100)
            place.clock.jump(-30 * 24 * HOUR)
            await trio.sleep(2.2 * HOUR)

        assert len(place.feeds.asked) >= 2


async def test_who_asks_for_one_at_the_end_of_a_long_lane_is_next(clock: MockClock) -> None:
    with subscription_place() as place:
        place.feeds.takes_s["x.test"] = 20.0
        async with place.opened() as subscriptions:
            for number in range(10):
                await subscribe(subscriptions, f"f{number}")
            await trio.sleep(65)
            await subscriptions.check_and_wait("f9")

        assert [name for _, name in place.feeds.asked].index("f9") <= 4


async def test_who_waits_for_a_check_is_told_when_the_ticker_stops_or_crashes(clock: MockClock) -> None:
    with subscription_place() as place:
        place.feeds.takes_s["x.test"] = 20.0
        got: list[FeedCheck | CormorantError] = []
        async with trio.open_nursery() as nursery, place.opened() as subscriptions:
            await subscribe(subscriptions, "one")
            nursery.start_soon(gather, subscriptions, "one", got)
            await trio.sleep(5)
        assert [type(each) for each in got] == [ActorGone]

        async with trio.open_nursery() as nursery, place.opened() as subscriptions:
            nursery.start_soon(gather, subscriptions, "one", got)
            await trio.sleep(5)
            place.crashes = 1
            await subscribe(subscriptions, "two")
            await trio.sleep(1)
            assert type(got[-1]) is ActorCrashed
            await trio.sleep(100)
            assert len(await subscriptions.checks(1)) == 1


async def test_no_more_wait_by_hand_than_there_is_room_for(clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    assert HAND_MAX == 1_000
    monkeypatch.setattr("actors.watch.feed_ticker.HAND_MAX", 2)
    with subscription_place() as place:
        place.feeds.takes_s["x.test"] = 20.0
        got: list[FeedCheck | CormorantError] = []
        async with place.opened() as subscriptions:
            for name in ("one", "two", "three"):
                await subscribe(subscriptions, name)
            await trio.sleep(100)  # none is due
            async with trio.open_nursery() as nursery:
                for name in ("one", "two", "three"):
                    nursery.start_soon(partial(gather, subscriptions, name, got))
                    await trio.sleep(1)

        assert sorted(type(each).__name__ for each in got) == ["FeedCheck", "FeedCheck", "MailboxFull"]


async def test_while_the_database_is_away_nothing_is_lost_and_hosts_are_still_asked_apart(clock: MockClock) -> None:
    with subscription_place() as place:
        place.feeds.takes_s["x.test"] = 5.0
        place.feeds.scripts["http://x.test/one"] = [page("a")]
        got: list[FeedCheck | CormorantError] = []
        async with place.opened() as subscriptions, trio.open_nursery() as nursery:
            await subscribe(subscriptions, "one", first_check="take")
            nursery.start_soon(gather, subscriptions, "one", got)
            await trio.sleep(2)
            place.gateway.go_away()
            await trio.sleep(60)
            assert all(isinstance(each, StorageUnavailable) for each in got)
            place.gateway.come_back()
            await trio.sleep(2_000)
            one = await subscriptions.find("one")

        assert place.taken == ["a"]
        assert one.last_success is not None
        assert one.last_success > START


@pytest.mark.slow("a hundred feeds")
async def test_a_host_for_which_hundreds_wait_holds_up_only_itself(clock: MockClock) -> None:
    with subscription_place() as place:
        place.feeds.takes_s["slow.test"] = 29.0
        slow = [f"s{number}" for number in range(100)]
        await prepared(place, *slow, host="slow.test", every_s=24 * HOUR)
        await trio.sleep(1)
        await prepared(place, "fast", host="fast.test", every_s=HOUR)
        began = trio.current_time()
        async with place.opened() as subscriptions:
            await trio.sleep(1.5 * HOUR)
            failures = {(await subscriptions.find(name)).failures for name in ("s0", "s99")}

        fast = [time - began for time in place.feeds.times("fast")]
        assert len(fast) == 2
        assert fast[0] < 60
        assert fast[1] < HOUR + 60
        assert [len(place.feeds.times(name)) for name in slow] == [1] * 100  # each in its turn, and none is lost
        assert [*place.events.of(SubscriptionMisfired), *place.events.of(ChildCrashed)] == []
        assert failures == {0}


async def test_what_an_outage_kept_from_its_end_is_given_back_at_the_stop(clock: MockClock) -> None:
    with subscription_place() as place:
        place.feeds.takes_s["x.test"] = 1.0
        async with place.opened() as subscriptions:
            await subscribe(subscriptions, "one")
            await trio.sleep(0.5)
            place.gateway.go_away()
            await trio.sleep(36)
            place.gateway.come_back()
            await trio.sleep(1)
        asked, began = len(place.feeds.asked), trio.current_time()
        async with place.opened():
            await trio.sleep(30)

        assert [time - began < 1 for time in place.feeds.times("one")[asked:]] == [True]
