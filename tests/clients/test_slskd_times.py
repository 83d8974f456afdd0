"""The times of a search through slskd fit into every time-out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cormorant.clients.slskd import QUIET_MS_MIN, search_times

timeouts_s = st.floats(min_value=0.015, max_value=10_000.0)
"""From three times the shortest silence that slskd accepts."""


@given(timeouts_s)
def test_the_silence_is_at_most_a_third_of_the_time_out_and_never_what_slskd_refuses(timeout_s: float) -> None:
    times = search_times(timeout_s)

    assert QUIET_MS_MIN <= times.quiet_ms <= timeout_s * 1000 / 3 + 1e-9


@given(timeouts_s)
def test_the_cut_is_five_seconds_before_the_time_out_or_after_two_thirds_where_that_is_later(timeout_s: float) -> None:
    times = search_times(timeout_s)

    assert times.cut_s == pytest.approx(timeout_s - 5 if timeout_s >= 15 else timeout_s * 2 / 3)


@given(timeouts_s)
def test_everything_happens_in_order_and_leaves_time_for_the_next(timeout_s: float) -> None:
    times = search_times(timeout_s)
    after_cut_s = timeout_s - times.cut_s

    assert times.quiet_ms / 1000 < times.cut_s < times.give_up_s < timeout_s
    assert 0 < times.poll_s <= after_cut_s / 10 + 1e-6
    assert times.cut_s + times.cancel_s + after_cut_s / 4 < times.give_up_s
    assert times.give_up_s + times.tidy_s(after_s=times.give_up_s) < timeout_s


@given(timeouts_s, st.floats(min_value=0.0, max_value=2.0))
def test_removing_the_search_leaves_time_for_its_results_and_is_bounded_after_the_time_out(
    timeout_s: float, share: float
) -> None:
    after_s = timeout_s * share

    tidy_s = search_times(timeout_s).tidy_s(after_s=after_s)

    assert 0 < tidy_s <= min(3.0, timeout_s / 3)
    assert after_s >= timeout_s or after_s + tidy_s <= timeout_s


@given(timeouts_s, timeouts_s)
def test_a_longer_time_out_makes_nothing_shorter(one_s: float, other_s: float) -> None:
    short, long = (search_times(each) for each in sorted((one_s, other_s)))

    assert short.quiet_ms <= long.quiet_ms
    assert short.cut_s <= long.cut_s
    assert short.give_up_s <= long.give_up_s
    assert short.poll_s <= long.poll_s


@pytest.mark.parametrize("timeout_s", [0.0, -1.0, -1e300])
def test_a_time_out_that_is_over_gives_times_that_are_over(timeout_s: float) -> None:
    times = search_times(timeout_s)

    assert (times.cut_s, times.give_up_s, times.poll_s, times.tidy_s(after_s=0.0)) == (0.0, 0.0, 0.0, 0.0)
    assert times.quiet_ms == QUIET_MS_MIN
