"""The page as people use it: in a real browser, at a real service. None may have an error, nor ask any other host."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from cormorant.rules.events import WebKeyRefused
from cormorant.rules.search.limits import Lane
from cormorant.rules.search.outcomes import CredentialsRefused
from cormorant.rules.secrets import Secret
from cormorant.rules.settings.service import ClientSettings, WebSettings
from cormorant.rules.settings.sources import SourceSettings
from cormorant.scripted import ScriptedSource
from tests.browser.conftest import Watched
from tests.browser.serving import Serving
from tests.web.web_place import KEY, SONARR, SOURCE_KEY

pytestmark = pytest.mark.slow("a real browser at a real service")

NewTab = Callable[..., Watched]
PHONE = {"width": 390, "height": 844}
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


def source(name: str, **limits: object) -> SourceSettings:
    return SourceSettings(url=f"http://{name}.test/1/api", key=Secret(SOURCE_KEY), **limits)  # type: ignore[arg-type]  # limits by name


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A service with four sources: one open, one that is spaced out, one used up, one with a wrong key."""
    scripts = {
        "attic": ScriptedSource(["Geogaddi <b>FLAC</b>", "Geogaddi MP3"], takes_s=0.1),
        "loft": ScriptedSource(["Geogaddi vinyl"]),
        "cellar": ScriptedSource(),
        "shed": ScriptedSource(CredentialsRefused("100 Incorrect user credentials")),
    }
    sources = {
        "attic": source("attic", spacing_s=0.0, pace_s=0.0, per_day=300),
        "loft": source("loft", limits="private", spacing_s=2000.0),
        "cellar": source("cellar", limits="private"),
        "shed": source("shed"),
    }
    clients = {"sonarr": ClientSettings(key=Secret(SONARR))}
    with Serving(tmp_path_factory.mktemp("data"), scripts, sources=sources, clients=clients) as serving:
        serving.spend("attic", {("sonarr", Lane.QUERY): 90, ("", Lane.QUERY): 51})
        serving.spend("loft", {("sonarr", Lane.QUERY): 10}, ago_s=5)
        serving.spend("cellar", {("sonarr", Lane.QUERY): 500, ("sonarr", Lane.GRAB): 12}, ago_s=600)
        yield serving


def sign_in(page: Page, address: str) -> None:
    page.goto(address)
    page.get_by_label("Key", exact=True).fill(KEY)
    page.get_by_role("button", name="Open the gate").click()
    expect(page.locator("#live")).to_have_text("connected")


def test_a_first_visit_asks_for_the_key_once_and_shows_the_accounts(new_tab: NewTab, serving: Serving) -> None:
    tab = new_tab()

    sign_in(tab.page, serving.address)

    attic = tab.page.get_by_role("article", name="attic")
    expect(attic.get_by_role("meter")).to_have_attribute("aria-valuenow", "141")
    expect(attic).to_contain_text("next request now")
    expect(tab.page.locator("#spent")).to_contain_text("sonarr")
    expect(tab.page.locator("#zone")).to_have_text("times in Europe/Berlin")
    tab.shot("home", full_page=True)
    tab.page.reload()
    expect(attic).to_be_visible()  # the cookie is enough now
    [cookie] = tab.page.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Strict", "/")
    assert KEY not in str(tab.page.context.storage_state())


def test_a_wrong_key_is_told_and_logged_and_opens_nothing(new_tab: NewTab, serving: Serving) -> None:
    tab = new_tab()
    before = len(serving.place.events.of(WebKeyRefused))

    tab.page.goto(serving.address)
    tab.page.get_by_label("Key", exact=True).fill("wrong")
    tab.page.keyboard.press("Enter")

    expect(tab.page.get_by_role("alert").first).to_have_text("This is not the key.")
    expect(tab.page.get_by_label("Key", exact=True)).to_be_focused()
    assert tab.page.context.cookies() == []
    assert len(serving.place.events.of(WebKeyRefused)) == before + 1
    tab.shot("wrong-key")
    refused = tab.errors.pop()  # the browser itself notes every 401
    assert "401" in refused


def test_what_is_found_streams_in_and_what_waits_says_why_and_until_when(new_tab: NewTab, serving: Serving) -> None:
    tab = new_tab()
    page = tab.page
    sign_in(page, serving.address)

    page.keyboard.press("/")
    page.keyboard.type("geogaddi")
    page.keyboard.press("Enter")

    found = page.get_by_role("region", name="Search results")
    attic = found.get_by_role("region", name="attic")
    expect(attic.get_by_role("listitem")).to_have_count(2)
    expect(attic).to_contain_text("Geogaddi <b>FLAC</b>")  # text stays text
    loft = found.get_by_role("region", name="loft")
    expect(loft).to_contain_text(re.compile(r"waits: in (3[0-3]|2\d) min because of spacing"))
    expect(loft).to_contain_text("the site allows one every 2000 s")
    expect(found.get_by_role("region", name="shed")).to_contain_text("Incorrect user credentials")
    expect(page.locator("#now")).to_contain_text("geogaddi")
    tab.shot("searching", full_page=True)
    page.keyboard.press("Escape")
    expect(found).to_contain_text("2 results from 1 of 4 accounts")
    expect(loft).to_contain_text("cancelled")
    page.keyboard.press("Escape")
    expect(found).to_be_hidden()
    expect(page.get_by_role("region", name="Needs you")).to_contain_text("shed")
    cellar = page.get_by_role("article", name="cellar")
    cellar.get_by_role("button", name="Why").click()
    expect(cellar).to_contain_text("because of the daily limit")
    expect(cellar).to_contain_text("500 of 500 queries per day are spent")
    expect(cellar.get_by_role("button", name="Why")).to_be_focused()  # though all of it was drawn anew
    tab.shot("why")


