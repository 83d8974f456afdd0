"""The town of the playground leads what artists release to where it is wanted, over real sockets."""

from __future__ import annotations

import random
import socket
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import Any

import httpx2
import pytest
import trio
from attrs import define, evolve, field
from trio.testing import MockClock

from cormorant.cli.playground_run import PlaygroundRun
from cormorant.playground import open_playground
from cormorant.playground.feed_site import SOON
from cormorant.playground.price_site import EVERY as MARKET_EVERY
from cormorant.playground.price_site import SOON as MARKET_SOON
from cormorant.playground.price_site import sales_since
from cormorant.playground.world import playground_sites, with_playground
from cormorant.rules.events import NoticeSent
from cormorant.rules.settings.service import NotifySettings, PlaygroundSettings
from cormorant.rules.settings.settings import SearchSettings, Settings
from cormorant.rules.settings.watch import SubscriptionSettings
from cormorant.rules.watch.events import SavedSearchChecked, WantChanged
from cormorant.rules.watch.feeds import SubscriptionChecked, SubscriptionFailed
from cormorant.rules.watch.prices import PriceAlert, PriceCollected, PriceValued
from cormorant.rules.watch.wants import Want, WantState
from cormorant.testing import Recorder, SimulatedClock, in_line, memory_gateway, settings
from supervisors import Service, open_service
from tests.bounds import WAIT_S
from tests.environments import environment_of

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def settings_of_the_town(**chosen: Any) -> Settings:
    played = PlaygroundSettings(enabled=True, listen=free_address())
    gentle = SubscriptionSettings(domain_request_delay_s=0.0)  # it is our own machine
    return with_playground(settings(playground=played, subscriptions=gentle, **chosen))


def hourly(chosen: Settings) -> Settings:
    """The same with a first check alone: no other is due while a test runs."""
    feeds = {name: evolve(feed, every_s=3_600.0) for name, feed in chosen.feeds.items()}
    prices = {name: evolve(price, every_s=3_600.0) for name, price in chosen.prices.items()}
    return evolve(chosen, feeds=feeds, prices=prices)


async def until(is_so: Callable[[], object]) -> None:
    while not is_so():
        await trio.sleep(0.05)


async def done(service: Service, count: int, *, of: str = "") -> list[Want]:
    found: list[Want] = []
    while len(found) < count:
        await trio.sleep(0.1)
        found = [want for want in await service.wants.page(state=WantState.DONE) if want.watch.startswith(of)]
    return found


@pytest.mark.slow("a want takes its time: searches, a grab, a download")
def test_what_is_released_is_found_on_both_kinds_of_source_and_arrives(socket_clock: MockClock) -> None:
    recorder = Recorder()
    chosen = settings_of_the_town(notify=NotifySettings(on=()))

    async def until_done() -> dict[int, tuple[set[str], str]]:
        with memory_gateway() as gateway, trio.fail_after(WAIT_S):
            service = open_service(
                chosen,
                environment=environment_of(
                    clock=SimulatedClock(),
                    chance=random.Random(1),
                    offload=in_line,
                    database=gateway,
                    listeners=[recorder],
                ),
            )
            async with PlaygroundRun(service, looks_after_s=[1.0]) as playing, service, trio.open_nursery() as nursery:
                nursery.start_soon(playing.live)
                found = await done(service, 3)
                await until(lambda: len(recorder.of(SubscriptionChecked)) >= 2 * len(chosen.feeds) - 1)
                views = [await service.wants.find(each.id) for each in found]
                nursery.cancel_scope.cancel()
            return {
                view.want.id: ({each.source for each in view.candidates}, view.handovers[0].target) for view in views
            }

    ended = trio.run(until_done, clock=socket_clock)

    assert sorted(ended.values(), key=lambda each: each[1]) == [
        ({"attic", "slskd"}, "qbittorrent"),
        ({"barn"}, "sabnzbd"),
        ({"slskd"}, "slskd"),
    ]
    reasons = [event.reason for event in recorder.of(WantChanged) if event.state == "chosen"]
    assert any(reason.startswith("3 of 5 fit, first ") and "for 24.?bit" in reason for reason in reasons)
    names = {(event.want, event.title) for event in recorder.of(WantChanged) if event.want in ended}
    assert len(names) == len(ended)  # each by one name to the end
    assert recorder.of(SavedSearchChecked)[0].wanted == 1
    looked_at = Counter(event.subscription for event in recorder.of(SubscriptionChecked))
    assert looked_at == {"open-films": 2, "field-recordings": 2, "slow-news": 1}  # by itself, and by hand
    assert [event.subscription for event in recorder.of(SubscriptionFailed)] == ["slow-news"]


