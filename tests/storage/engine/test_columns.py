"""Values on their way into a column and back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cormorant.rules.errors import TextRefused
from storage.engine.columns import check_text, from_micros, to_micros

ZONES = st.integers(-23, 23).map(lambda hours: timezone(timedelta(hours=hours)))
MOMENTS = st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=ZONES)  # noqa: DTZ001 - the zone is drawn too


@given(MOMENTS)
def test_a_moment_comes_back_exactly(moment: datetime) -> None:
    assert from_micros(to_micros(moment)) == moment.astimezone(UTC)


@given(MOMENTS, MOMENTS)
def test_moments_sort_as_their_numbers(one: datetime, other: datetime) -> None:
    assert (one.astimezone(UTC) < other.astimezone(UTC)) == (to_micros(one) < to_micros(other))


def test_a_moment_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="names no time zone"):
        to_micros(datetime(2026, 1, 1))  # noqa: DTZ001 - that is the mistake


def test_a_zone_does_not_change_the_moment() -> None:
    east = datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=12)))

    assert to_micros(east) == to_micros(datetime(2026, 1, 1, tzinfo=UTC))


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
def test_every_character_but_nul_is_taken(words: str) -> None:
    assert check_text(words) == words


@given(st.text(), st.sampled_from(["\0", "\ud800", "\udfff"]), st.text())
def test_nul_and_half_pairs_are_refused_wherever_they_stand(before: str, bad: str, after: str) -> None:
    with pytest.raises(TextRefused):
        check_text(before + bad + after)
