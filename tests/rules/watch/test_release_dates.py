"""Dates of which only a part is known."""

from __future__ import annotations

from datetime import date, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cormorant.rules.watch.releases import ReleaseDate, read_release_date

days = st.dates(min_value=date(1, 1, 1), max_value=date(9999, 12, 31))
precisions = st.sampled_from(["year", "month", "day"])


def known_of(day: date, precision: str) -> ReleaseDate:
    parts = {"year": 1, "month": 2, "day": 3}[precision]
    return ReleaseDate(*(day.year, day.month, day.day)[:parts])


@settings(max_examples=50)
@given(days, precisions)
def test_what_is_written_is_read_back(day: date, precision: str) -> None:
    known = known_of(day, precision)

    assert read_release_date(str(known), precision) == known


@settings(max_examples=50)
@given(days, precisions)
def test_the_day_lies_between_the_earliest_and_the_latest(day: date, precision: str) -> None:
    known = known_of(day, precision)

    assert known.earliest <= day <= known.latest
    assert (known.earliest == known.latest) is (precision == "day")


@settings(max_examples=50)
@given(days, precisions, days, st.integers(0, 4_000_000))
def test_nothing_that_may_be_newer_is_missed(day: date, precision: str, watermark: date, overlap: int) -> None:
    known = known_of(day, precision)

    if day >= watermark:
        assert known.is_after(watermark, timedelta(days=overlap))
    if known.is_after(watermark):
        assert known.is_after(watermark, timedelta(days=overlap))
    if known.latest < watermark:
        assert not known.is_after(watermark)


def test_a_release_of_the_year_of_the_watermark_may_be_new() -> None:
    watermark = date(2026, 11, 16)

    assert ReleaseDate(2026).is_after(watermark)
    assert not ReleaseDate(2025).is_after(watermark)
    assert ReleaseDate(2026, 11, 10).is_after(watermark, timedelta(days=7))
    assert not ReleaseDate(2026, 11, 8).is_after(watermark, timedelta(days=7))


@pytest.mark.parametrize(
    "text", ["", "0000", "0000-00-00", "2026-13", "2026-02-30", "81", "2026-1-1", "soon", "\uff12\uff10\uff12\uff16"]
)
def test_what_is_no_date_is_none(text: str) -> None:
    assert read_release_date(text) is None


@settings(max_examples=50)
@given(st.text(max_size=12), st.text(max_size=6))
def test_no_text_breaks_it(text: str, precision: str) -> None:
    read_release_date(text, precision)
