"""Which browser do the tests drive? The one that is named, else the system's, else Playwright's own, else Debian's package."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from attrs import frozen

__all__ = ["FLAGS", "BrowserMissing", "Machine", "find_browser"]

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
UPDATE_S, INSTALL_S = 300, 1200  # together less than a test may take

# Nothing of its own goes out while the tests look at what the page asks for.
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)

MISSING = (
    "No browser for the tests of the page: install one (Debian: apt-get install chromium; or: "
    "python -m playwright install chromium), or name it: BROWSER=/path/to/chromium make test"
)


class BrowserMissing(Exception):
    """There is no browser, and none could be installed."""


def _own_of_playwright() -> str | None:
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - loads only where it is needed

    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if Path(path).exists() else None


def _install() -> bool:
    """Install Debian's package; whether that went well."""
    print("installing Debian's chromium for the tests of the page", file=sys.stderr)  # noqa: T201 - it takes a minute
    install = ["apt-get", "install", "-q", "-y", "--no-install-recommends", "chromium"]
    # Tests run in several processes, and only one may install; the others find it there.
    with (Path(tempfile.gettempdir()) / "cormorant-browser.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if shutil.which("chromium") is not None:
            return True
        try:
            return _runs(["apt-get", "update", "-q"], UPDATE_S) and _runs(install, INSTALL_S)
        except subprocess.TimeoutExpired:
            return False


def _runs(command: list[str], timeout_s: float) -> bool:
    environ = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(command, env=environ, capture_output=True, timeout=timeout_s, check=False)
    return done.returncode == 0


@frozen(kw_only=True)
class Machine:
    """What of the machine the choice depends on."""

    environ: Mapping[str, str]
    which: Callable[[str], str | None] = shutil.which
    own: Callable[[], str | None] = _own_of_playwright
    may_install: bool = False
    install: Callable[[], bool] = _install


def this_machine() -> Machine:
    """The one we run on. Only root can install, and only where there is apt-get."""
    may_install = os.geteuid() == 0 and shutil.which("apt-get") is not None
    return Machine(environ=os.environ, may_install=may_install)


def find_browser(machine: Machine | None = None) -> str:
    """The path of a browser, or `BrowserMissing`."""
    machine = machine or this_machine()
    named = machine.environ.get("BROWSER", "")
    if "/" in named:  # a mere name is what the desktop opens links with, and may be any browser
        found = machine.which(named)
        if found is None:
            raise BrowserMissing(f"BROWSER names {named!r}, which is not there or cannot be run. {MISSING}")
        return found
    return _of_system(machine) or machine.own() or _installed(machine)


def _of_system(machine: Machine) -> str | None:
    return next((path for name in NAMES if (path := machine.which(name))), None)


def _installed(machine: Machine) -> str:
    if machine.may_install and machine.install() and (path := _of_system(machine)):
        return path
    raise BrowserMissing(MISSING)
