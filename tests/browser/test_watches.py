"""Feeds and prices as people see them: when each is looked at next, what came of it, and what a thing is worth."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import trio
from playwright.sync_api import Locator, Page, expect

from cormorant.rules.search.outcomes import SourceUnavailable
from cormorant.rules.search.requests import Result, SearchPage, SearchRequest
from cormorant.rules.settings.settings import SearchSettings
from cormorant.rules.settings.sources import SourceSettings
from cormorant.rules.settings.watch import FeedSettings, PriceSettings, SubscriptionSettings
from cormorant.rules.watch.feeds import FeedEntryItem, FetchedFeed, Subscription
from storage.search.sources import SourceRecord
from tests.browser.conftest import Watched
from tests.browser.serving import Serving
from tests.browser.test_page import OVERFLOW, PHONE, sign_in

pytestmark = pytest.mark.slow("a real browser at a real service")

NewTab = Callable[..., Watched]
KEY = "hunter2hunter2"
SOLD = [("1", 123_45)]
HEARD = ["<b>one</b>"]
NEXT = re.compile(r"next in (60|5\d) min")
"""What an hourly check shows during the first ten minutes."""


async def feed(subscription: Subscription) -> FetchedFeed:
    """What was heard so far; one that is called bad fails, and tells its key."""
    await trio.lowlevel.checkpoint()
    if subscription.name == "bad":
        raise SourceUnavailable(f"no answer from {subscription.url}")
    return FetchedFeed(items=tuple(FeedEntryItem(key=title, title=title, link="http://x.test/1") for title in HEARD))


async def shop(_record: SourceRecord, _request: SearchRequest) -> SearchPage:
    await trio.lowlevel.checkpoint()
    return SearchPage(results=tuple(lot(number, cents) for number, cents in SOLD))


def lot(number: str, cents: int) -> Result:
    said = {"price_cents": (str(cents),), "price_currency": ("USD",), "price_type": ("sold",), "price_id": (number,)}
    return Result(title="1881 Morgan Dollar", guid=number, link="", protocol="web", attributes=said)


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A service with a feed that grows, one that fails, and a coin that is worth too much."""
    source: Any = shop
    url = f"http://x.test/rss?passkey={KEY}"
    with Serving(
        tmp_path_factory.mktemp("data"),
        {"shop": source},
        given={"feed": feed},
        sources={"shop": SourceSettings(kind="prices", url="http://shop.test/api", spacing_s=0.0, pace_s=0.0)},
        search=SearchSettings(cache_enabled=False),
        feeds={"radio": FeedSettings(url=url, every_s=3_600.0), "bad": FeedSettings(url=url, cron="0 9 * * MON")},
        subscriptions=SubscriptionSettings(domain_request_delay_s=0.0),
        prices={
            "coin": PriceSettings(title="Morgan Dollar", year="1881", currency="USD", above="100", every_s=3_600.0)
        },
    ) as serving:
        yield serving


def row(page: Page, name: str) -> Locator:
    return page.get_by_role("article", name=name)


def test_a_feed_says_what_was_new_and_when_it_is_checked_next_and_a_price_what_it_is_worth(
    new_tab: NewTab, serving: Serving
) -> None:
    tab = new_tab(color_scheme="dark")
    page = tab.page
    sign_in(page, serving.address)
    expect(page.locator("#where option")).to_have_text(["everywhere"])  # a shop is not where people search
    page.keyboard.press("2")
    radio, bad, coin = (row(page, name) for name in ("radio", "bad", "coin"))

    expect(radio).to_contain_text("every 60 min")
    expect(radio).to_contain_text("nothing new")
    expect(radio).to_contain_text(NEXT)
    expect(bad).to_contain_text("by cron 0 9 * * MON UTC")
    expect(bad.locator(".error")).to_contain_text("no answer from http://x.test/rss?passkey=***")
    expect(page.locator("#feeds-sum")).to_have_text("2 checked, 1 failing")
    expect(coin.locator(".value")).to_have_text("US$123.45above US$100.00")
    expect(coin).to_contain_text("1881, the median of 1 sale matching in full")
    expect(coin).to_contain_text(NEXT)
    assert KEY not in page.content()

    HEARD.append("two")
    SOLD.extend([("2", 80_00), ("3", 90_00)])
    radio.get_by_role("button", name="Check radio now").click()
    coin.get_by_role("button", name="Ask about coin now").focus()
    page.keyboard.press("Enter")

    expect(radio.locator(".brought")).to_have_text("1 new")
    expect(page.locator("#said")).to_have_text("coin is asked about.")
    expect(coin.locator(".value")).to_have_text("US$90.00")
    expect(coin).to_contain_text("told above US$100.00")
    coin.get_by_role("button", name="Pause coin").click()
    expect(coin).not_to_contain_text("next")
    coin.get_by_role("button", name="Resume coin").click()
    expect(coin).to_contain_text(NEXT)
    tab.shot("watches-dark", full_page=True)
    page.keyboard.press("3")
    expect(row(page, "two")).to_contain_text("of the feed radio")


def test_feeds_are_paused_and_removed_on_a_phone_but_not_those_of_the_settings_file(
    new_tab: NewTab, serving: Serving
) -> None:
    options = FeedSettings(url="http://y.test/a.xml", every_s=3_600.0)
    serving.call(partial(serving.service.feeds.add, "mine", options))
    tab = new_tab(viewport=PHONE, is_mobile=True, has_touch=True)
    page = tab.page
    sign_in(page, serving.address)
    page.get_by_role("link", name="Watches").tap()
    radio, mine = row(page, "radio"), row(page, "mine")

    radio.get_by_role("button", name="Pause radio").tap()
    expect(radio).to_contain_text("paused by hand")
    expect(radio).not_to_contain_text("next")
    tab.shot("phone-feeds", full_page=True)
    assert page.evaluate(OVERFLOW) == 0
    radio.get_by_role("button", name="Resume radio").tap()
    expect(radio).to_contain_text("next")
    expect(radio.get_by_role("button", name="Remove radio")).to_have_count(0)
    mine.get_by_role("button", name="Remove mine").tap()
    mine.get_by_role("button", name="Really remove mine").tap()
    expect(mine).to_have_count(0)
