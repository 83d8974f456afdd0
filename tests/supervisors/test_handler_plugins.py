"""Handlers of installed packages: found by kind, and told by name when they cannot be used."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from actors.jobs.handler import Handler, JobContext, as_handlers
from supervisors.handler_plugins import HandlersBroken, installed_handlers
from tests.distribution import install

GOOD = """
from actors.jobs.handler import Handler

async def tidy(context):
    context.payload.append("tidied")

slow = Handler(tidy, timeout_s=600)
number = 7
class Tidier: ...
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the path, where packages are installed; what was loaded from it is forgotten."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


class NoDatabase:
    async def transaction(self, function: object, *args: object, **kwargs: object) -> Any:
        raise AssertionError("the handlers of this test keep to their payload")

    async def enqueue(self, kind: str, payload: object, **how: object) -> int:
        raise AssertionError("the handlers of this test keep to their payload")


def context(payload: list[str]) -> JobContext:
    return JobContext(
        job_id=1, kind="tidy", payload=payload, attempt=1, max_attempts=1, correlation_id=None, reach=NoDatabase()
    )


def test_without_packages_there_are_no_handlers() -> None:
    assert installed_handlers() == {}


async def test_functions_and_handlers_are_found_by_kind(site: Path) -> None:
    install(site, "broom", GOOD, handlers={"tidy": "broom:tidy", "tidy_all": "broom:slow"})

    found = as_handlers(installed_handlers())

    assert {kind: handler.timeout_s for kind, handler in found.items()} == {"tidy": None, "tidy_all": 600}
    done: list[str] = []
    await found["tidy"].run(context(done))
    assert done == ["tidied"]


def test_handlers_of_several_packages_come_together(site: Path) -> None:
    install(site, "broom", GOOD, handlers={"tidy": "broom:tidy"})
    install(site, "mop", GOOD, handlers={"wipe": "mop:tidy"})

    assert list(installed_handlers()) == ["tidy", "wipe"]


@pytest.mark.parametrize(
    ("source", "value", "why"),
    [
        ("import no_such_module", "broken:tidy", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("1/0", "broken:tidy", "ZeroDivisionError: division by zero"),
        ("", "broken:tidy", "AttributeError: module 'broken' has no attribute 'tidy'"),
        (
            GOOD,
            "broken:number",
            "TypeError: it is of type int; name an async function or an actors.Handler",
        ),
        (GOOD, "broken:Tidier", "TypeError: it is the class Tidier; name an async function"),
        (GOOD, "broken", "TypeError: it is of type module"),
    ],
)
def test_a_broken_handler_is_told_with_its_package_and_entry_point(
    site: Path, source: str, value: str, why: str
) -> None:
    install(site, "broken", source, handlers={"tidy": value}, version="0.3")

    with pytest.raises(HandlersBroken) as told:
        installed_handlers()

    assert str(told.value).startswith(f"the handler tidy = '{value}' of broken 0.3 cannot be used: {why}")


def test_two_packages_for_one_kind_are_refused_with_both_names(site: Path) -> None:
    install(site, "broom", GOOD, handlers={"tidy": "broom:tidy"})
    install(site, "mop", GOOD, handlers={"tidy": "mop:tidy"})

    with pytest.raises(HandlersBroken, match="the kind tidy has handlers from broom 1.0 and mop 1.0"):
        installed_handlers()


def test_everything_that_is_wrong_is_told_at_once(site: Path) -> None:
    install(site, "broom", GOOD, handlers={"tidy": "broom:nothing", "sweep": "broom:number", "fine": "broom:slow"})

    with pytest.raises(HandlersBroken) as told:
        installed_handlers()

    assert len(told.value.problems) == 2


def test_a_handler_is_taken_as_it_is(site: Path) -> None:
    install(site, "broom", GOOD, handlers={"tidy": "broom:slow"})

    assert isinstance(installed_handlers()["tidy"], Handler)
