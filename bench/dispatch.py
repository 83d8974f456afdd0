"""What does it cost to decide which search goes next, with 100 or with 100,000 of them waiting? In simulated time.

A world of sources with pace and execution time, ten slots, and queues that are kept filled: each search that goes comes once
more. A decision is one search that goes, with all that it takes: its arrival, the look at the opening source, the bid for a
slot, the taking, the end, and finding out when to look again. *Heads* are the real queues and the real slot pool. *Whole
queue* is the loop that schedulers of this kind usually have: at each event it pops every task, looks at it and pushes back
what cannot go.

End to end: the whole service with 200 sources that answer at once, as many callers, each of whom searches one source after
the other: submission, dispatcher, limiter, slot, reservation, request, record of its end, outcome. Without pace or spacing,
so that nothing is waited for but our own work.
"""

from __future__ import annotations

import gc
import heapq
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import trio
from attrs import define, field, frozen

# Run as a file, Python would look here first and take neighbours of this file for packages of the same name.
sys.path[0] = str(Path(__file__).parent.parent)

from actors import SystemClock  # noqa: E402 - see above
from bench._report import Goal, Options, Row, finish, read_options  # noqa: E402 - see above
from cormorant.rules.ports import ignore  # noqa: E402 - see above
from cormorant.rules.search.limits import SourceLimits  # noqa: E402 - see above
from cormorant.rules.search.priorities import PACE_MULTIPLIERS, Priority  # noqa: E402 - see above
from cormorant.rules.search.requests import SearchPage, SearchRequest  # noqa: E402 - see above
from cormorant.rules.search.slots import SLOTS, SlotPool  # noqa: E402 - see above
from cormorant.rules.search.source_queue import SourceQueue  # noqa: E402 - see above
from cormorant.rules.settings.settings import SearchSettings  # noqa: E402 - see above
from cormorant.testing import in_line, memory_gateway, named_sources, settings  # noqa: E402 - see above
from storage.database import Database, Mode, StorageOptions  # noqa: E402 - see above
from storage.search.sources import SourceRecord  # noqa: E402 - see above
from supervisors.service import Service, open_service  # noqa: E402 - see above
from tests.environments import environment_of  # noqa: E402 - see above

SOURCES = (10, 50)
TICKETS = (100, 1_000, 10_000, 100_000)
TICKETS_OF_WHOLE_QUEUE = (100, 1_000, 10_000)
START = datetime(2026, 1, 1, tzinfo=UTC)
CLASSES = tuple(Priority)
HAVE_DEADLINES = (Priority.RSS, Priority.BACKGROUND)
FAR = timedelta(days=3650)
LIMITS = SourceLimits()
# Pace, with spacing as its floor, for each class.
INTERVALS = [
    timedelta(seconds=max(LIMITS.spacing_s, LIMITS.pace_s * PACE_MULTIPLIERS[priority])) for priority in CLASSES
]


@frozen
class Load:
    """How many sources, how many tickets wait, and how they are spread."""

    sources: int
    tickets: int
    is_uneven: bool

    def __str__(self) -> str:
        spread = "90 % on one" if self.is_uneven else "uniform"
        return f"{self.sources} sources, {self.tickets:,} tickets, {spread}"


def execution(source: int) -> timedelta:
    """How long a request takes, about a second: other sources take other times, so that they do not move in step."""
    return timedelta(milliseconds=500 + source * 617 % 1000)


@define(eq=False)
class Ticket:
    """One search at one source."""

    sequence: int
    source: int
    priority: Priority
    submitted_at: datetime
    deadline: datetime | None
    is_live: bool = True


@define
class Arrivals:
    """Where tickets come from: the same ones for every contestant."""

    load: Load
    chance: random.Random = field(factory=lambda: random.Random(1))
    numbers: count[int] = field(factory=count)

    def next(self, now: datetime) -> Ticket:
        """A new ticket."""
        priority = CLASSES[int(self.chance.random() * 4)]
        ticket = Ticket(next(self.numbers), self._any(), priority, now, None)
        return self.again(ticket, now)

    def again(self, ticket: Ticket, now: datetime) -> Ticket:
        """The same search once more: every queue keeps its length, and making objects is no part of deciding."""
        ticket.sequence = next(self.numbers)
        ticket.submitted_at = now
        ticket.deadline = now + FAR if ticket.priority in HAVE_DEADLINES else None
        return ticket

    def _any(self) -> int:
        if self.load.is_uneven and self.chance.random() < 0.9:
            return 0
        return int(self.chance.random() * self.load.sources)


@define(eq=False)
class Source:
    """One source of the real structure: a queue, and since when it rests."""

    number: int
    queue: SourceQueue[Ticket] = field(factory=SourceQueue[Ticket])
    openings: list[datetime] = field(factory=lambda: [START] * len(CLASSES))
    is_busy: bool = False
    execution: timedelta = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.execution = execution(self.number)

    def opening_of(self, _ticket: Ticket, priority: Priority) -> datetime:
        return self.openings[priority]


