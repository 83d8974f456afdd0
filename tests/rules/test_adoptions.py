"""Adopting indexers: names that fit, nothing twice, nothing loosened."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cormorant.rules.app_indexers import ImportStep, KnownSource, OfferedIndexer, plan, source_name
from cormorant.rules.settings.fields import name_problem
from cormorant.rules.settings.sources import RESERVED_NAMES


def offered(title: str, number: int = 1, *, is_private: bool = True, is_enabled: bool = True) -> OfferedIndexer:
    url = f"http://prowlarr:9696/{number}/api"
    return OfferedIndexer(title=title, url=url, kind="torznab", is_private=is_private, is_enabled=is_enabled)


@pytest.mark.slow("many texts")
@given(st.lists(st.text(max_size=60), max_size=8))
def test_every_title_gets_a_name_of_its_own_that_can_be_one(titles: list[str]) -> None:
    adoptions = plan([offered(title, number) for number, title in enumerate(titles)], {}, taken=["attic", "x"])

    names = [each.name for each in adoptions]
    assert [name for name in names if name_problem(name, RESERVED_NAMES)] == []
    assert len({*names, "attic", "x"}) == len(names) + 2


def test_a_name_that_is_the_same_in_the_environment_is_taken_too() -> None:
    assert source_name("Cross Seed", ["cross_seed"]) == "cross-seed-2"


@pytest.mark.parametrize(
    ("known", "limits", "step", "given_limits"),
    [
        (KnownSource(name="a"), None, ImportStep.KEEP, None),
        (KnownSource(name="a", has_same_key=False), None, ImportStep.UPDATE, None),
        (KnownSource(name="a"), "default", ImportStep.UPDATE, "default"),
        (KnownSource(name="a", is_removed=True), None, ImportStep.RETURN, "private"),
        (KnownSource(name="a", is_configured=True), "default", ImportStep.SKIP, None),
        (None, None, ImportStep.ADD, "private"),
    ],
)
def test_the_limits_of_what_is_known_change_only_when_told(
    known: KnownSource | None, limits: str | None, step: ImportStep, given_limits: str | None
) -> None:
    there = {} if known is None else {"http://prowlarr:9696/1/api": known}

    [adoption] = plan([offered("a")], there, taken=[], limits=limits)

    assert (adoption.step, adoption.limits, adoption.name) == (step, given_limits, "a")
