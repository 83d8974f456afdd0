"""A simulated day at one source: queue, gates, reservations and slots together, in simulated time."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from attrs import define, field

from cormorant.rules.search.limits import Edges, Lane, SourceLimits, edges_wanted
from cormorant.rules.search.priorities import AGEING_STEP_S, Priority, multiplier
from cormorant.rules.search.reasons import NextRequest, earliest_opening, openings
from cormorant.rules.search.reservations import RequestPermit, Reserved, reserve
from cormorant.rules.search.source_queue import SourceQueue
from cormorant.rules.search.source_state import SourceState
from tests.rules.search.request_ends import succeeded

MIDNIGHT = datetime(2026, 3, 1, tzinfo=UTC)
PEOPLE, BACKGROUND = Priority.INTERACTIVE, Priority.BACKGROUND


@define(eq=False)
class Search:
    sequence: int
    priority: Priority
    submitted_at: datetime
    deadline: datetime | None = None
    is_live: bool = True
    began_at: datetime | None = None

    @property
    def waited_s(self) -> float:
        assert self.began_at is not None
        return (self.began_at - self.submitted_at).total_seconds()


@define
class Site:
    """One source, asked as a limiter asks it: whenever something may have changed and at no other time."""

    limits: SourceLimits
    execution_s: float
    state: SourceState = field(factory=SourceState)
    queue: SourceQueue[Search] = field(factory=SourceQueue[Search])
    made: list[datetime] = field(factory=list)
    running: tuple[datetime, RequestPermit] | None = None
    now: datetime = MIDNIGHT

    @property
    def edges(self) -> Edges:
        wanted = edges_wanted(self.limits, Lane.QUERY, last_seq=len(self.made))
        return {number: self.made[number - 1] for number in wanted}

    def opening_of(self, ticket: Search, priority: Priority) -> datetime | None:
        return earliest_opening(
            self.state,
            self.limits,
            NextRequest(
                lane=Lane.QUERY, priority=ticket.priority, waited_s=(self.now - ticket.submitted_at).total_seconds()
            ),
            now=self.now,
            edges=self.edges,
        )

    def look(self) -> None:
        if self.running is not None and self.running[0] <= self.now:
            self.state = succeeded(self.state, self.running[1], now=self.now)
            self.running = None
        if self.running is None and (ticket := self.queue.take(self.now, self.opening_of)) is not None:
            got = reserve(
                self.state,
                self.limits,
                NextRequest(
                    lane=Lane.QUERY, priority=ticket.priority, waited_s=(self.now - ticket.submitted_at).total_seconds()
                ),
                now=self.now,
                edges=self.edges,
                lease_s=90,
            )
            assert isinstance(got, Reserved), "a ticket was taken that may not go"
            self.state, ticket.began_at = got.state, got.at
            self.made.append(got.at)
            self.running = (got.at + timedelta(seconds=self.execution_s), got.permit)

    def next_look(self) -> datetime | None:
        if self.running is not None:
            return self.running[0]
        return self.queue.next_event(self.now, self.opening_of)


def run(site: Site, arrivals: list[Search], *, until: datetime) -> int:
    """Let searches arrive in order; returns how often somebody looked."""
    looks = 0
    coming = [(search.submitted_at, search.sequence, search) for search in arrivals]
    heapq.heapify(coming)
    while site.now < until:
        while coming and coming[0][0] <= site.now:
            site.queue.push(heapq.heappop(coming)[-1])
        site.look()
        looks += 1
        times = [time for time in (site.next_look(), coming[0][0] if coming else None) if time is not None]
        if not times:
            break
        assert min(times) > site.now or site.running is not None, "the limiter would turn round without time passing"
        site.now = min(times)
    return looks


def people(*, every_s: float, hours: float) -> Iterator[Search]:
    for number in range(int(hours * 3600 / every_s)):
        yield Search(1_000 + number, PEOPLE, MIDNIGHT + timedelta(seconds=number * every_s))


@pytest.mark.slow("14,400 searches in simulated time")
@pytest.mark.parametrize("execution_s", [0.0, 1.0])
def test_a_person_who_searches_every_6_s_holds_up_background_work_by_three_steps_and_no_more(
    execution_s: float,
) -> None:
    limits = SourceLimits()
    patient = Search(1, BACKGROUND, MIDNIGHT + timedelta(seconds=1))
    site = Site(limits, execution_s)

    run(site, [patient, *people(every_s=6, hours=24)], until=MIDNIGHT + timedelta(hours=24))

    interval_s = limits.pace_s * multiplier(PEOPLE)
    assert patient.waited_s <= 3 * AGEING_STEP_S + interval_s + execution_s
    assert len(site.made) >= 24 * 3600 / (interval_s + execution_s) - 1


def test_without_anybody_else_background_work_waits_for_its_pace_alone() -> None:
    searches = [Search(number, BACKGROUND, MIDNIGHT) for number in range(4)]
    site = Site(SourceLimits(), 1.0)

    run(site, searches, until=MIDNIGHT + timedelta(hours=1))

    assert [search.waited_s for search in searches] == [0, 61, 122, 183]


def test_the_last_searches_of_the_hour_are_left_to_people() -> None:
    limits = SourceLimits(spacing_s=0, pace_s=0, per_hour=10, reserve_interactive=0.3)
    backlog = [Search(number, BACKGROUND, MIDNIGHT) for number in range(20)]
    person = Search(99, PEOPLE, MIDNIGHT + timedelta(minutes=50))
    site = Site(limits, 0.0)

    run(site, [*backlog, person], until=MIDNIGHT + timedelta(hours=3))

    assert person.waited_s == 0
    assert [search.began_at for search in backlog[:8]] == [MIDNIGHT] * 7 + [MIDNIGHT + timedelta(hours=1)]
    assert not openings(site.state, limits, NextRequest(lane=Lane.GRAB, priority=BACKGROUND), now=site.now, edges={}), (
        "grabs have a quota of their own"
    )
