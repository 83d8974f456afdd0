"""Retry-After: both of its forms, and whatever else servers write there."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cormorant.clients.http.headers import RETRY_AFTER_MAX_S, retry_after_s

NOW = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)


@given(st.integers(0, 10**14))
def test_seconds_are_taken_up_to_a_week(seconds: int) -> None:
    assert retry_after_s(str(seconds), now=NOW) == min(seconds, RETRY_AFTER_MAX_S)


@given(st.timedeltas(timedelta(days=-1000), timedelta(days=1000)))
def test_a_date_is_the_time_until_then(ahead: timedelta) -> None:
    then = (NOW + ahead).replace(microsecond=0)

    found = retry_after_s(format_datetime(then, usegmt=True), now=NOW)

    assert found == min(RETRY_AFTER_MAX_S, max(0.0, (then - NOW).total_seconds()))


@given(st.text(max_size=80))
def test_whatever_it_says_the_wait_is_bounded(header: str) -> None:
    found = retry_after_s(header, now=NOW)

    assert found is None or 0 <= found <= RETRY_AFTER_MAX_S


@pytest.mark.parametrize("header", [None, "", "soon", "-5", "1e9", "٣", "nan", "9" * 500, "Mon, 99 Foo 2026", "0x10"])
def test_nonsense_is_no_wait(header: str | None) -> None:
    assert retry_after_s(header, now=NOW) is None


def test_fractions_are_kept() -> None:
    assert retry_after_s(" 1.5 ", now=NOW) == 1.5
