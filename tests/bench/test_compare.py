"""The comparison of benchmarks counts a figure as equal within 3 %, or within the noise of the machine."""

from __future__ import annotations

import pytest

from bench._compare import Comparison, named


@pytest.mark.parametrize(
    ("old", "new", "again", "is_equal"),
    [
        (100.0, 103.0, 100.0, True),
        (100.0, 97.0, 100.0, True),
        (100.0, 103.1, 100.0, False),
        (100.0, 96.9, 100.0, False),
        (100.0, 110.0, 90.0, True),
        (100.0, 110.0, 109.0, False),
        (0.0, 0.0, 0.0, True),
    ],
)
def test_a_figure_is_equal_within_the_tolerance_or_the_noise(
    old: float, new: float, again: float, *, is_equal: bool
) -> None:
    comparison = Comparison("searches", {"old": [old], "new": [new], "old again": [again]})

    assert comparison.is_equal is is_equal
    assert comparison.line.startswith("equal" if is_equal else "DIFFERS")


def test_the_median_of_the_rounds_counts() -> None:
    comparison = Comparison("searches", {"old": [100, 100, 100], "new": [100, 101, 900], "old again": [100, 100, 100]})

    assert comparison.difference("new") == pytest.approx(0.01)


def test_an_indented_row_is_named_after_the_one_above() -> None:
    rows = [
        {"name": "ours", "unit": "jobs/s", "median": 5.0},
        {"name": "  processor", "unit": "us", "median": 2.0},
    ]

    assert named("jobs", rows) == {"jobs: ours (jobs/s)": 5.0, "jobs: ours, processor (us)": 2.0}