@define
class Heads:
    """The real queues and the real pool, driven by one heap of events as the clock would drive the limiters."""

    arrivals: Arrivals
    now: datetime = START
    sources: list[Source] = field(init=False)
    pool: SlotPool[int] = field(init=False, factory=lambda: SlotPool[int](slots=SLOTS))
    # Invariant: one event for each source that has tickets and does not bid.
    events: list[tuple[datetime, int]] = field(init=False, factory=list)
    decisions: int = field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        self.sources = [Source(number) for number in range(self.arrivals.load.sources)]
        for _ in range(self.arrivals.load.tickets):
            ticket = self.arrivals.next(self.now)
            self.sources[ticket.source].queue.push(ticket)
        self.events = [(self.now, source.number) for source in self.sources]

    def step(self) -> None:
        """The next event: a request has ended, or a source looks again."""
        self.now, number = now, _ = heapq.heappop(self.events)
        source = self.sources[number]
        if source.is_busy:
            source.is_busy = False
            source.openings = [now + interval for interval in INTERVALS]
            for granted in self.pool.free(number):
                self.start(self.sources[granted])
        elif (best := source.queue.best(now, source.opening_of)) is not None:
            rank, ticket = best
            is_for_people = ticket.priority is Priority.INTERACTIVE
            if self.pool.bid(number, (rank, ticket.sequence), is_for_people=is_for_people):
                source.queue.take_head(ticket)
                self.run(source, ticket)
            return
        next_event = source.queue.next_event(now, source.opening_of)
        if next_event is not None:
            heapq.heappush(self.events, (next_event, number))

    def start(self, source: Source) -> None:
        """One that had to wait for its slot takes its best ticket now: a better one may have come."""
        ticket = source.queue.take(self.now, source.opening_of)
        assert ticket is not None
        self.run(source, ticket)

    def run(self, source: Source, ticket: Ticket) -> None:
        source.is_busy = True
        self.decisions += 1
        source.queue.push(self.arrivals.again(ticket, self.now))
        heapq.heappush(self.events, (self.now + source.execution, source.number))


@define
class WholeQueue:
    """One heap of all tasks; every event pops and pushes all of them."""

    arrivals: Arrivals
    now: datetime = START
    tasks: list[tuple[Priority, int, Ticket]] = field(init=False)
    ended_at: dict[int, datetime] = field(init=False, factory=dict)
    running: list[tuple[datetime, int]] = field(init=False, factory=list)
    busy: set[int] = field(init=False, factory=set)
    decisions: int = field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        tickets = [self.arrivals.next(self.now) for _ in range(self.arrivals.load.tickets)]
        self.tasks = [(ticket.priority, ticket.sequence, ticket) for ticket in tickets]
        heapq.heapify(self.tasks)

    def step(self) -> None:
        """Dispatch what can go, then let time pass to the next end or the earliest opening."""
        blocked: list[tuple[Priority, int, Ticket]] = []
        earliest: datetime | None = self.running[0][0] if self.running else None
        while self.tasks:
            task = heapq.heappop(self.tasks)
            priority, _, ticket = task
            opens_at = self.ended_at.get(ticket.source, START - FAR) + INTERVALS[priority]
            if ticket.source in self.busy or len(self.running) >= SLOTS:
                blocked.append(task)
            elif opens_at > self.now:
                blocked.append(task)
                earliest = opens_at if earliest is None else min(earliest, opens_at)
            else:
                self.decisions += 1
                self.busy.add(ticket.source)
                heapq.heappush(self.running, (self.now + execution(ticket.source), ticket.source))
                self.arrivals.again(ticket, self.now)
                blocked.append((priority, ticket.sequence, ticket))
        for task in blocked:
            heapq.heappush(self.tasks, task)
        times = [time for time in (earliest, self.running[0][0] if self.running else None) if time is not None]
        self.now = min(times)
        while self.running and self.running[0][0] <= self.now:
            _, source = heapq.heappop(self.running)
            self.busy.discard(source)
            self.ended_at[source] = self.now


def decisions_per_second(make: Callable[[Arrivals], Heads | WholeQueue], load: Load, *, seconds: float) -> float:
    """How many decisions are made in so much processor time, the filling of the queues left out.

    Nothing waits here for anything but the processor, and a machine that others use, too, would make wall time worthless.
    """
    world = make(Arrivals(load))
    for _ in range(load.sources):
        world.step()
    before = world.decisions
    # Collecting garbage looks at every ticket that waits, which is Python's doing and the same for all.
    gc.collect()
    gc.freeze()
    began = time.process_time()
    end = began + seconds
    while time.process_time() < end or world.decisions == before:
        for _ in range(1 if isinstance(world, WholeQueue) else 100):
            world.step()
    passed_s = time.process_time() - began
    gc.unfreeze()
    return (world.decisions - before) / passed_s


