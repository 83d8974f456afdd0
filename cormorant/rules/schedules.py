"""When something is due again (interval or cron), and a preview over many schedules."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from heapq import merge
from itertools import islice
from typing import Final

from attrs import frozen
from cronsim import CronSim, CronSimError

from cormorant.rules.units import zone_of

INTERVAL_S_MIN: Final = 60.0
INTERVAL_S_MAX: Final = 365 * 86_400.0
ADAPTIVE_S_MIN: Final = 900.0
DAY_S: Final = 86_400.0
OVERDUE_S: Final = 60
FAILURES_BEFORE_DOUBLING: Final = 3
BUSY_ITEMS: Final = 10.0
QUIET_ITEMS: Final = 1.0
_FIELDS: Final = 5


class ScheduleProblem(ValueError):
    """A schedule that cannot be kept: the part that is wrong, and what is wrong with it, with the remedy."""

    def __init__(self, part: str, message: str) -> None:
        super().__init__(message)
        self.part = part


@frozen(kw_only=True)
class Schedule:
    """Every so many seconds, or by cron: minute, hour, day, month, day of the week, in a zone."""

    every_s: float | None = None
    cron: str | None = None
    zone: str = "UTC"

    def __attrs_post_init__(self) -> None:
        if (self.every_s is None) == (self.cron is None):
            raise ScheduleProblem("cron", "give either an interval or a cron text")
        if self.every_s is not None and not INTERVAL_S_MIN <= self.every_s <= INTERVAL_S_MAX:
            allowed = f"{INTERVAL_S_MIN:g} s to 365 days"
            raise ScheduleProblem("every", f"the interval is {self.every_s:g} s; allowed: {allowed}")
        try:
            zone = zone_of(self.zone)
        except (OSError, ValueError, KeyError):
            raise ScheduleProblem("zone", f"{self.zone!r} is no time zone; write one like Europe/Berlin") from None
        problem = None if self.cron is None else _cron_problem(self.cron, zone)
        if problem:
            raise ScheduleProblem("cron", problem)


def _cron_problem(cron: str, zone: tzinfo) -> str | None:
    if len(cron.split()) != _FIELDS:
        return f"{cron!r} has not five fields: minute, hour, day, month, day of the week, such as 0 */6 * * *"
    try:
        next(CronSim(cron, datetime(2026, 1, 1, tzinfo=zone)))
    except CronSimError as error:
        return f"{cron!r} cannot be kept: {error}; write it like 0 */6 * * *"
    except StopIteration:
        return f"{cron!r} never comes: there is no such day"
    return None


def next_due(schedule: Schedule, *, due: datetime, now: datetime, effective_s: float | None = None) -> datetime:
    """When it is due after a check that was due at `due`. The cadence is kept; what was missed is not made up for.

    A check before it was due begins an interval anew; by cron the next of its times follows, whatever it was put off to.

    >>> at = datetime(2026, 1, 1, tzinfo=UTC)
    >>> hourly = Schedule(every_s=3600)
    >>> next_due(hourly, due=at, now=at + timedelta(minutes=5)).isoformat()
    '2026-01-01T01:00:00+00:00'
    >>> next_due(hourly, due=at, now=at + timedelta(hours=5, minutes=5)).isoformat()
    '2026-01-01T06:05:00+00:00'
    >>> next_due(hourly, due=at + timedelta(minutes=20), now=at).isoformat()
    '2026-01-01T01:00:00+00:00'
    """
    if schedule.cron is not None:
        return _next_cron(schedule, now)
    every = timedelta(seconds=effective_s or schedule.every_s or DAY_S)
    kept = min(due, now) + every
    return kept if kept > now else now + every


def _next_cron(schedule: Schedule, after: datetime) -> datetime:
    assert schedule.cron is not None
    found: datetime = next(CronSim(schedule.cron, after.astimezone(zone_of(schedule.zone))))
    return found.astimezone(UTC)


def runs_within(schedule: Schedule, *, first: datetime, until: datetime, most: int) -> Iterator[datetime]:
    """The times from `first` on, as they would be kept."""

    def times() -> Iterator[datetime]:
        at = first
        while at < until:
            yield at
            at = next_due(schedule, due=at, now=at)

    return islice(times(), most)


def after_failure_s(*, base_s: float, failures: int) -> float:
    """The effective interval after so many failures in a row: from the third on it doubles, to a day at most.

    >>> [after_failure_s(base_s=3600, failures=n) for n in (0, 2, 3, 4, 9)]
    [3600, 3600, 7200.0, 14400.0, 86400.0]
    """
    if failures < FAILURES_BEFORE_DOUBLING:
        return base_s
    doubled = base_s * 2.0 ** min(failures - FAILURES_BEFORE_DOUBLING + 1, 32)
    return max(base_s, min(DAY_S, doubled))


def adapted_s(*, base_s: float, new_items: Sequence[int]) -> float:
    """The effective interval by what the last checks brought: busy ones more often, quiet ones less. Never the base itself.

    >>> [adapted_s(base_s=3600, new_items=items) for items in ((), (30, 2), (0, 1), (5,))]
    [3600, 1800.0, 7200, 3600]
    >>> adapted_s(base_s=600, new_items=(50,)), adapted_s(base_s=80_000, new_items=(0,))
    (600, 86400.0)
    """
    if not new_items:
        return base_s
    mean = sum(new_items) / len(new_items)
    if mean > BUSY_ITEMS:
        return min(base_s, max(base_s / 2, ADAPTIVE_S_MIN))
    if mean < QUIET_ITEMS:
        return max(base_s, min(base_s * 2, DAY_S))
    return base_s


def overdue_delay_s(number: int) -> float:
    """How long one that is overdue waits, so that not all begin at once: a stable share of a minute, evenly spread.

    >>> overdue_delay_s(1) == overdue_delay_s(1), 0 <= overdue_delay_s(7) < 60
    (True, True)
    """
    told = hashlib.blake2s(str(number).encode(), digest_size=4).digest()
    return int.from_bytes(told, "big") / 2**32 * OVERDUE_S


def is_misfire(*, due: datetime, now: datetime, grace_s: float) -> bool:
    """Whether it is so late that it counts as missed. It runs all the same, once."""
    return (now - due).total_seconds() > grace_s


def spread_over(numbers: Sequence[int], *, start: datetime, window_s: float) -> dict[int, datetime]:
    """Even times over a window, one for each.

    >>> start = datetime(2026, 1, 1, tzinfo=UTC)
    >>> [at.minute for at in spread_over([7, 8, 9, 10], start=start, window_s=3600).values()]
    [0, 15, 30, 45]
    """
    step_s = window_s / max(1, len(numbers))
    return {number: start + timedelta(seconds=place * step_s) for place, number in enumerate(numbers)}


@frozen(kw_only=True)
class HostPacing:
    """Those of one name take turns: so many within such a time."""

    name: str
    room: int = 1
    apart_s: float


@frozen(kw_only=True)
class ScheduledWatch:
    """Something that runs again and again."""

    kind: str
    name: str
    first: datetime
    schedule: Schedule
    turns: HostPacing | None = None


@frozen(kw_only=True)
class PlannedRun:
    """One time at which something runs."""

    at: datetime
    kind: str
    name: str


@frozen(kw_only=True)
class SchedulePreview:
    """What runs, soonest first. `has_more`: there is more in the time that was asked for than is listed."""

    runs: tuple[PlannedRun, ...]
    has_more: bool = False


def plan_of(planned: Sequence[ScheduledWatch], *, until: datetime, most: int) -> SchedulePreview:
    """What runs before `until`, at most so many. What a run takes, and what fails, nobody knows beforehand.

    >>> from datetime import UTC
    >>> noon, host = datetime(2026, 1, 1, 12, tzinfo=UTC), HostPacing(name="x.org", apart_s=1.0)
    >>> feeds = [ScheduledWatch(kind="feed", name=n, first=noon, schedule=Schedule(every_s=3600), turns=host) for n in "ab"]
    >>> [(run.name, run.at.strftime("%H:%M:%S")) for run in plan_of(feeds, until=noon + timedelta(hours=2), most=3).runs]
    [('a', '12:00:00'), ('b', '12:00:01'), ('a', '13:00:00')]
    """
    found: list[PlannedRun] = []
    taken: dict[str, deque[datetime]] = {}
    for due, place in merge(*(_times(each, place, until, most) for place, each in enumerate(planned))):
        if len(found) == most:
            return SchedulePreview(runs=_in_order(found), has_more=True)
        each = planned[place]
        at = due if each.turns is None else _turn(taken, each.turns, due)
        if at < until:
            found.append(PlannedRun(at=at, kind=each.kind, name=each.name))
    return SchedulePreview(runs=_in_order(found))


def _times(each: ScheduledWatch, place: int, until: datetime, most: int) -> Iterator[tuple[datetime, int]]:
    for at in runs_within(each.schedule, first=each.first, until=until, most=most + 1):
        yield at, place


def _turn(taken: dict[str, deque[datetime]], turns: HostPacing, due: datetime) -> datetime:
    last = taken.setdefault(turns.name, deque(maxlen=turns.room))
    at = due if len(last) < turns.room else max(due, last[0] + timedelta(seconds=turns.apart_s))
    last.append(at)
    return at


def _in_order(found: list[PlannedRun]) -> tuple[PlannedRun, ...]:
    return tuple(sorted(found, key=lambda run: run.at))
