"""The ladder of cooldowns."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cormorant.rules.search.breaker import LADDER_S, RETRY_AFTER_S_MAX, Cooldown, with_cooldown

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = 3_600
STATED = st.none() | st.floats(allow_nan=True) | st.floats(0, 1e5)


def test_the_ladder_has_the_steps_of_the_requirement() -> None:
    minutes = [60, 5 * 60, 15 * 60, 30 * 60]

    assert list(LADDER_S) == minutes + [hours * HOUR for hours in (1, 3, 6, 12, 24)]


def test_a_source_that_goes_on_limiting_us_climbs_to_the_top_and_stays_there() -> None:
    cooldown, at, waits_s = Cooldown(), NOON, []

    for _ in range(len(LADDER_S) + 2):
        cooldown = with_cooldown(cooldown, retry_after_s=None, at=at)
        assert cooldown.until is not None
        waits_s.append((cooldown.until - at).total_seconds())
        at = cooldown.until

    assert waits_s == [*LADDER_S, 24 * HOUR, 24 * HOUR]


def test_what_the_source_asks_for_holds_and_leaves_the_ladder_alone() -> None:
    cooldown = with_cooldown(Cooldown(level=2), retry_after_s=86_400, at=NOON)

    assert cooldown == Cooldown(until=NOON + timedelta(days=1), level=2)


def test_two_answers_to_requests_of_one_moment_climb_one_step() -> None:
    first = with_cooldown(Cooldown(), retry_after_s=None, at=NOON)

    assert with_cooldown(first, retry_after_s=None, at=NOON + timedelta(seconds=1)) == first


@pytest.mark.parametrize("retry_after_s", [None, 0, -5, float("nan")])
def test_a_wait_that_names_no_time_to_come_is_no_wait(retry_after_s: float | None) -> None:
    assert with_cooldown(Cooldown(), retry_after_s=retry_after_s, at=NOON).until == NOON + timedelta(minutes=1)


@pytest.mark.parametrize("retry_after_s", [1e9, 1e300, float("inf")])
def test_an_absurd_wait_is_cut(retry_after_s: float) -> None:
    assert with_cooldown(Cooldown(), retry_after_s=retry_after_s, at=NOON).until == NOON + timedelta(
        seconds=RETRY_AFTER_S_MAX
    )


@given(st.lists(st.tuples(STATED, st.integers(0, 10**6)), max_size=30))
def test_no_answer_ever_shortens_a_cooldown(answers: list[tuple[float | None, int]]) -> None:
    cooldown = Cooldown()

    for retry_after_s, second in answers:
        after = with_cooldown(cooldown, retry_after_s=retry_after_s, at=NOON + timedelta(seconds=second))
        assert after.until is not None
        assert cooldown.until is None or after.until >= cooldown.until
        assert cooldown.level <= after.level <= len(LADDER_S)
        cooldown = after
