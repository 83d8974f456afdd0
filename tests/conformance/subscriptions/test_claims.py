"""Who checks what when processes die, fall silent or lose the database: soon somebody else, and never two at once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import trio
from sqlalchemy import Connection
from trio.testing import MockClock, wait_all_tasks_blocked

from actors.watch.feed_checker import CheckNotRecorded
from cormorant.rules.errors import StorageUnavailable
from cormorant.rules.events import ChildCrashed
from cormorant.rules.settings.settings import JobSettings
from cormorant.rules.watch.feeds import CheckStatus, DueFeed, FetchedFeed
from cormorant.services.watch.feeds import Feeds
from storage.engine.statements import announce
from storage.jobs import workers
from storage.watch import feed_claims
from storage.watch.feed_claims import CheckedElsewhere
from storage.watch.feeds import FEED
from tests.conformance.subscriptions.subscribing import (
    HOUR,
    SubscriptionPlace,
    page,
    subscribe,
    subscription_place,
)
from tests.leases import WORKER, register

DAY = 24 * HOUR
SILENT_S = JobSettings().lock_timeout_s


async def left_behind(place: SubscriptionPlace, name: str) -> None:
    """Make one due that another process has claimed."""
    async with place.opened() as subscriptions:
        await subscribe(subscriptions, name)
        await trio.sleep(100)
        place.feeds.asked.clear()
        place.clock.jump(HOUR)
        await place.gateway.run(register)
        assert await place.gateway.run(feed_claims.claim, worker=WORKER, now=place.clock.now(), limit=9)


async def asked_again(place: SubscriptionPlace, subscriptions: Feeds) -> list[str]:
    """Who is asked within a probe of the database and the turns of three, in order, and is then checked."""
    place.feeds.asked.clear()
    place.gateway.come_back()
    await trio.sleep(30 + 3 * 6)
    assert [len(await subscriptions.checks(number)) for number in (1, 2, 3)] == [1, 1, 1]
    return [name for _, name in place.feeds.asked]


@pytest.mark.slow("the first in the file pays for the imports")
async def test_what_a_killed_process_had_claimed_is_checked_when_it_was_silent_for_the_lock_timeout(
    clock: MockClock,
) -> None:
    with subscription_place(is_shared=True) as place:
        await left_behind(place, "one")
        async with place.opened(has_heartbeat=True):
            began = trio.current_time()
            await trio.sleep(SILENT_S + 40)

        [asked] = place.feeds.times("one")
        assert SILENT_S <= asked - began <= SILENT_S + 1.0


@pytest.mark.parametrize("skew_s", [-600.0, 600.0])
async def test_what_a_living_process_holds_is_left_to_it_however_wrong_its_clock_is(
    clock: MockClock, skew_s: float
) -> None:
    with subscription_place(is_shared=True) as place:
        await left_behind(place, "one")
        async with place.opened(has_heartbeat=True) as subscriptions:
            for _ in range(20):
                skewed = place.clock.now() + timedelta(seconds=skew_s)
                assert await place.gateway.run(workers.beat, WORKER, now=skewed)
                await trio.sleep(45)
            with pytest.raises(CheckedElsewhere):
                await subscriptions.check_and_wait("one")

        assert place.feeds.asked == []


async def test_one_that_a_killed_process_checked_by_hand_long_before_its_time_can_be_checked_again(
    clock: MockClock,
) -> None:
    with subscription_place(is_shared=True) as place:
        async with place.opened(has_heartbeat=True) as subscriptions:
            await subscribe(subscriptions, "one")
            await trio.sleep(100)
            await place.gateway.run(register)
            await place.gateway.run(feed_claims.claim_one, 1, worker=WORKER)
            with pytest.raises(CheckedElsewhere, match="look again soon"):
                await subscriptions.check_and_wait("one")
            await trio.sleep(SILENT_S + JobSettings().sweep_s)

            assert (await subscriptions.check_and_wait("one")).status is CheckStatus.SUCCESS


async def test_a_process_that_was_declared_dead_stops_its_checks_and_makes_them_anew_under_its_new_name(
    clock: MockClock,
) -> None:
    with subscription_place(is_shared=True) as place:
        place.feeds.takes_s["x.test"] = 25.0
        async with place.opened(has_heartbeat=True) as subscriptions:
            await subscribe(subscriptions, "one")
            await trio.sleep(5)
            [before] = await place.gateway.read(workers.all_workers)
            await place.gateway.run(workers.mark_dead, before.id, beat=before.beat, now=place.clock.now())
            with pytest.raises(StorageUnavailable, match="has not confirmed this process"):
                await subscriptions.check_and_wait("one")
            stopped_at = trio.current_time()
            await trio.sleep(100)
            checks = await subscriptions.checks(1)

        assert stopped_at == JobSettings().heartbeat_s, "at the next heartbeat"
        assert place.feeds.times("one") == [0.0, JobSettings().sweep_s], "when the sweeper has freed the claim"
        assert [check.status for check in checks] == [CheckStatus.SUCCESS]


async def test_a_check_that_missed_heartbeats_stopped_is_made_again_as_soon_as_the_process_is_confirmed(
    clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with subscription_place(is_shared=True) as place:
        place.feeds.takes_s["x.test"] = 25.0
        run = place.gateway.run

        async def refuse_beats(function: Callable[..., Any], *args: Any, **words: Any) -> Any:
            if function is workers.beat and trio.current_time() < 300:
                raise StorageUnavailable("away")
            return await run(function, *args, **words)

        monkeypatch.setattr(place.gateway, "run", refuse_beats)
        async with place.opened(has_heartbeat=True) as subscriptions:
            await trio.sleep(235)
            await subscribe(subscriptions, "one")
            await trio.sleep(165)
            checks = await subscriptions.checks(1)

        assert place.feeds.times("one") == [235.0, 300.0], "the first is stopped at 240 s"
        assert [check.status for check in checks] == [CheckStatus.SUCCESS]


async def test_after_an_outage_what_was_in_hand_is_checked_at_once(clock: MockClock) -> None:
    with subscription_place(is_shared=True) as place:
        place.feeds.takes_s["x.test"] = 5.0
        async with place.opened() as subscriptions:
            for name in ("one", "two", "three"):
                await subscribe(subscriptions, name)
            await trio.sleep(2)
            place.gateway.go_away()
            await trio.sleep(90)
            assert await asked_again(place, subscriptions) == ["one", "two", "three"]


async def test_a_mistake_in_one_feed_is_a_failed_check_of_that_feed_and_nothing_else(clock: MockClock) -> None:
    with subscription_place(is_shared=True) as place:
        key = "hunter2hunter2"
        wrong = ZeroDivisionError(f"a mistake with {key}")
        place.feeds.scripts[f"http://x.test/one?passkey={key}"] = [ExceptionGroup("some", [wrong, KeyError("k")])]
        place.feeds.takes_s["y.test"] = 20.0
        async with place.opened() as subscriptions:
            await subscribe(subscriptions, f"one?passkey={key}")
            await subscribe(subscriptions, "two", host="y.test")
            await trio.sleep(100)
            [failed], [fine] = await subscriptions.checks(1), await subscriptions.checks(2)
            one = await subscriptions.find("1")

        said = "an unexpected error, please report it: ZeroDivisionError: a mistake with ***; KeyError: 'k'"
        assert (failed.status, failed.error) == (CheckStatus.FAILED, said)
        assert (one.failures, one.last_error) == (1, said)
        assert fine.status is CheckStatus.SUCCESS
        assert len(place.feeds.asked) == 2
        assert place.events.of(ChildCrashed) == []


async def test_what_a_feed_brings_that_cannot_be_kept_fails_that_check_alone(
    clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise ValueError("too odd")

    with subscription_place(is_shared=True) as place:
        place.feeds.scripts["http://x.test/one"] = [page("a")]
        async with place.opened() as subscriptions:
            with monkeypatch.context() as wrong:
                wrong.setattr("storage.watch.choice.want_of", refuse)
                await subscribe(subscriptions, "one", first_check="take")
                await trio.sleep(100)
            [failed] = await subscriptions.checks(1)
            good = await subscriptions.check_and_wait("one")

        assert (failed.status, failed.new_items) == (CheckStatus.FAILED, 0)
        assert failed.error == "an unexpected error, please report it: ValueError: too odd"
        assert (good.status, place.taken) == (CheckStatus.SUCCESS, ["a"])


def break_for_bad(wrong: pytest.MonkeyPatch, name: str) -> None:
    real = getattr(feed_claims, name)

    def broken(connection: Connection, subscription: DueFeed, *words: object, **more: object) -> object:
        if subscription.name == "bad":
            raise RuntimeError("no such row can be")
        return real(connection, subscription, *words, **more)

    wrong.setattr(feed_claims, name, broken)


async def test_a_check_that_cannot_be_recorded_counts_as_failed_and_ends_nothing_else(
    clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_for_bad(monkeypatch, "end_check")
    with subscription_place(is_shared=True) as place:
        async with place.opened() as subscriptions:
            await subscribe(subscriptions, "bad", host="bad.test")
            await subscribe(subscriptions, "good", host="good.test")
            await trio.sleep(2.5 * HOUR)
            bad = await subscriptions.find("bad")

        assert place.events.of(ChildCrashed) == []
        assert (bad.failures, bad.last_error) == (
            3,
            "an unexpected error, please report it: RuntimeError: no such row can be",
        )
        assert [len(place.feeds.times(name)) for name in ("bad", "good")] == [3, 3]


async def test_a_feed_of_which_nothing_can_be_written_is_left_alone_for_an_hour_unless_somebody_asks(
    clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_for_bad(monkeypatch, "end_check")
    break_for_bad(monkeypatch, "postpone")
    with subscription_place(is_shared=True) as place:
        async with place.opened() as subscriptions:
            await subscribe(subscriptions, "bad", host="bad.test")
            await subscribe(subscriptions, "good", host="good.test")
            await trio.sleep(1.5 * HOUR)
            asked = len(place.feeds.times("bad"))
            with pytest.raises(CheckNotRecorded, match="cannot be written; an unexpected error"):
                await subscriptions.check_and_wait("bad")
            monkeypatch.undo()
            await subscriptions.check_and_wait("bad")
            await trio.sleep(HOUR + 1)

        assert place.events.of(ChildCrashed) == []
        assert (asked, len(place.feeds.times("bad")), len(place.feeds.times("good"))) == (2, 5, 3)


async def test_who_asks_while_the_ticker_looks_is_not_overlooked(clock: MockClock) -> None:
    with subscription_place(is_shared=True) as place:
        async with place.opened() as subscriptions:
            async with trio.open_nursery() as nursery:
                for number in range(5):
                    nursery.start_soon(subscribe, subscriptions, f"f{number}")
                nursery.start_soon(trio.lowlevel.checkpoint)
            await trio.sleep(5)

        assert [time for time, _ in place.feeds.asked] == [0.0, 1.0, 2.0, 3.0, 4.0]


async def test_a_new_time_or_the_end_of_a_pause_is_heeded_at_once(clock: MockClock) -> None:
    with subscription_place(is_shared=True) as place:
        async with place.opened() as subscriptions:
            await subscribe(subscriptions, "one")
            await trio.sleep(100)
            await subscriptions.reschedule(1, place.clock.now() + timedelta(seconds=7))
            await trio.sleep(10)
            await subscriptions.pause("one")
            await trio.sleep(10)
            await subscriptions.resume("one")
            await trio.sleep(10)
            await subscriptions.spread(window_s=60)
            await trio.sleep(10)

        assert place.feeds.times("one") == [0.0, 107.0, 120.0, 130.0]


@pytest.mark.slow("more than a year of looks")
async def test_what_stands_in_an_unchanged_feed_for_a_year_is_never_new_again(clock: MockClock) -> None:
    with subscription_place() as place:
        still = FetchedFeed(is_unchanged=True)
        place.feeds.scripts["http://x.test/one"] = [
            page("a", "b"),
            page("b", "c"),
            *[still] * 10,
            page(),
            page("b", "c", "d"),
            page("a", "c", "d"),
        ]
        async with place.opened(keep_items_s=90 * DAY) as subscriptions:
            await subscribe(subscriptions, "one", every_s=30 * DAY)
            await trio.sleep(425 * DAY)

        assert len(place.feeds.asked) == 15
        assert place.taken == ["c", "d", "a"]  # the last was gone for a year


async def test_who_asks_while_the_ticker_is_started_again_is_answered(clock: MockClock) -> None:
    with subscription_place(is_shared=True) as place:
        async with place.opened() as subscriptions:
            await subscribe(subscriptions, "one")
            await trio.sleep(100)
            place.crashes = 1
            await place.gateway.run(announce, FEED.table)
            await wait_all_tasks_blocked()
            check = await subscriptions.check_and_wait("one")

        assert check.status is CheckStatus.SUCCESS
        assert len(place.events.of(ChildCrashed)) == 1


async def test_who_asks_for_one_that_the_same_round_finds_due_gets_one_check(
    clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with subscription_place(is_shared=True) as place:
        async with place.opened() as subscriptions, trio.open_nursery() as nursery:
            await subscribe(subscriptions, "one")
            await trio.sleep(100)
            read, looked = place.gateway.read, trio.Event()

            async def ask() -> None:
                await looked.wait()
                await subscriptions.check_and_wait("one")

            async def ask_before_the_claim(function: Any, *args: Any, **how: Any) -> Any:
                if function is feed_claims.read_due:
                    # The first look finds it due; before the second one, which ends the round, the check has ended.
                    looked.set()
                    await wait_all_tasks_blocked()
                return await read(function, *args, **how)

            nursery.start_soon(ask)
            monkeypatch.setattr(place.gateway, "read", ask_before_the_claim)
            place.clock.jump(HOUR)
            await place.gateway.run(announce, FEED.table)
            await trio.sleep(100)

        assert len(place.feeds.times("one")) == 2


async def test_a_lease_that_is_lost_stops_the_checks_and_held_again_they_are_made_at_once(clock: MockClock) -> None:
    with subscription_place(is_shared=True) as place:
        place.feeds.takes_s["x.test"] = 20.0
        async with place.opened(has_heartbeat=True) as subscriptions:
            await subscribe(subscriptions, "one")
            await trio.sleep(5)
            place.gateway.go_away()
            await trio.sleep(SILENT_S)
            place.gateway.come_back()
            await trio.sleep(60)

            assert [check.status for check in await subscriptions.checks(1)] == [CheckStatus.SUCCESS]
        assert place.events.of(ChildCrashed) == []
