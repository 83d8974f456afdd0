"""A tick begins when something is due or a message came, at its interval, inside a scope; an outage puts it off."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
import trio
from attrs import define, field
from trio.testing import MockClock
from typing_extensions import override

from actors.actor import Address, Recheck
from actors.periodic import AWAY_S, Periodic
from cormorant.rules.errors import CommitUnknown, StorageUnavailable
from cormorant.rules.events import Event, TickCutOff
from cormorant.testing import START, SimulatedClock
from storage.database import Database
from tests.environments import environment_of


@define(eq=False, kw_only=True)
class Ticks(Periodic[Recheck]):
    """Notes when each tick begins; a tick takes 10 s, and the next thing is due as the test says."""

    interval_s: float = 1.0
    due_s: float | None = 60.0
    takes_s: float = 10.0
    raises: list[Exception] = field(factory=list)
    began: list[float] = field(factory=list)

    async def tick(self) -> float | None:
        self.began.append(trio.current_time())
        await trio.sleep(self.takes_s)
        if self.raises:
            raise self.raises.pop()
        return self.due_s


@define
class Place:
    """The actor, its address, and what it told."""

    ticks: Ticks
    address: Address[Recheck]
    events: list[Event]
    stop: Callable[[], None]

    def recheck(self) -> None:
        self.address.tell_once(Recheck())


@asynccontextmanager
async def running(
    ticks: Callable[..., Ticks] = Ticks,
    *,
    clock: SimulatedClock | None = None,
    database: Database | None = None,
    **how: object,
) -> AsyncIterator[Place]:
    events: list[Event] = []
    made = ticks(environment_of(clock=clock or SimulatedClock(), database=database, emit=events.append), **how)
    address = Address[Recheck]("ticks")
    served = address.served_by(lambda: made)
    async with trio.open_nursery() as nursery:
        await nursery.start(served)
        yield Place(made, address, events, served.stop)
        served.stop()


async def test_the_next_tick_begins_when_the_next_thing_is_due(clock: MockClock) -> None:
    async with running() as place:
        await trio.sleep(150)

    assert place.ticks.began == [0.0, 70.0, 140.0]


async def test_what_is_due_before_the_interval_is_over_waits_for_it(clock: MockClock) -> None:
    async with running(due_s=0.0, takes_s=0.0, interval_s=30.0) as place:
        await trio.sleep(65)

    assert place.ticks.began == [0.0, 30.0, 60.0]


async def test_without_anything_due_it_sleeps_until_a_message_comes(clock: MockClock) -> None:
    async with running(due_s=None) as place:
        await trio.sleep(86_400)
        assert place.ticks.due_at == math.inf
        place.recheck()
        await trio.sleep(20)

    assert place.ticks.began == [0.0, 86_400.0]


@define
class Listened:
    """A database whose announcements never come."""

    may_miss_changes: bool

    async def listen(
        self,
        channel: str,
        heard: Callable[[], None],
        *,
        task_status: trio.TaskStatus[None],
    ) -> None:
        task_status.started()
        await trio.sleep_forever()


@pytest.mark.parametrize(
    ("may_miss_changes", "channels", "began"),
    [(True, ("jobs",), [0.0, 60.0, 120.0]), (False, ("jobs",), [0.0]), (True, (), [0.0])],
    ids=["a pooler may drop notices", "no notice is lost", "it listens to nothing"],
)
async def test_it_polls_where_a_notice_may_get_lost(
    clock: MockClock, *, may_miss_changes: bool, channels: tuple[str, ...], began: list[float]
) -> None:
    class Listening(Ticks):
        @property
        @override
        def channels(self) -> Sequence[str]:
            return channels

    database: Any = Listened(may_miss_changes)
    async with running(Listening, database=database, due_s=None, takes_s=0.0) as place:
        await trio.sleep(150)
        place.ticks.nursery.cancel_scope.cancel()

    assert place.ticks.began == began


async def test_the_interval_is_over_when_the_wall_clock_says_so(clock: MockClock) -> None:
    wall = SimulatedClock()
    async with running(clock=wall, takes_s=0.0, interval_s=60.0, due_s=None) as place:
        await trio.sleep(10)
        wall.jump(3_600)  # the machine has slept
        place.recheck()
        await trio.sleep(1)
        wall.jump(-3_600)
        place.recheck()
        await trio.sleep(100)

    assert place.ticks.began == [0.0, 10.0, 70.0]


async def test_messages_during_a_tick_start_one_more_when_it_has_ended(clock: MockClock) -> None:
    async with running() as place:
        await trio.sleep(5)
        for _ in range(2):
            place.recheck()
            await trio.sleep(1)
        await trio.sleep(75)

    assert place.ticks.began == [0.0, 10.0, 80.0]


async def test_a_message_within_the_interval_waits_for_its_end(clock: MockClock) -> None:
    async with running(takes_s=0.0, interval_s=30.0) as place:
        await trio.sleep(10)
        place.recheck()
        await trio.sleep(50)

    assert place.ticks.began == [0.0, 30.0]


async def test_a_tick_that_is_wanted_now_does_not_wait_for_the_interval(clock: MockClock) -> None:
    async with running(takes_s=0.0, interval_s=30.0) as place:
        await trio.sleep(10)
        place.ticks.tick_now()
        await trio.sleep(1)

    assert place.ticks.began == [0.0, 10.0]


async def test_a_tick_ends_with_its_scope_one_item_after_its_budget_and_says_so(clock: MockClock) -> None:
    async with running(takes_s=1_000.0, budget_s=8.0, item_s=2.0) as place:
        await trio.sleep(9)
        assert not place.ticks.is_in_budget
        await trio.sleep(3)

    assert place.ticks.began == [0.0, 10.0 + AWAY_S]
    assert place.events == [TickCutOff(actor="ticks", after_s=10.0)]


async def test_a_tick_that_runs_at_a_stop_gets_its_grace_and_no_event(clock: MockClock) -> None:
    async with running(takes_s=1_000.0, grace_s=4.0) as place:
        await trio.sleep(1)
        place.stop()
        began = trio.current_time()
    assert trio.current_time() - began == 4.0
    assert place.events == []


@pytest.mark.parametrize("error", [StorageUnavailable("away"), CommitUnknown("in doubt")])
async def test_a_database_that_is_away_puts_the_tick_off(clock: MockClock, error: Exception) -> None:
    async with running(takes_s=0.0, due_s=None, raises=[error]) as place:
        await trio.sleep(10)

    assert place.ticks.began == [0.0, AWAY_S]


async def test_a_due_time_is_wall_time(clock: MockClock) -> None:
    ticks = Ticks(environment_of(clock=SimulatedClock()))

    assert ticks.seconds_until(None) is None
    assert ticks.seconds_until(START + timedelta(seconds=trio.current_time() + 5)) == 5.0
    assert ticks.seconds_until(START - timedelta(days=1)) == 0.0