@define
class Clock:
    """What the stand-ins believe. The service has the real time."""

    at: datetime = field(factory=lambda: datetime.now(UTC))

    def now(self) -> datetime:
        return self.at

    def stopwatch(self) -> float:
        return 0.0


@pytest.mark.slow("loads Apprise, and follows a find to its end")
def test_what_is_new_in_feeds_is_handed_over_and_a_price_that_falls_is_told() -> None:
    recorder, clock = Recorder(), Clock()
    chosen = hourly(settings_of_the_town(search=SearchSettings(cache_enabled=False)))

    async def until_told() -> tuple[list[tuple[str, str]], list[dict[str, str]]]:
        with memory_gateway() as gateway, trio.fail_after(WAIT_S):
            sites = playground_sites(clock)
            service = open_service(
                chosen, environment=environment_of(chance=random.Random(1), database=gateway, listeners=[recorder])
            )
            async with open_playground(*sites, listen=chosen.playground.listen) as playground, service:
                await until(lambda: len(recorder.of(SubscriptionChecked)) == 3 and recorder.of(PriceValued))
                clock.at += SOON
                for feed in chosen.feeds:
                    await service.feeds.check_and_wait(feed)
                await service.prices.check("lantern")
                await until(lambda: "Cormorant: Price alert" in titles_of(recorder))
                items = await done(service, 2, of="feed:")
                async with httpx2.AsyncClient(timeout=WAIT_S) as client:
                    heard = (await client.get(playground.url_of("phone"))).json()
                views = [await service.wants.find(each.id) for each in items]
            return sorted((view.want.watch, view.handovers[0].target) for view in views), heard

    handed, heard = trio.run(until_told)

    first, second = events_of(recorder, "open-films")
    assert (first.items_found, first.new_items, first.imported) == (6, 0, 0)
    assert (second.new_items, second.imported) == (2, 1)  # the other form does not fit
    assert first.because == "every 1h"
    assert second.next_check_at > first.next_check_at
    assert handed == [("feed:field-recordings", "webhook"), ("feed:open-films", "qbittorrent")]
    assert "HTTP 503" in recorder.of(SubscriptionFailed)[0].error
    assert [event.written for event in recorder.of(PriceCollected)] == [13, 4]
    assert [event.cents for event in recorder.of(PriceValued)] == [118_50, 88_75]
    assert [event.side for event in recorder.of(PriceAlert)] == ["below"]
    assert {"title": "Cormorant: Price alert", "message": "lantern is below 100.00 EUR: 88.75 EUR"} in heard


def titles_of(recorder: Recorder) -> list[str]:
    return [event.title for event in recorder.of(NoticeSent)]


def events_of(recorder: Recorder, name: str) -> list[SubscriptionChecked]:
    return [event for event in recorder.of(SubscriptionChecked) if event.subscription == name]


def test_the_lantern_is_dear_at_each_opening_and_cheap_soon_after() -> None:
    sides: list[str] = []
    listed: dict[str, float] = {}
    for opened in (NOON, NOON + timedelta(hours=1), NOON + timedelta(hours=3)):
        for at in (opened, opened + MARKET_SOON, opened + MARKET_EVERY, opened + 2 * MARKET_EVERY):
            listed |= {number: price for sold_at, number, price in sales_since(opened) if sold_at <= at}
            sides.append("dear" if median(listed.values()) > 100 else "cheap")

    assert sides == ["dear", "cheap"] * 6
