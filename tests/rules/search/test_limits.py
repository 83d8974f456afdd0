"""Limits of sources: what is refused, what is preset, and which of two holds."""

from __future__ import annotations

from datetime import time, timedelta, timezone
from typing import Any

import pytest
from attrs import evolve, fields
from hypothesis import given
from hypothesis import strategies as st

from cormorant.rules.search.limits import PRESETS, LearnedLimits, SourceLimits, stricter

COUNTS = [name for name in (each.name for each in fields(SourceLimits)) if "per_" in name]
OPTIONAL = st.none() | st.integers(-1, 1000)


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("value", [0, -1, 1_000_001, 2.5, True, "7"])
def test_a_wrong_count_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{name} is {value!r}: give a whole number from 1"):
        evolve(SourceLimits(), **{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spacing_s", -0.1),
        ("spacing_s", float("nan")),
        ("pace_s", float("inf")),
        ("pace_s", 86_401),
        ("in_flight_max", 0),
        ("reserve_interactive", 0.91),
        ("reserve_interactive", -0.1),
        ("reset", time(5, tzinfo=timezone(timedelta(hours=1)))),
    ],
)
def test_what_is_out_of_range_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{name} is "):
        evolve(SourceLimits(), **{name: value})


def test_every_mistake_is_told_at_once() -> None:
    with pytest.raises(ValueError, match="per_day") as caught:
        SourceLimits(per_day=0, spacing_s=-1, in_flight_max=0)

    assert [line.split()[0] for line in str(caught.value).splitlines()] == ["spacing_s", "per_day", "in_flight_max"]


def test_the_defaults_and_the_private_preset() -> None:
    private = PRESETS["private"]

    assert (SourceLimits().spacing_s, SourceLimits().pace_s, SourceLimits().in_flight_max) == (2.0, 60.0, 1)
    assert (private.spacing_s, private.per_hour, private.per_day, private.grabs_per_day) == (10.0, 60, 500, 50)
    assert private.reserve_interactive == 0.2


@pytest.mark.slow("a hundred pairs of seven limits each")
@given(configured=st.dictionaries(st.sampled_from(COUNTS), st.integers(1, 1000)), stated=st.data())
def test_of_each_pair_the_stricter_holds(configured: dict[str, Any], stated: st.DataObject) -> None:
    theirs = stated.draw(st.fixed_dictionaries(dict.fromkeys(COUNTS, OPTIONAL)))
    ours = evolve(SourceLimits(), **configured)

    held = stricter(ours, evolve(LearnedLimits(), **theirs))

    for name in COUNTS:
        given_numbers = [number for number in (configured.get(name), theirs[name]) if number is not None and number > 0]
        assert getattr(held, name) == min(given_numbers, default=None)
    assert (held.spacing_s, held.pace_s, held.reset) == (ours.spacing_s, ours.pace_s, ours.reset)


def test_a_stated_spacing_only_ever_slows_down() -> None:
    assert stricter(SourceLimits(spacing_s=10), LearnedLimits(spacing_s=1)).spacing_s == 10
    assert stricter(SourceLimits(spacing_s=2), LearnedLimits(spacing_s=30)).spacing_s == 30
    assert stricter(SourceLimits(spacing_s=2), LearnedLimits(spacing_s=1e12)).spacing_s == 86_400
