"""What a person does while a check waits or runs: nothing is half written, nothing they said is lost."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
import trio
from attrs import evolve
from sqlalchemy import Connection, text
from trio.testing import MockClock, wait_all_tasks_blocked

from cormorant.rules.search.outcomes import SourceLimited, SourceUnavailable
from cormorant.rules.settings.watch import FeedSettings
from cormorant.rules.watch.feeds import (
    CheckStatus,
    DueFeed,
    FeedCheck,
    FeedEntryItem,
    SubscriptionChecked,
    SubscriptionFailed,
    SubscriptionMisfired,
    want_of,
)
from cormorant.rules.watch.wants import Want
from cormorant.testing import START
from storage.engine.statements import announce
from storage.watch import feeds as table
from storage.watch.feed_items import record_check
from storage.watch.feeds import FEED
from tests.conformance.subscriptions.subscribing import (
    HOUR,
    SubscriptionPlace,
    claimed,
    page,
    prepared,
    subscribe,
    subscription_place,
)

pytestmark = pytest.mark.slow("hours on the mock clock")

BROKEN = SourceUnavailable("it is broken")


@pytest.fixture
def place() -> Iterator[SubscriptionPlace]:
    with subscription_place() as made:
        made.feeds.takes_s["x.test"] = 20.0
        made.feeds.scripts["http://x.test/one"] = [page("a", "b")]
        yield made


def rows(connection: Connection) -> list[int]:
    """How many rows each table of subscriptions has, and how many are wanted."""
    tables = ("subscriptions", "subscription_items", "subscription_checks", "wants")
    return [connection.execute(text(f"SELECT count(*) FROM {name}")).scalar_one() for name in tables]  # noqa: S608 - the names are ours


async def test_a_check_that_runs_has_started_and_then_tells_what_it_brought(
    clock: MockClock, place: SubscriptionPlace
) -> None:
    await prepared(place, "one", first_check="take")
    async with place.opened() as subscriptions:
        began = place.clock.now()
        await trio.sleep(5)
        during, status = await subscriptions.checks(1), await subscriptions.status()
        await trio.sleep(20)
        after = await subscriptions.checks(1)

    assert during == [FeedCheck(subscription_id=1, started_at=began, status=CheckStatus.STARTED)]
    assert (status["running"], status["active_checks"], status["pending_jobs"]) == (True, 1, 0)
    assert after == [
        FeedCheck(
            subscription_id=1,
            started_at=began,
            status=CheckStatus.SUCCESS,
            items_found=2,
            new_items=2,
            duration_ms=20_000,
        )
    ]


async def test_one_that_is_removed_while_it_is_checked_leaves_nothing_behind(
    clock: MockClock, place: SubscriptionPlace
) -> None:
    await prepared(place, "one", first_check="take")
    async with place.opened() as subscriptions:
        await trio.sleep(5)
        await subscriptions.remove("one")
        await trio.sleep(2 * HOUR)
        left = await place.gateway.read(rows)

    assert left == [0, 0, 0, 0]
    assert (place.taken, len(place.feeds.asked)) == ([], 1)


async def test_one_that_is_removed_or_paused_while_it_waits_for_its_host_is_not_asked(
    clock: MockClock, place: SubscriptionPlace
) -> None:
    await prepared(place, "one", "two", "three", "four")
    async with place.opened() as subscriptions:
        await trio.sleep(5)
        await subscriptions.remove("two")
        await subscriptions.pause("three")
        await trio.sleep(100)
        asked = [name for _, name in place.feeds.asked]
        await subscriptions.resume("three")
        await trio.sleep(100)

    assert asked == ["one", "four"]
    assert [name for _, name in place.feeds.asked] == ["one", "four", "three"]


async def test_one_that_is_paused_while_it_is_checked_ends_that_check_and_has_no_other(
    clock: MockClock, place: SubscriptionPlace
) -> None:
    await prepared(place, "one", first_check="take")
    async with place.opened() as subscriptions:
        await trio.sleep(5)
        await subscriptions.pause("one")
        await trio.sleep(5 * HOUR)
        one, status = await subscriptions.find("one"), await subscriptions.status()

    assert (place.taken, len(place.feeds.asked)) == (["a", "b"], 1)
    assert (one.is_paused, one.paused_because, one.last_success) == (True, "paused by hand", START)
    assert (status["total_jobs"], status["pending_jobs"], status["next_run"]) == (1, 1, None)


async def test_while_all_is_paused_nothing_begins_but_what_is_asked_for_by_hand(
    clock: MockClock, place: SubscriptionPlace
) -> None:
    await prepared(place, "one", "two", "three")
    async with place.opened() as subscriptions:
        await trio.sleep(5)
        await place.pause_all()
        await trio.sleep(5 * HOUR)
        status = await subscriptions.status()
        asked = len(place.feeds.asked)
        await subscriptions.check_and_wait("three")
        await place.pause_all(is_paused=False)
        await trio.sleep(200)

    names = [name for _, name in place.feeds.asked]
    assert (asked, status["running"]) == (1, False)
    assert (names[:2], sorted(names[2:])) == (["one", "three"], ["one", "two"])
    assert {event.subscription for event in place.events.of(SubscriptionMisfired)} == {"one", "two"}


async def test_another_time_that_is_given_while_it_is_checked_is_kept(
    clock: MockClock, place: SubscriptionPlace
) -> None:
    await prepared(place, "one", "two")
    wanted = START + timedelta(hours=7)
    async with place.opened() as subscriptions:
        await trio.sleep(5)
        await subscriptions.reschedule(1, wanted)
        await trio.sleep(20)
        await subscriptions.reschedule(2)  # now: the check that runs is that one
        await trio.sleep(2.5 * HOUR)
        one = await subscriptions.find("one")

    assert one.next_attempt_at == wanted
    assert place.feeds.times("two") == [21.0, HOUR, 2 * HOUR]


async def test_who_resumes_one_in_the_middle_of_its_tenth_failure_begins_anew(
    clock: MockClock, place: SubscriptionPlace
) -> None:
    place.feeds.scripts["http://x.test/one"] = [BROKEN]
    await prepared(place, "one")
    async with place.opened() as subscriptions:
        await place.gateway.run(lambda connection: connection.execute(text("UPDATE subscriptions SET failures = 9")))
        await trio.sleep(5)
        await subscriptions.resume("one")
        await trio.sleep(100)
        one, checks = await subscriptions.find("one"), await subscriptions.checks(1)

    assert (one.is_paused, one.failures, len(checks)) == (False, 1, 2)
    assert one.next_attempt_at == START + timedelta(seconds=HOUR + 5)


async def test_settings_that_change_while_it_is_checked_elsewhere_make_it_be_checked_anew(
    clock: MockClock, place: SubscriptionPlace
) -> None:
    place.feeds.scripts["http://x.test/one"] = [page("old", moved_to="http://x.test/moved", etag='"old"')]
    await prepared(place, "one", first_check="take")
    async with place.opened() as subscriptions:
        known = await subscriptions.find("one")
        await place.gateway.run(table.set_configured, [known])
        await trio.sleep(5)
        place.feeds.scripts["http://new.test/one"] = [page("new", etag='"new"')]
        await place.gateway.run(table.set_configured, [evolve(known, url="http://new.test/one")])
        await trio.sleep(200)
        one = await subscriptions.find("one")

    assert (one.url, one.etag, place.taken) == ("http://new.test/one", '"new"', ["new"])


@pytest.mark.parametrize("host", ["x.test", "new.test"])
async def test_settings_that_change_while_it_is_checked_here_make_it_be_checked_anew_at_its_own_host(
    clock: MockClock, place: SubscriptionPlace, host: str
) -> None:
    place.feeds.scripts["http://x.test/one"] = [page("old", moved_to="http://x.test/moved", etag='"old"')]
    place.feeds.scripts[f"http://{host}/new"] = [page("new", etag='"new"')]
    place.feeds.takes_s["new.test"] = 10.0
    await prepared(place, "one", "two", first_check="take")
    async with place.opened() as subscriptions:
        await wait_all_tasks_blocked()  # the ticker has read the settings file
        known = await subscriptions.page()
        await place.gateway.run(table.set_configured, known)
        await trio.sleep(5)
        moved = [evolve(each, url=f"http://{host}/new") for each in known]
        await place.gateway.run(table.set_configured, moved)
        await place.gateway.run(announce, FEED.table)
        await trio.sleep(10)
        begun = await place.gateway.read(claimed)
        await trio.sleep(200)
        found = await subscriptions.page()
        left = await place.gateway.read(claimed)

    assert begun == [1, 2]  # the same process has claimed both anew while it asks the old address
    assert [(each.url, each.etag) for each in found] == [(f"http://{host}/new", '"new"')] * 2
    assert (place.taken, left) == (["new", "new"], [])
    assert sorted(name for _, name in place.feeds.asked) == ["one", "one", "two"]


async def test_a_name_that_is_given_to_another_feed_is_a_new_beginning(
    clock: MockClock, place: SubscriptionPlace
) -> None:
    await prepared(place, "one", first_check="take")
    async with place.opened() as subscriptions:
        await trio.sleep(5)
        await subscriptions.remove("one")
        place.feeds.scripts["http://y.test/one"] = [page("c")]
        made = await subscribe(subscriptions, "one", host="y.test", first_check="take")
        await trio.sleep(100)
        checks = await subscriptions.checks(made.id)

    assert (made.id, place.taken) == (2, ["c"])
    assert [check.items_found for check in checks] == [1]


async def test_a_key_in_an_error_is_hidden_where_it_is_kept_and_where_it_is_told(
    clock: MockClock, place: SubscriptionPlace
) -> None:
    url = "http://x.test/rss?passkey=hunter2hunter2"
    place.feeds.scripts[url] = [SourceUnavailable(f"no answer from {url}\nat all")]
    async with place.opened() as subscriptions:
        await subscriptions.add("keyed", FeedSettings(url=url, every_s=HOUR))
        check = await subscriptions.check_and_wait("keyed")
        kept = await subscriptions.find("keyed")

    said = "no answer from http://x.test/rss?passkey=*** at all"
    assert (check.error, kept.last_error) == (said, said)
    assert [event.error for event in place.events.of(SubscriptionFailed)] == [said]


async def test_checks_are_spread_evenly_over_a_window(clock: MockClock, place: SubscriptionPlace) -> None:
    await prepared(place, "one", "two", "three", "four")
    async with place.opened(has_ticker=False) as subscriptions:
        count = await subscriptions.spread(window_s=HOUR)
        times = [each.next_attempt_at - START for each in await subscriptions.page()]

    assert count == 4
    assert times == [timedelta(minutes=minutes) for minutes in (0, 15, 30, 45)]


async def test_statistics_are_those_of_the_last_hour(clock: MockClock, place: SubscriptionPlace) -> None:
    place.feeds.scripts["http://x.test/two"] = [BROKEN]
    await prepared(place, "one", "two", every_s=24 * HOUR, first_check="take")
    async with place.opened() as subscriptions:
        before = subscriptions.statistics_now()
        await trio.sleep(119)
        found = subscriptions.statistics_now()
        await trio.sleep(HOUR)
        later = subscriptions.statistics_now()

    assert set(before.values()) == {0}
    assert found == {
        "total_checks": 2,
        "successful_checks": 1,
        "failed_checks": 1,
        "average_duration_ms": 20_000,
        "total_items_found": 2,
        "total_new_items": 2,
        "checks_per_minute": 1.0,
        "success_rate": 50.0,
    }
    assert later == before


async def test_what_is_only_counted_is_not_wanted(clock: MockClock, place: SubscriptionPlace) -> None:
    await prepared(place, "one", first_check="take", auto_import=False)
    async with place.opened() as subscriptions:
        await trio.sleep(100)
        [check] = await subscriptions.checks(1)

    assert (check.new_items, place.taken) == (2, [])


async def test_the_next_check_is_an_interval_after_the_last_also_when_that_was_by_hand(
    clock: MockClock, place: SubscriptionPlace
) -> None:
    await prepared(place, "one")
    place.feeds.takes_s["x.test"] = 0.0
    async with place.opened() as subscriptions:
        began = trio.current_time()
        await trio.sleep(0.5 * HOUR)
        await subscriptions.check_and_wait("one")
        await trio.sleep(0.25 * HOUR)
        await subscriptions.check_and_wait("one")
        await trio.sleep(2.5 * HOUR)

    assert [(time - began) / HOUR for time in place.feeds.times("one")] == [0.0, 0.5, 0.75, 1.75, 2.75]


async def test_who_is_told_to_come_back_later_does(clock: MockClock, place: SubscriptionPlace) -> None:
    place.feeds.takes_s["x.test"] = 0.0
    place.feeds.scripts["http://x.test/one"] = [SourceLimited("too often", retry_after_s=5 * HOUR), page("a")]
    place.feeds.scripts["http://x.test/two"] = [SourceLimited("too often", retry_after_s=60), page("a")]
    await prepared(place, "one", "two")
    began = trio.current_time()
    async with place.opened() as subscriptions:
        await trio.sleep(6.5 * HOUR)
        one = await subscriptions.find("one")

    assert [time - began for time in place.feeds.times("one")] == [0.0, 5 * HOUR, 6 * HOUR]
    assert place.feeds.times("two")[1] - began == HOUR
    assert (one.failures, one.effective_s) == (0, None)


async def test_many_new_items_are_wanted_ten_by_ten_and_what_is_left_out_is_told(
    clock: MockClock, place: SubscriptionPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    titles = [f"item {number}" for number in range(25)]
    place.feeds.scripts["http://x.test/one"] = [page(*titles, left_out=7)]
    after_each, run = list[int](), place.gateway.run

    async def counting(function: Any, *args: Any, **words: Any) -> Any:
        done = await run(function, *args, **words)
        if function is record_check:
            after_each.append(len(place.taken))
        return done

    monkeypatch.setattr(place.gateway, "run", counting)
    await prepared(place, "one", first_check="take")
    async with place.opened() as subscriptions:
        await trio.sleep(30)
        [check] = await subscriptions.checks(1)

    assert after_each == [10, 20, 25]
    assert place.taken == titles
    assert (check.items_found, check.new_items) == (25, 25)
    [told] = place.events.of(SubscriptionChecked)
    assert (told.new_items, told.imported, told.left_out) == (25, 25, 7)


async def test_one_that_is_paused_while_its_items_are_written_brings_in_all_of_them(
    clock: MockClock, place: SubscriptionPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    titles = [f"item {number}" for number in range(25)]
    place.feeds.scripts["http://x.test/one"] = [page(*titles)]
    run = place.gateway.run

    async def slowly(function: Any, *args: Any, **words: Any) -> Any:
        done = await run(function, *args, **words)
        if function is record_check:
            await trio.sleep(40)
        return done

    monkeypatch.setattr(place.gateway, "run", slowly)
    await prepared(place, "one", first_check="take")
    async with place.opened() as subscriptions:
        await trio.sleep(30)
        await subscriptions.pause("one")
        await trio.sleep(200)
        [check] = await subscriptions.checks(1)

    assert (place.taken, check.status, check.new_items) == (titles, CheckStatus.SUCCESS, 25)


async def test_what_was_brought_in_before_a_mistake_stays_and_the_rest_is_new_the_next_time(
    clock: MockClock, place: SubscriptionPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    titles = [f"item {number}" for number in range(25)]
    place.feeds.scripts["http://x.test/one"] = [page(*titles)]

    def refuse(subscription: DueFeed, item: FeedEntryItem, now: datetime) -> Want:
        if item.title == "item 15":
            raise ValueError("too odd")
        return want_of(subscription, item, now)

    await prepared(place, "one", first_check="take")
    async with place.opened() as subscriptions:
        with monkeypatch.context() as wrong:
            wrong.setattr("storage.watch.choice.want_of", refuse)
            await trio.sleep(30)
        [failed] = await subscriptions.checks(1)
        place.taken[10:] = []  # what was noted of the part that was undone
        good = await subscriptions.check_and_wait("one")

    assert (failed.status, failed.new_items) == (CheckStatus.FAILED, 10)
    assert (good.status, good.new_items, place.taken) == (CheckStatus.SUCCESS, 15, titles)
