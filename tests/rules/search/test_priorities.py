"""Classes of searches and how waiting changes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cormorant.rules.search.priorities import PACE_MULTIPLIERS, Priority, aged, sorted_as

PRIORITIES = st.sampled_from(Priority)
WAITS = st.floats(-1e3, 1e9)


def test_the_numbers_of_the_seed_hold() -> None:
    assert [int(priority) for priority in Priority] == [0, 1, 2, 3]
    assert [PACE_MULTIPLIERS[priority] for priority in Priority] == [0.1, 0.5, 0.7, 1.0]


def test_a_search_without_options_is_sorted_as_background() -> None:
    assert sorted_as(None) is Priority.BACKGROUND
    assert sorted_as(Priority.RSS) is Priority.RSS


@pytest.mark.parametrize(("waited_s", "steps"), [(-1, 0), (0, 0), (299.999, 0), (300, 1), (599, 1), (600, 2), (900, 3)])
def test_every_300_s_are_one_class(waited_s: float, steps: int) -> None:
    for priority in Priority:
        assert aged(priority, waited_s) == max(0, priority - steps)


@given(PRIORITIES, WAITS, WAITS)
def test_waiting_longer_never_makes_less_urgent(priority: Priority, one: float, other: float) -> None:
    assert aged(priority, max(one, other)) <= aged(priority, min(one, other)) <= priority
