"""The map of the design holds: who may know whom, what a rule may touch, how big a thing may get."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.map_check import (
    CHECKS,
    DOMAIN_OF,
    FILE_LINES_REVIEWED,
    FOLDER_MODULES_MAX,
    FOLDER_MODULES_MIN,
    FUNCTION_LINES_MAX,
    PRODUCT_CHECKS,
    SMALL_LINES,
    Check,
    Module,
    ProductCheck,
    crumbs,
    long_files,
    long_functions,
    odd_folders,
    repeated_classes,
    silenced_without_reason,
)

ROOT = Path(__file__).parent.parent
PRODUCT = ("actors", "cormorant", "storage", "supervisors")
AROUND = ("bench", "examples", "tests")

# What the checks say and we accept, each with its reason.
ALLOWED = {
    "cormorant.services.event_bus.EventBus._tell catches Exception": "calls listeners; the mistake of one is reported",
    "actors.actor.ServedActor.__call__ catches BaseException": "notes how an incarnation ended and raises it again",
    "actors.search.callbacks.Callbacks._call catches Exception": "calls the callbacks of searches; a caller's mistake is told",
    "actors.contained.contained catches BaseException": "calls foreign code; one item fails, what is not its fault passes",
    "actors.search.request_execution.execute catches BaseException": "calls search functions; what is not their crash goes on up",
    "actors.jobs.worker._timed catches BaseException": "passes on to a handler's coroutine whatever trio throws into it",
    "actors.jobs.worker.JobWorker._attempt catches BaseException": "calls handlers; what is not their crash goes on up",
    "actors.jobs.worker.JobWorker._verdict catches Exception": "asks the classes of foreign errors what follows from them",
    "cormorant.rules.jobs.error_log._words_of catches Exception": "calls the __str__ of foreign errors",
    "cormorant.web.listener.ConnectionListener._serve catches BaseException": "one connection must not end the others; the rest goes on up",
    "cormorant.log.LogWriter._line catches Exception": "calls the __str__ of foreign errors; the log must go on",
    "actors.jobs.handler.JobContext._while_ours takes a Connection": "fences the caller's function by the lease",
    "actors.jobs.handler imports sqlalchemy.Connection": "the type of that function",
    "cormorant.services.jobs imports sqlalchemy.Connection": "the type of functions that programs pass in",
    "supervisors.service imports sqlalchemy.Connection": "as above",
}

# Small modules that stay, each with its reason.
SMALL = {
    "cormorant.services.notifications": "a job handler, like the others of its folder",
}


@cache
def modules(*folders: str) -> list[Module]:
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return [read(path) for path in paths if not any(part.startswith(".") for part in path.relative_to(ROOT).parts)]


def read(path: Path) -> Module:
    parts = path.relative_to(ROOT).with_suffix("").parts
    is_package = parts[-1] == "__init__"
    return Module(".".join(parts[:-1] if is_package else parts), path.read_text(), is_package=is_package)


@cache
def complaints(check: Check, folders: tuple[str, ...]) -> list[str]:
    return [complaint for module in modules(*folders) for complaint in check(module)]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_product_has_no(check: Check) -> None:
    found = [complaint for complaint in complaints(check, PRODUCT) if complaint not in ALLOWED]

    assert not found, "\n".join(found)


@pytest.mark.parametrize("check", PRODUCT_CHECKS, ids=lambda check: check.__name__)
def test_the_product_as_a_whole_has_no(check: ProductCheck) -> None:
    found = [complaint for complaint in check(modules(*PRODUCT)) if complaint.split()[0] not in SMALL]

    assert not found, "\n".join(found)


def test_every_module_of_the_tables_exists() -> None:
    names = {module.name for module in modules(*PRODUCT)}

    assert sorted({*DOMAIN_OF, *SMALL} - names) == []
    assert set(SMALL) <= {complaint.split()[0] for complaint in crumbs(modules(*PRODUCT))}


@pytest.mark.parametrize("check", [long_functions, silenced_without_reason], ids=lambda check: check.__name__)
def test_what_stands_around_the_product_has_no(check: Check) -> None:
    found = complaints(check, AROUND)

    assert not found, "\n".join(found)


def test_long_files_are_reported(record_property: Callable[[str, object], None]) -> None:
    for complaint in complaints(long_files, PRODUCT):
        record_property("long_file", complaint)

    assert list(long_files(module("storage.jobs.jobs", *["x = 1"] * (FILE_LINES_REVIEWED + 1)))) != []
    assert list(long_files(module("storage.jobs.jobs", *["x = 1"] * FILE_LINES_REVIEWED))) == []


def test_nothing_is_accepted_that_is_no_longer_there() -> None:
    found = {complaint for check in CHECKS for complaint in complaints(check, PRODUCT)}

    assert set(ALLOWED) <= found


def test_every_folder_of_the_product_is_a_package() -> None:
    folders = {path.parent for name in PRODUCT for path in (ROOT / name).rglob("*.py")}

    assert [folder for folder in folders if not (folder / "__init__.py").exists()] == []


def test_every_path_that_contributing_names_exists() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    paths = re.findall(r"`((?:actors|bench|cormorant|docs|storage|supervisors|tests)/[\w./]*)`", text)

    assert len(paths) > 40
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_no_top_level_name_shadows_the_standard_library() -> None:
    names = {path.stem for path in ROOT.iterdir() if path.suffix == ".py" or any(path.glob("*.py"))}

    assert names & sys.stdlib_module_names == set()


def module(name: str, *lines: str) -> Module:
    return Module(name, "\n".join(lines))


def package(name: str, *lines: str) -> Module:
    return Module(name, "\n".join(lines), is_package=True)


WRONG = {
    "a module outside the map": module("cormorant.helpers", "x = 1"),
    "a rule knows storage": module("cormorant.rules.jobs.states", "import storage"),
    "storage knows a client": module("storage.jobs.jobs", "from cormorant.clients import torznab"),
    "a client knows storage": module("cormorant.clients.feeds", "from storage.database import Database"),
    "an actor knows its supervisor": module("actors.search.dispatcher", "from supervisors import Supervisor"),
    "an actor knows the web": module("actors.search.dispatcher", "from cormorant import web"),
    "the web knows the supervisors": module("cormorant.web.pages", "import supervisors.tree"),
    "a supervisor knows the settings' reader": module("supervisors.service", "from cormorant.settings import load"),
    "a client knows the log": module("cormorant.clients.feeds", "from cormorant import log as telemetry"),
    "inside a function": module("storage.jobs.jobs", "def claim():", "    import actors.jobs.worker"),
    "for type checkers": module(
        "storage.jobs.jobs", "if TYPE_CHECKING:", "    from actors.jobs.worker import JobWorker"
    ),
    "relative": module("cormorant.rules.jobs.states", "from ...clients import feeds"),
    "relative, from a package": package("cormorant.rules", '"""Rules."""', "from .. import web"),
    "by name": module("storage.jobs.jobs", "importlib.import_module('actors.jobs.worker')"),
    "the product knows the tests": module("cormorant.testing", "from tests.postgres import PostgresServer"),
    "a rule imports trio": module("cormorant.rules.jobs.states", "import trio"),
    "a rule imports from trio": module("cormorant.rules.jobs.states", "from trio.testing import MockClock"),
    "a rule imports sqlalchemy": module("cormorant.rules.jobs.states", "from sqlalchemy import text"),
    "a rule imports time": module("cormorant.rules.jobs.states", "from time import monotonic"),
    "a rule imports random": module("cormorant.rules.jobs.states", "import random as dice"),
    "a rule imports os": module("cormorant.rules.jobs.states", "import os.path"),
    "a rule imports pathlib": module("cormorant.rules.jobs.states", "from pathlib import Path"),
    "a rule imports socket": module("cormorant.rules.jobs.states", "import socket"),
    "a rule imports logging": module("cormorant.rules.jobs.states", "import logging.config"),
    "a rule imports httpx2": module("cormorant.rules.jobs.states", "import httpx2"),
    "a rule imports structlog": module("cormorant.rules.jobs.states", "import structlog"),
    "a rule reads the clock": module(
        "cormorant.rules.jobs.states", "from datetime import datetime", "datetime.now(UTC)"
    ),
    "a rule reads the calendar": module("cormorant.rules.jobs.states", "import datetime", "datetime.date.today()"),
    "a rule opens a file": module("cormorant.rules.jobs.states", "open('x')"),
    "except Exception": module("storage.jobs.jobs", "try: f()", "except Exception: pass"),
    "except BaseException": module("actors.jobs", "try: f()", "except BaseException as error: print(error)"),
    "except, bare": module("cormorant.cli.service", "try: f()", "except: pass"),
    "except, in a tuple": module("storage.jobs.jobs", "try: f()", "except (OSError, Exception): pass"),
    "except, of a group": module("storage.jobs.jobs", "try: f()", "except* Exception: pass"),
    "except, by its full name": module("storage.jobs.jobs", "try: f()", "except builtins.Exception: pass"),
    "suppress": module("storage.jobs.jobs", "with contextlib.suppress(Exception): f()"),
    "a long function": module("storage.jobs.jobs", "def f():", *["    x = 1"] * FUNCTION_LINES_MAX),
    "a long method": module("storage.jobs.jobs", "class A:", "  async def f():", *["    x = 1"] * FUNCTION_LINES_MAX),
    "a package without a word": package("storage", "x = 1"),
    "a first import in cormorant": package("cormorant", '"""Doc."""', "__version__ = '1'", "import cormorant.rules"),
    "a name in cormorant": package("cormorant", '"""Doc."""', "__version__ = '1'", "debug = True"),
    "noqa without a code": module("storage.jobs.jobs", "x = 1  # noqa"),
    "noqa without a reason": module("storage.jobs.jobs", "x = 1  # noqa: S608"),
    "ignore without a reason": module("storage.jobs.jobs", "x = 1  # type: ignore[arg-type]"),
    "a module of no domain": module("storage.helpers", "x = 1"),
    "jobs know searches": module("storage.jobs.jobs", "from storage.search import sources"),
    "searches know watches": module("actors.search.dispatcher", "from cormorant.rules.watch.feeds import Feed"),
    "watches know the gate": module("cormorant.services.watch.views", "from cormorant.services.gate import items"),
    "shared code knows jobs": module("cormorant.rules.errors", "from cormorant.rules.jobs.states import JobState"),
    "watches know the notifier": module("actors.watch.feed_ticker", "from actors.notifier import Notifier"),
    "a transaction in a service": module("cormorant.services.jobs", "def f(connection: Connection): ..."),
    "a transaction by its full name": module("actors.actor", "def f(c: sqlalchemy.Connection): ..."),
    "a transaction in quotes": module("actors.actor", "def f(c: 'Connection | None'): ...", "def g(*c: Callable): ..."),
    "transactions with any number": module("actors.actor", "def f(*connections: Connection): ..."),
    "SQL in an actor": module("actors.actor", "from sqlalchemy import text"),
    "a folder in a part": module("storage.jobs.deep.module", "x = 1"),
    "a part of its own": module("cormorant.web.helpers.module", "x = 1"),
    "the engine knows a domain": module("storage.engine.calls", "from storage.jobs import jobs"),
    "a transaction as a method": module("actors.actor", "class A:", "  def f(self, *, connection: Connection): ..."),
    "a protocol in the web": module("cormorant.web.pages", "class Desk(Protocol): ..."),
    "a question": module("storage.jobs.jobs", '"""What happens to jobs? Much."""'),
    "a whole file silenced": module("storage.jobs.jobs", "# ruff: noqa: S608 - the names are ours"),
}

RIGHT = {
    "the tree may know every room below": module(
        "supervisors.service",
        "from cormorant.web import serve",
        "from actors.search.dispatcher import Dispatcher",
        "from storage.database import Database",
        "from cormorant.clients import torznab",
        "from cormorant.rules import Event",
    ),
    "watches may know searches and jobs": module(
        "storage.watch.wants", "from storage.search import answers", "from storage.jobs import jobs"
    ),
    "everybody may know settings": module(
        "storage.jobs.jobs", "from cormorant.rules.settings.watch import FeedSettings"
    ),
    "a function that takes a transaction": module("actors.actor", "def f(c: Callable[[Connection], None]): ..."),
    "a transaction in storage": module("storage.jobs.jobs", "def f(connection: Connection): ..."),
    "the web may ask actors": module("cormorant.web.pages", "from actors.search.dispatcher import Submit"),
    "rooms on top may know each other": module(
        "cormorant.cli.service", "from cormorant import settings, log as telemetry"
    ),
    "anyone may read the version": module("supervisors.service", "from cormorant import __version__"),
    "a room may know itself": module("storage.jobs.jobs", "from .database import Database"),
    "a rule may calculate with times": module(
        "cormorant.rules.jobs.states", "from datetime import datetime", "now + pause"
    ),
    "a rule may define a clock": module("cormorant.rules.ports", "class Clock:", "  def now(self): ..."),
    "a supervisor may catch all": module("supervisors.child", "try: f()", "except BaseException: pass"),
    "anyone may catch by name": module("storage.jobs.jobs", "try: f()", "except (OSError, ValueError): pass"),
    "a function as long as allowed": module("storage.jobs.jobs", "def f():", *["    x = 1"] * (FUNCTION_LINES_MAX - 1)),
    "the version": package("cormorant", '"""Doc."""', "__version__ = '1'"),
    "noqa with a reason": module("storage.jobs.jobs", "x = 1  # noqa: S608, E501 - the names are ours"),
    "ignore with a reason": module(
        "storage.jobs.jobs", "x = 1  # type: ignore[arg-type]  # the driver's stubs are older"
    ),
    "a string that looks like it": module("storage.jobs.jobs", "x = '# noqa'"),
}


@pytest.mark.parametrize("source", [pytest.param(source, id=name) for name, source in WRONG.items()])
def test_a_violation_is_found(source: Module) -> None:
    assert len([complaint for check in CHECKS for complaint in check(source)]) == 1


@pytest.mark.parametrize("source", [pytest.param(source, id=name) for name, source in RIGHT.items()])
def test_what_is_right_is_left_alone(source: Module) -> None:
    assert [complaint for check in CHECKS for complaint in check(source)] == []


def named(*names: str, lines: int = SMALL_LINES) -> list[Module]:
    return [module(name, *["x = 1"] * lines) for name in names]


WRONG_AS_A_WHOLE = {
    "two classes of one name": (
        repeated_classes,
        [module("storage.jobs.jobs", "class A: ..."), module("actors.actor", "class A: ...")],
    ),
    "a small folder": (odd_folders, named(*(f"storage.jobs.m{number}" for number in range(FOLDER_MODULES_MIN - 1)))),
    "a large folder": (odd_folders, named(*(f"storage.jobs.m{number}" for number in range(FOLDER_MODULES_MAX + 1)))),
    "a folder whose name begins like one that is not counted": (odd_folders, named("cormorant.web.pages.one")),
    "a crumb": (
        crumbs,
        [
            module("storage.jobs.small", *["x = 1"] * (SMALL_LINES - 1)),
            package("storage", "from storage.jobs.small import x"),
        ],
    ),
    "a crumb whose name begins like one that is not counted": (
        crumbs,
        [module("cormorant.web.page_files", "x = 1"), package("cormorant", "from cormorant.web import page_files")],
    ),
}
RIGHT_AS_A_WHOLE = {
    "private classes": (
        repeated_classes,
        [module("storage.jobs.jobs", "class _A: ..."), module("actors.actor", "class _A: ...")],
    ),
    "a folder as small as allowed": (
        odd_folders,
        named(*(f"storage.jobs.m{number}" for number in range(FOLDER_MODULES_MIN))),
    ),
    "a folder as large as allowed": (
        odd_folders,
        named(*(f"storage.jobs.m{number}" for number in range(FOLDER_MODULES_MAX))),
    ),
    "migrations": (odd_folders, named("storage.migrations.v0001")),
    "a small module that two import": (
        crumbs,
        [
            module("storage.jobs.small", "x = 1"),
            package("storage", "from storage.jobs.small import x"),
            package("actors", "from storage.jobs import small"),
        ],
    ),
    "a module that is not small": (
        crumbs,
        [*named("storage.jobs.whole"), package("storage", "from storage.jobs.whole import x")],
    ),
}


@pytest.mark.parametrize(
    ("check", "sources"), [pytest.param(*each, id=name) for name, each in WRONG_AS_A_WHOLE.items()]
)
def test_a_violation_of_the_whole_is_found(check: ProductCheck, sources: list[Module]) -> None:
    assert len(list(check(sources))) == 1


@pytest.mark.parametrize(
    ("check", "sources"), [pytest.param(*each, id=name) for name, each in RIGHT_AS_A_WHOLE.items()]
)
def test_a_whole_that_is_right_is_left_alone(check: ProductCheck, sources: list[Module]) -> None:
    assert list(check(sources)) == []
