"""When is a database that is away asked again, and how long does a call wait for it?"""

from __future__ import annotations

PROBE_BASE_S = 0.1
PROBE_CAP_S = 5.0
_DOUBLINGS_MAX = 16  # past the cap by far; a larger exponent would overflow one day

LOSSES_MAX = 3
"""How often a call may have lost its connection before it is taken for the cause."""


def delay_before_probe(*, failures: int, jitter: float) -> float:
    """Seconds before the next look, between half and the whole of 0.1 s doubling to 5 s.

    >>> [delay_before_probe(failures=n, jitter=1.0) for n in (0, 1, 2, 40)]
    [0.1, 0.2, 0.4, 5.0]
    """
    whole_s: float = min(PROBE_CAP_S, PROBE_BASE_S * 2 ** min(failures, _DOUBLINGS_MAX))
    return whole_s * (0.5 + jitter / 2)


def held_until(*, arrived_at: float, away_since: float, held_since: float | None, hold_s: float) -> float:
    """When a waiting call is given up. A call that was held before keeps its first deadline: it may be the cause.

    >>> held_until(arrived_at=5.0, away_since=2.0, held_since=None, hold_s=30.0)
    35.0
    >>> held_until(arrived_at=5.0, away_since=60.0, held_since=10.0, hold_s=30.0)
    40.0
    """
    begun_at = max(arrived_at, away_since) if held_since is None else held_since
    return begun_at + hold_s
