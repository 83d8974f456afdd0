"""What runs when, as far as it is known now? The times of many schedules in order, each in its turn where turns are taken."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from heapq import merge

from attrs import frozen

from cormorant.rules.schedules import Schedule, runs_within

__all__ = ["HostPacing", "PlannedRun", "SchedulePreview", "ScheduledWatch", "plan_of"]


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
