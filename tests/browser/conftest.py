"""What tests of the page may ask for: a tab of the one browser. Each runs in the browser's thread, and watches what the page does."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import pytest
from attrs import define, field
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.bounds import WAIT_S
from tests.browser.finding import FLAGS, BrowserMissing, find_browser

T = TypeVar("T")
SHOTS = Path(__file__).parent / "shots"
WAIT_MS = WAIT_S * 1000
SCENARIO_S = 4 * WAIT_S
expect.set_options(timeout=WAIT_MS)


@define(eq=False)
class BrowserThread:
    """The thread that owns the browser. Playwright's plain API keeps an event loop in its thread, so no test may share it."""

    _pool: ThreadPoolExecutor = field(factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="browser"))
    _browser: Browser | None = None
    _stop: Callable[[], None] | None = None

    def run(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        return self._pool.submit(function, *args, **kwargs).result(SCENARIO_S)

    def open(self, path: str) -> None:
        self.run(self._open, path)

    def _open(self, path: str) -> None:
        playwright = sync_playwright().start()
        self._stop = playwright.stop
        self._browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS), headless=True)

    def new_context(self, **how: Any) -> BrowserContext:
        assert self._browser is not None
        context = self._browser.new_context(**how)
        context.set_default_timeout(WAIT_MS)
        return context

    def close(self) -> None:
        if self._browser is not None:
            self.run(self._browser.close)
        if self._stop is not None:
            self.run(self._stop)
        self._pool.shutdown()


@define(eq=False)
class Watched:
    """A tab, and all that a page must not do."""

    page: Page
    errors: list[str] = field(factory=list)
    hosts: set[str] = field(factory=set)

    def __attrs_post_init__(self) -> None:
        self.page.on(
            "console", lambda said: self.errors.append(said.text) if said.type in {"error", "warning"} else None
        )
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda asked: self.hosts.add(urlsplit(asked.url).netloc))

    def shot(self, name: str, **how: Any) -> None:
        """Keep a picture of it, to be looked at."""
        SHOTS.mkdir(exist_ok=True)
        self.page.screenshot(path=SHOTS / f"{name}.png", **how)


@pytest.fixture(scope="session")
def browser() -> Iterator[BrowserThread]:
    """One browser for all tests. Without any they are left out with a loud word at the desk, and fail in a build."""
    try:
        path = find_browser()
    except BrowserMissing as missing:
        if os.environ.get("CI"):
            pytest.fail(str(missing), pytrace=False)
        pytest.skip(str(missing))
    thread = BrowserThread()
    thread.open(path)
    yield thread
    thread.close()


@pytest.fixture
def new_tab(browser: BrowserThread) -> Iterator[Callable[..., Watched]]:
    """Opens a tab in a context of its own. At the end the page must have had no trouble and no other host."""
    opened: list[tuple[BrowserContext, Watched]] = []

    def new(**how: Any) -> Watched:
        context = browser.new_context(**{"locale": "en-GB", "timezone_id": "Europe/Berlin"} | how)
        watched = Watched(context.new_page())
        opened.append((context, watched))
        return watched

    yield new
    for context, watched in opened:
        browser.run(context.close)
        assert watched.errors == []
        assert len(watched.hosts) == 1, watched.hosts


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that has a tab in the browser's thread."""
    values = pyfuncitem.funcargs
    if "new_tab" not in values:
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    thread: Any = values["browser"]
    thread.run(pyfuncitem.obj, **{name: values[name] for name in names})
    return True
