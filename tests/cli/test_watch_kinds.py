"""What commands offer for all four kinds of watches: add, list, pause, resume, check and remove, for people and programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
from attrs import frozen

from tests.cli.source_place import Indexer, SourcePlace

SETTINGS: Final = """
[sources.shop]
kind = "prices"
url = "http://127.0.0.1:1/q={title}"

[saved.written]
query = "words"

[feeds.written]
url = "https://x.test/written"

[prices.written]
title = "Peace Dollar"
"""
NO_SERVICE: Final = "no service runs on this database: it is checked when one is started, cormorant run"


@frozen
class Kind:
    """One kind as commands know it."""

    group: str
    add: tuple[str, ...]
    key: str
    """What JSON calls one."""
    listed: str
    what: str
    reference: str = "one"
    """What the program suggests to type."""
    has_file: bool = True
    check_refuses_paused: bool = False

    def __str__(self) -> str:
        return self.group


KINDS: Final = (
    Kind(
        *("watchlist", ("--id", "x1", "--name", "one"), "artist", "artists", "artist"),
        reference="1",
        has_file=False,
        check_refuses_paused=True,
    ),
    Kind("saved", ("one", "words"), "saved", "saved", "saved search"),
    Kind(
        *("subscriptions", ("one", "http://x.test/rss"), "subscription", "subscriptions", "subscription"),
        check_refuses_paused=True,
    ),
    Kind("prices", ("one", "Morgan"), "price", "prices", "price"),
)


@pytest.fixture
def place(tmp_path: Path) -> SourcePlace:
    (tmp_path / "config.toml").write_text(SETTINGS)
    return SourcePlace(tmp_path, f"sqlite:///{tmp_path}/watches.db", Indexer(0))


def name_in(found: Any) -> str:
    """An artist is shown whole, the others by name."""
    name: str = found["name"] if isinstance(found, dict) else found
    return name


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_one_is_added_once_paused_resumed_and_removed(place: SourcePlace, kind: Kind) -> None:
    added, again = (place.run(kind.group, "add", *kind.add) for _ in range(2))
    paused = place.run(kind.group, "pause", "one")
    listed = place.facts(kind.group, "list")[kind.listed]
    resumed = place.run(kind.group, "resume", "one")
    removed = place.run(kind.group, "remove", "one")
    gone = [place.run(kind.group, verb, "one") for verb in ("pause", "resume", "check", "remove")]

    assert [each.code for each in (added, again, paused, resumed, removed)] == [0, 1, 0, 0, 0]
    assert f"{kind.what} 'one' already; choose another name" in again.err
    assert [(each["name"], each["is_paused"]) for each in listed] == [("one", True)]
    assert paused.out == f"one is paused until cormorant {kind.group} resume {kind.reference}\n"
    assert resumed.out.startswith("one is resumed, and due ")
    assert removed.out.startswith("one is removed; what was ")
    assert {(each.code, each.err) for each in gone} == {
        (1, f"cormorant: there is no {kind.what} 'one'; `cormorant {kind.group} list` shows them\n")
    }


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_programs_are_told_the_same(place: SourcePlace, kind: Kind) -> None:
    added = place.facts(kind.group, "add", *kind.add)
    told = [place.facts(kind.group, verb, "one") for verb in ("pause", "resume", "check", "remove")]

    assert name_in(added["added"]) == "one"
    assert [name_in(each[kind.key]) for each in told[:3]] == ["one"] * 3
    assert name_in(told[3]["removed"]) == "one"
    if kind.key != "artist":
        assert [each["paused"] for each in told[:2]] == [True, False]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_one_that_is_checked_waits_for_a_service_and_one_that_is_paused_says_how_it_goes_on(
    place: SourcePlace, kind: Kind
) -> None:
    place.run(kind.group, "add", *kind.add)
    checked = place.run(kind.group, "check", "one")
    place.run(kind.group, "pause", "one")
    while_paused = place.run(kind.group, "check", "one")

    assert (checked.code, checked.out.startswith("one is due")) == (0, True)
    assert NO_SERVICE in checked.out
    assert while_paused.code == (1 if kind.check_refuses_paused else 0)
    if kind.check_refuses_paused:
        assert f"one is paused; resume it: cormorant {kind.group} resume {kind.reference}" in while_paused.err


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.has_file], ids=str)
def test_one_of_the_settings_file_is_changed_there(place: SourcePlace, kind: Kind) -> None:
    place.run(kind.group, "add", *kind.add)
    added = place.run(kind.group, "add", "written", kind.add[1])
    removed = place.run(kind.group, "remove", "written")

    section = "feeds" if kind.group == "subscriptions" else kind.group
    assert (added.code, f"the settings file has [{section}.written] already" in added.err) == (2, True)
    assert (removed.code, f"take [{section}.written] out of it" in removed.err) == (1, True)
