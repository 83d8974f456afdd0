"""Upper bounds for waiting in tests, and the growth of processor time with the size of the input."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

WAIT_S: Final = 300.0
"""Longest wait for an event of another task, thread or process. It ends a test that hangs; no test expects it to pass."""

QUADRATIC_FROM: Final = 24.0
"""For eight times the input: linear work takes about 8 times as long, quadratic work about 64 times."""

_TOO_SHORT_S: Final = 0.002
_LONG_S: Final = 0.1
"""A run of this length needs no second one: what disturbs it is a small part of it."""
_RUNS: Final = 5


def growth(work: Callable[[T], object], small: T, large: T) -> float:
    """How many times as much processor time `work(large)` takes as `work(small)`, at most `QUADRATIC_FROM` if it is linear.

    A busy machine makes a run slower by the contents of its caches. So what looks quadratic is measured again: work that is
    quadratic looks so each time.
    """
    found = math.inf
    for _ in range(_RUNS):
        found = min(found, _processor_s(work, large) / _processor_s(work, small))
        if found < QUADRATIC_FROM:
            break
    return found


def _processor_s(work: Callable[[T], object], given: T) -> float:
    """Processor time of one call: the best of several runs, each long enough to be measured."""
    calls = 1
    while (took_s := _run(work, given, calls)) < _TOO_SHORT_S:
        calls *= 4
    if took_s >= _LONG_S:
        return took_s / calls
    return min([took_s, *(_run(work, given, calls) for _ in range(_RUNS - 1))]) / calls


def _run(work: Callable[[T], object], given: T, calls: int) -> float:
    began_s = time.process_time()
    for _ in range(calls):
        work(given)
    return time.process_time() - began_s
