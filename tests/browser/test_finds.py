"""Watches and finds as people see them: why this one, by hand in observe mode, and what is held for a person."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import trio
from attrs import evolve
from playwright.sync_api import Page, expect

from cormorant.clients.files import Download
from cormorant.rules.search.requests import Result, SearchPage, SearchRequest
from cormorant.rules.settings.watch import (
    ArtistOptions,
    ProfileSettings,
    SavedSettings,
    TargetSettings,
    WatchlistSettings,
)
from cormorant.rules.watch.handovers import TargetInDoubt
from cormorant.rules.watch.releases import CatalogueArtist
from cormorant.scripted import ScriptedCatalogue, ScriptedTarget, album
from storage.search.sources import SourceRecord
from tests.browser.conftest import Watched
from tests.browser.serving import Serving
from tests.browser.test_page import OVERFLOW, PHONE, sign_in

pytestmark = pytest.mark.slow("a real browser at a real service")

NewTab = Callable[..., Watched]
FIND = Result(title="", guid="", link="http://red.test/1", protocol="torrent", size_bytes=330_000_000, seeders=4)


async def fetch(_record: SourceRecord, _link: str) -> Download:
    await trio.lowlevel.checkpoint()
    return Download(kind="torrent", body=b"d4:infod4:name1:aee", infohash="a" * 40)


async def finds(_record: SourceRecord, request: SearchRequest) -> SearchPage:
    """Three forms of what is asked for; a title may hold anything."""
    await trio.lowlevel.checkpoint()
    forms = ("[FLAC]", "[24bit FLAC]", "[MP3] <b>bold</b>")
    return SearchPage(
        results=tuple(
            evolve(FIND, title=f"{request.query or 'News'} {form}", guid=f"{request}{form}") for form in forms
        )
    )


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A service in observe mode with two artists; one target takes all, the other never says whether it arrived."""
    catalogue = ScriptedCatalogue(
        {"a1": [[album("Slow Weather", "2100-01-02")]], "a2": [[album("Unlit Rooms", "2100-01-02", by="a2")]]},
        artists=[CatalogueArtist(id="a3", name="Velvet Orrery")],
    )
    doubtful = ScriptedTarget(can_be_asked=False, after=[TargetInDoubt("no answer came")])
    given = {
        "catalogue": catalogue,
        "targets": {"box": ScriptedTarget(can_be_asked=False), "hook": doubtful},
        "download": fetch,
    }
    source: Any = finds
    with Serving(
        tmp_path_factory.mktemp("data"),
        {"red": source},
        given=given,
        watchlist=WatchlistSettings(choose="flac", interval_s=0.2, search=("red",)),
        profiles={"flac": ProfileSettings(accept=("flac",), prefer=("24.?bit",))},
        targets={
            "box": TargetSettings(url="http://box.test"),
            "hook": TargetSettings(url="http://hook.test"),
        },
        saved={"charts": SavedSettings(query="charts", search=("red",))},
    ) as serving:
        for number, name, target in (("a1", "Glass Tramway", "box"), ("a2", "Moth Observatory", "hook")):
            found, options = CatalogueArtist(id=number, name=name), ArtistOptions(hand_to=(target,))
            serving.call(partial(serving.service.artists.add, found, options))
        yield serving


def find(page: Page, name: str) -> Any:
    return page.get_by_role("article", name=name)


def test_a_want_says_why_this_candidate_and_another_is_handed_over_by_hand(new_tab: NewTab, serving: Serving) -> None:
    tab = new_tab()
    page = tab.page
    sign_in(page, serving.address)
    expect(page.locator("#mode")).to_have_text("OBSERVE")

    page.keyboard.press("3")
    want = find(page, "Slow Weather")
    expect(want).to_contain_text("observe mode: would be handed to box")
    want.get_by_role("button", name="Why").click()

    chosen, plain, unfit = (want.get_by_role("listitem").nth(place) for place in range(3))
    expect(chosen).to_contain_text("[24bit FLAC]")
    expect(chosen).to_contain_text("chosen")
    expect(chosen.locator(".merit")).to_have_text("24.?bit")
    expect(plain).to_contain_text("330 MB · 4 seeders")
    expect(unfit).to_contain_text("<b>bold</b>")  # text stays text
    expect(unfit).to_contain_text("title: none of flac")
    tab.shot("finds", full_page=True)
    plain.get_by_role("button", name="Hand over").focus()
    page.keyboard.press("Enter")
    expect(want.locator(".state")).to_have_text("done")
    expect(plain).to_contain_text("chosen")
    expect(page.locator("#downloads")).to_contain_text("box")
    expect(page.get_by_text("was there before the search was saved")).to_have_count(0)
    page.locator("#finds-state").select_option("ignored")
    expect(page.get_by_text("was there before the search was saved")).to_have_count(3)
    page.locator("#finds-state").select_option("gave up")
    expect(page.locator("#finds")).to_have_text("Nothing is in the state “gave up”.")


def test_what_is_held_waits_for_a_person(new_tab: NewTab, serving: Serving) -> None:
    tab = new_tab(color_scheme="dark")
    page = tab.page
    sign_in(page, serving.address)

    page.keyboard.press("3")
    want = find(page, "Unlit Rooms")
    want.get_by_role("button", name="Hand over").click()
    expect(want.locator(".state")).to_have_text("in doubt")
    held = page.get_by_role("row").filter(has_text="held")
    expect(held).to_contain_text("hook")
    tab.shot("finds-dark", full_page=True)
    page.keyboard.press("1")
    needs = page.get_by_role("region", name="Needs you")
    expect(needs).to_contain_text("may have arrived at hook: no answer came")
    needs.get_by_role("link", name="Decide").click()
    held.get_by_role("button", name="has arrived").click()

    expect(want.locator(".state")).to_have_text("done")
    expect(want).to_contain_text("decided by hand")
    expect(held).to_have_count(0)


def test_artists_are_watched_and_removed_and_searches_paused_on_a_phone(new_tab: NewTab, serving: Serving) -> None:
    tab = new_tab(viewport=PHONE, is_mobile=True, has_touch=True)
    page = tab.page
    sign_in(page, serving.address)

    page.get_by_role("link", name="Watches").tap()
    page.get_by_label("Artist", exact=True).fill("Velvet Orrery")
    page.keyboard.press("Enter")
    artist = find(page, "Velvet Orrery")
    expect(artist).to_contain_text("looked at")
    charts = find(page, "charts")
    charts.get_by_role("button", name="Pause charts").tap()
    expect(charts).to_contain_text("paused")
    tab.shot("phone-watches", full_page=True)
    assert page.evaluate(OVERFLOW) == 0
    artist.get_by_role("button", name="Pause").tap()
    expect(artist).to_contain_text("paused")
    expect(artist.get_by_role("button", name="Look")).to_have_count(0)
    artist.get_by_role("button", name="Resume").tap()
    expect(artist).not_to_contain_text("paused")
    artist.get_by_role("button", name="Remove").tap()
    artist.get_by_role("button", name="Really remove").tap()
    expect(artist).to_have_count(0)
    page.get_by_role("link", name="Finds").tap()
    find(page, "Glass Tramway").get_by_role("button", name="Why").tap()
    expect(page.locator(".candidate")).to_have_count(3)
    tab.shot("phone-finds", full_page=True)
    assert page.evaluate(OVERFLOW) == 0
