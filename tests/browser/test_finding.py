"""A browser is found where one is, and asked for loudly where none is."""

from __future__ import annotations

import pytest

from tests.browser.finding import BrowserMissing, Machine, find_browser


def machine(*there: str, own: str | None = None, may_install: bool = False, **environ: str) -> Machine:
    found = set(there)  # by name, or by path

    def install() -> bool:
        found.add("chromium")
        return True

    def which(name: str) -> str | None:
        return f"/bin/{name.rpartition('/')[2]}" if name in found else None

    return Machine(environ=environ, which=which, own=lambda: own, may_install=may_install, install=install)


def test_the_one_that_is_named_comes_first() -> None:
    assert find_browser(machine("chromium", "/opt/mine", BROWSER="/opt/mine")) == "/bin/mine"


def test_a_mere_name_is_what_the_desktop_opens_links_with() -> None:
    assert find_browser(machine("chromium", "firefox", BROWSER="firefox")) == "/bin/chromium"


def test_one_that_is_named_and_not_there_is_not_replaced_by_another() -> None:
    with pytest.raises(BrowserMissing, match="BROWSER names '/opt/mine'"):
        find_browser(machine("chromium", BROWSER="/opt/mine"))


def test_the_systems_comes_before_playwrights_own() -> None:
    assert find_browser(machine("google-chrome", own="/own")) == "/bin/google-chrome"


def test_playwrights_own_comes_before_an_installation() -> None:
    assert find_browser(machine(own="/own", may_install=True)) == "/own"


def test_debians_package_is_installed_where_that_may_be() -> None:
    assert find_browser(machine(may_install=True)) == "/bin/chromium"


def test_without_any_it_says_what_to_do() -> None:
    with pytest.raises(BrowserMissing, match="apt-get install chromium"):
        find_browser(machine())