def test_one_and_all_are_paused_and_resumed(new_tab: NewTab, serving: Serving) -> None:
    tab = new_tab()
    page = tab.page
    sign_in(page, serving.address)
    attic = page.get_by_role("article", name="attic")

    attic.get_by_role("button", name="Pause attic").click()
    expect(attic).to_contain_text("it is paused")
    attic.get_by_role("button", name="Resume attic").click()
    expect(attic).to_contain_text("next request now")
    page.keyboard.press("p")
    expect(page.locator("#paused")).to_contain_text("Everything is paused since")
    expect(attic).to_contain_text("it is paused")
    tab.shot("paused")
    page.get_by_role("button", name="Resume", exact=True).first.click()
    expect(page.locator("#paused")).to_be_hidden()
    expect(attic).to_contain_text("next request now")


def test_a_phone_shows_all_without_scrolling_sideways(new_tab: NewTab, serving: Serving) -> None:
    tab = new_tab(viewport=PHONE, is_mobile=True, has_touch=True)
    page = tab.page
    sign_in(page, serving.address)

    for view in ("System", "Jobs", "Accounts"):
        page.get_by_role("link", name=view).tap()
        expect(page.locator(f"#view-{view.lower()}")).to_be_visible()
        page.locator("#query, #jobs-list p, #tree li").first.wait_for(state="attached")
        tab.shot(f"phone-{view.lower()}")
        assert page.evaluate(OVERFLOW) == 0, view


def test_dark_is_as_the_system_says_until_it_is_chosen(new_tab: NewTab, serving: Serving) -> None:
    tab = new_tab(color_scheme="dark")
    page = tab.page
    sign_in(page, serving.address)
    colour = "getComputedStyle(document.body).backgroundColor"

    dark = page.evaluate(colour)
    tab.shot("dark")
    page.get_by_role("button", name="Light or dark").click()
    light = page.evaluate(colour)
    page.reload()

    assert (dark, light) == ("rgb(15, 20, 22)", "rgb(244, 241, 234)")
    assert page.evaluate(colour) == light


def test_what_happens_is_shown_as_it_happens_until_one_signs_out_for_good(new_tab: NewTab, serving: Serving) -> None:
    tab = new_tab()
    page = tab.page
    sign_in(page, serving.address)

    page.keyboard.press("5")
    serving.call(serving.service.search, "drukqs")
    expect(page.locator("#events")).to_contain_text("search.submitted")
    expect(page.locator("#tree")).to_contain_text("rate_limiter:attic running")
    tab.shot("system")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("pause everything, or go on")
    page.keyboard.press("Escape")
    kept = page.context.cookies()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Key", exact=True)).to_be_visible()
    page.context.add_cookies(kept)  # type: ignore[arg-type]  # what one call gives the other takes
    page.reload()
    expect(page.get_by_label("Key", exact=True)).to_be_visible()  # the cookie is worth nothing any more


def test_a_job_is_cancelled_and_retried(new_tab: NewTab, serving: Serving) -> None:
    tab = new_tab()
    page = tab.page
    sign_in(page, serving.address)

    page.keyboard.press("4")
    expect(page.locator("#jobs-list")).to_contain_text("No jobs.")
    page.keyboard.press("1")
    serving.call(serving.service.enqueue, "kind-of-nobody", {"album": 7})
    page.keyboard.press("4")
    page.get_by_role("button", name="cancel job 1").click()
    expect(page.get_by_role("row").nth(1)).to_contain_text("cancelled")
    expect(page.locator("#jobs-sum")).to_have_text("")
    tab.shot("jobs")
    page.get_by_role("button", name="retry job 1").click()
    expect(page.get_by_role("row").nth(1)).to_contain_text("pending")


def test_the_page_works_below_a_path_of_its_own(new_tab: NewTab, tmp_path: Path) -> None:
    tab = new_tab()
    web = WebSettings(listen="127.0.0.1:0", key=Secret(KEY), url_base="/birds/cormorant")
    with Serving(tmp_path, {"attic": ScriptedSource(["x"])}, web=web) as serving:
        sign_in(tab.page, serving.address.rstrip("/"))  # without the slash it is led there

        expect(tab.page.get_by_role("article", name="attic")).to_be_visible()
        assert tab.page.url == serving.address
        assert tab.page.context.cookies()[0]["path"] == "/birds/cormorant"
        tab.page.goto("about:blank")
