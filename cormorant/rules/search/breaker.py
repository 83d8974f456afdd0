"""Circuit breaker and cooldown ladder."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from attrs import evolve, frozen

FAILURES_MAX: Final = 5
OPEN_S: Final = 300.0
PROBES_MAX: Final = 3


class BreakerState(StrEnum):
    """Whether requests go through."""

    CLOSED = "closed"
    """They do."""
    OPEN = "open"
    """None does, until `open_until`."""
    HALF_OPEN = "half_open"
    """A few probes do; the first that reports decides."""


@frozen(kw_only=True)
class Probe:
    """A request that tries out a source, and when it is given up if it never reports."""

    key: str
    expires_at: datetime


@frozen(kw_only=True)
class Breaker:
    """The breaker of one source. `generation` rises with every change of state and makes late answers harmless."""

    state: BreakerState = BreakerState.CLOSED
    failures: int = 0
    """In a row, while closed."""
    open_until: datetime | None = None
    probes: tuple[Probe, ...] = ()
    generation: int = 0

    def probes_out(self, at: datetime) -> tuple[Probe, ...]:
        """The probes that may still report."""
        return tuple(probe for probe in self.probes if at < probe.expires_at)


def admitted(breaker: Breaker, *, key: str, at: datetime, expires_at: datetime) -> Breaker:
    """The breaker once a request was let through. An open one whose time is over turns half-open.

    Invariant: it was asked before whether it lets one through.
    """
    if breaker.state is BreakerState.CLOSED:
        return breaker
    probe = Probe(key=key, expires_at=expires_at)
    if breaker.state is BreakerState.OPEN:
        return Breaker(state=BreakerState.HALF_OPEN, probes=(probe,), generation=breaker.generation + 1)
    return evolve(breaker, probes=(*breaker.probes_out(at), probe))


def closed_after_success(breaker: Breaker) -> Breaker:
    """The breaker after a success: one closes it.

    >>> closed_after_success(Breaker(state=BreakerState.HALF_OPEN, generation=4)).state.value
    'closed'
    """
    if breaker.state is BreakerState.CLOSED:
        return evolve(breaker, failures=0) if breaker.failures else breaker
    return Breaker(generation=breaker.generation + 1)


def opened_after_failure(breaker: Breaker, *, at: datetime) -> Breaker:
    """The breaker after a failure: the fifth in a row opens it, and a failed probe opens it anew.

    >>> from datetime import UTC
    >>> breaker = Breaker()
    >>> for _ in range(5):
    ...     breaker = opened_after_failure(breaker, at=datetime(2026, 1, 1, 12, tzinfo=UTC))
    >>> breaker.state.value, f"{breaker.open_until:%H:%M}", breaker.generation
    ('open', '12:05', 1)
    """
    if breaker.state is BreakerState.OPEN:
        return breaker
    if breaker.state is BreakerState.CLOSED and breaker.failures + 1 < FAILURES_MAX:
        return evolve(breaker, failures=breaker.failures + 1)
    return Breaker(
        state=BreakerState.OPEN, open_until=at + timedelta(seconds=OPEN_S), generation=breaker.generation + 1
    )


def released(breaker: Breaker, *, key: str) -> Breaker:
    """The breaker after a request that said nothing about the source: another probe may go in its place."""
    return evolve(breaker, probes=tuple(probe for probe in breaker.probes if probe.key != key))


LADDER_S: Final = (60, 300, 900, 1_800, 3_600, 10_800, 21_600, 43_200, 86_400)
"""1, 5, 15, 30 minutes, 1, 3, 6, 12, 24 hours: for a source that does not say for how long."""

RETRY_AFTER_S_MAX: Final = 31 * 86_400.0
"""What a source asks for beyond a month is cut: it is a mistake of theirs, and a person can look at it by then."""


@frozen(kw_only=True)
class Cooldown:
    """Until when a source is left alone, and how far up the ladder it is."""

    until: datetime | None = None
    level: int = 0


def with_cooldown(cooldown: Cooldown, *, retry_after_s: float | None, at: datetime) -> Cooldown:
    """The cooldown after the source limited us at `at`.

    What it asks for holds and leaves the ladder alone; without a word (or with one that names no time to come) the next
    step of the ladder holds. A shorter cooldown never replaces a longer one. An answer that comes while a cooldown runs
    belongs to the same trouble and does not climb.

    >>> from datetime import UTC
    >>> noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    >>> first = with_cooldown(Cooldown(), retry_after_s=None, at=noon)
    >>> second = with_cooldown(first, retry_after_s=None, at=noon + timedelta(minutes=1))
    >>> f"{first.until:%H:%M} {second.until:%H:%M}", second.level
    ('12:01 12:06', 2)
    """
    stated_s = _stated(retry_after_s)
    if stated_s is not None:
        return evolve(cooldown, until=_later(cooldown.until, at + timedelta(seconds=stated_s)))
    if cooldown.until is not None and at < cooldown.until:
        return cooldown
    wait_s = LADDER_S[min(cooldown.level, len(LADDER_S) - 1)]
    level = min(cooldown.level + 1, len(LADDER_S))
    return Cooldown(until=_later(cooldown.until, at + timedelta(seconds=wait_s)), level=level)


def _stated(retry_after_s: float | None) -> float | None:
    if retry_after_s is None or math.isnan(retry_after_s) or retry_after_s <= 0:
        return None
    return min(retry_after_s, RETRY_AFTER_S_MAX)


def _later(one: datetime | None, other: datetime) -> datetime:
    return other if one is None else max(one, other)
