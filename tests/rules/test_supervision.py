"""Bounds of the rules of restarting."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cormorant.rules.supervision import BACKOFF_CAP_S, Strategy, add_restart, delay_before_restart, restarted_with

names = st.lists(st.text(min_size=1, max_size=3), unique=True, min_size=1, max_size=8)


@given(st.integers(1, 10**9), st.floats(0, 1))
def test_a_delay_is_between_half_and_the_whole_of_its_step_and_never_over_the_cap(crashes: int, jitter: float) -> None:
    delay_s = delay_before_restart(crashes_in_a_row=crashes, jitter=jitter)

    whole_s = delay_before_restart(crashes_in_a_row=crashes, jitter=1.0)
    assert whole_s / 2 <= delay_s <= whole_s <= BACKOFF_CAP_S


@given(st.integers(1, 100), st.floats(0, 1))
def test_delays_never_shrink_from_crash_to_crash(crashes: int, jitter: float) -> None:
    before = delay_before_restart(crashes_in_a_row=crashes, jitter=jitter)

    assert delay_before_restart(crashes_in_a_row=crashes + 1, jitter=jitter) >= before


@given(st.lists(st.floats(0, 100)), st.floats(0.1, 50))
def test_only_restarts_of_the_last_period_count(times: list[float], period_s: float) -> None:
    counted: tuple[float, ...] = ()
    for now in sorted(times):
        counted = add_restart(counted, now=now, period_s=period_s)

    last = max(times, default=0.0)
    assert list(counted) == [at for at in sorted(times) if last - at <= period_s]


@given(names, st.data(), st.sampled_from(Strategy))
def test_the_crashed_one_is_always_among_those_restarted_and_order_is_kept(
    names: list[str], data: st.DataObject, strategy: Strategy
) -> None:
    crashed = data.draw(st.sampled_from(names))

    group = restarted_with(strategy, names, crashed)

    assert crashed in group
    assert group == [name for name in names if name in group]
