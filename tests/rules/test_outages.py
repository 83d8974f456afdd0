"""How long until the next look at a database that is away, and how long a call waits for it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cormorant.rules.supervision import PROBE_BASE_S, PROBE_CAP_S, delay_before_probe, held_until

JITTER = st.floats(0, 1, exclude_max=True)
TIMES = st.floats(0, 1e9)


@given(st.integers(0, 10_000), JITTER)
def test_the_distance_between_two_looks_is_bounded(failures: int, jitter: float) -> None:
    assert PROBE_BASE_S / 2 <= delay_before_probe(failures=failures, jitter=jitter) <= PROBE_CAP_S


@given(st.integers(0, 100), JITTER)
def test_it_never_shrinks(failures: int, jitter: float) -> None:
    now, later = (delay_before_probe(failures=count, jitter=jitter) for count in (failures, failures + 1))

    assert now <= later


@given(TIMES, TIMES, TIMES)
def test_a_call_is_held_for_its_time_after_it_came_and_after_the_outage_began(
    arrived_at: float, away_since: float, hold_s: float
) -> None:
    deadline = held_until(arrived_at=arrived_at, away_since=away_since, held_since=None, hold_s=hold_s)

    assert deadline == max(arrived_at, away_since) + hold_s