def pure_part(*, rounds: int, seconds: float) -> tuple[list[Row], list[Goal]]:
    """The structures alone: no actors, no database."""
    loads = [
        Load(sources, tickets, is_uneven) for sources in SOURCES for is_uneven in (False, True) for tickets in TICKETS
    ]
    heads: dict[Load, list[float]] = {load: [] for load in loads}
    whole: dict[Load, list[float]] = {load: [] for load in loads if load.tickets in TICKETS_OF_WHOLE_QUEUE}
    # All take turns, round by round, so that a slow minute of the machine hits all of them.
    for _ in range(rounds):
        for load in loads:
            heads[load].append(decisions_per_second(Heads, load, seconds=seconds))
            if load in whole:
                whole[load].append(decisions_per_second(WholeQueue, load, seconds=seconds))
    rows = []
    for load in loads:
        rows.append(Row(f"heads: {load}", "decisions/s", heads[load]))
        if load in whole:
            rows.append(Row(f"  whole queue: {load}", "decisions/s", whole[load]))
    small, large = heads[Load(50, 1_000, is_uneven=False)], heads[Load(50, 100_000, is_uneven=False)]
    growth = statistics.median(few / many for few, many in zip(small, large, strict=True))
    goals = [
        Goal("dispatch.decisions_per_s", statistics.median(large), ">=", 100_000),
        Goal("dispatch.growth_1k_to_100k", growth, "<=", 4.0),
    ]
    return rows, goals


END_TO_END_SOURCES = tuple(f"source{number:03}" for number in range(200))


@frozen
class Rate:
    """How fast searches were answered, by the clock on the wall and by the processor's."""

    per_s: float
    per_s_of_processor: float


async def _answer(_source: SourceRecord, _request: SearchRequest) -> SearchPage:
    """Answer at once: our own way is measured, not that of a source."""
    return SearchPage(results=())


def _service(gateway: Database) -> Service:
    chosen = settings(
        sources=named_sources(*END_TO_END_SOURCES, spacing_s=0.0, pace_s=0.0),
        search=SearchSettings(slots=len(END_TO_END_SOURCES), cache_enabled=False),
    )
    chance = random.Random(1)
    return open_service(
        chosen,
        environment=environment_of(
            clock=SystemClock(), chance=chance, offload=in_line, database=gateway, search=_answer
        ),
    )


async def _search_all(service: Service, *, each: int) -> Rate:
    """So many searches at each source, one after the other; all sources at the same time."""

    async def keep_searching(source: str) -> None:
        for number in range(each):
            async with await service.search(f"words {number}", sources=[source]) as search:
                found = await search.wait()
            assert found.coverage == (source,)

    began, processor_began = time.perf_counter(), time.process_time()
    async with trio.open_nursery() as callers:
        for source in END_TO_END_SOURCES:
            callers.start_soon(keep_searching, source)
    count = each * len(END_TO_END_SOURCES)
    return Rate(count / (time.perf_counter() - began), count / (time.process_time() - processor_began))


async def _rounds(gateway: Database, *, rounds: int, each: int) -> list[Rate]:
    rates = []
    async with _service(gateway) as service:
        await _search_all(service, each=1)  # the first search at a source waits for its limiter to have read its state
        for _ in range(rounds):
            rates.append(await _search_all(service, each=each))  # noqa: PERF401 - one after the other
    return rates


def end_to_end_part(*, rounds: int, each: int) -> tuple[list[Row], list[Goal]]:
    """The way through the actors and the database."""
    with memory_gateway() as gateway:
        quick = trio.run(lambda: _rounds(gateway, rounds=rounds, each=each))
    with tempfile.TemporaryDirectory(prefix="cormorant-bench-") as folder:
        options = StorageOptions(url=f"sqlite:///{folder}/searches.db")
        disk = Database(options, mode=Mode.THREADS, emit=ignore, chance=random.Random(1))
        durable = trio.run(lambda: _rounds(disk, rounds=rounds, each=each))
    of_processor = [rate.per_s_of_processor for rate in quick]
    rows = [
        Row("end to end, in line", "searches/s of processor time", of_processor),
        Row("  by the clock on the wall", "searches/s", [rate.per_s for rate in quick]),
        Row("end to end, SQLite FULL on disk", "searches/s", [rate.per_s for rate in durable]),
        Row("  by the processor", "searches/s of processor time", [rate.per_s_of_processor for rate in durable]),
    ]
    return rows, [Goal("dispatch.searches_per_s_in_line", statistics.median(of_processor), ">=", 3_000)]


def main(options: Options) -> int:
    """Run all parts."""
    rounds, seconds = (3, 0.2) if options.quick else (7, 1.0)
    rows, goals = pure_part(rounds=rounds, seconds=seconds)
    more_rows, more_goals = end_to_end_part(rounds=rounds, each=5 if options.quick else 20)
    return finish(options, [*rows, *more_rows], [*goals, *more_goals])


if __name__ == "__main__":
    sys.exit(main(read_options(__doc__)))
