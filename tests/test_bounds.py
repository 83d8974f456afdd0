"""Tests of the measure of growth."""

from __future__ import annotations

import pytest

from tests.bounds import QUADRATIC_FROM, growth


def _linear(size: int) -> int:
    return sum(range(size))


def _quadratic(size: int) -> int:
    return sum(sum(range(size)) for _ in range(size))


@pytest.mark.slow("burns processor time to measure it")
def test_linear_work_and_quadratic_work_are_told_apart() -> None:
    linear, quadratic = growth(_linear, 20_000, 160_000), growth(_quadratic, 100, 800)

    assert linear < QUADRATIC_FROM < quadratic
