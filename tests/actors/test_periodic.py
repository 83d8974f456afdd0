"""Rounds follow each other at an interval, and a wake-up during a round is not lost."""

from __future__ import annotations

import trio
from attrs import define, field
from trio.testing import MockClock

from actors.actor import Address
from actors.periodic import Periodic


@define(eq=False, kw_only=True)
class Rounds(Periodic[None]):
    """Notes when each round begins; a round takes 10 s."""

    interval_s: float = 60.0
    grace_s: float = 0.0
    began: list[float] = field(factory=list)

    async def round(self) -> None:
        self.began.append(trio.current_time())
        await trio.sleep(10)


async def test_wake_ups_during_a_round_start_one_more_when_it_has_ended(clock: MockClock) -> None:
    rounds = Rounds()
    served = Address[None]("rounds").served_by(lambda: rounds)

    async with trio.open_nursery() as nursery:
        await nursery.start(served)
        await trio.sleep(5)
        for _ in range(2):
            rounds.wake_now()
        await trio.sleep(75)
        served.stop()

    assert rounds.began == [0.0, 10.0, 70.0]


async def test_a_wake_up_between_two_rounds_starts_one_at_once(clock: MockClock) -> None:
    rounds = Rounds()
    served = Address[None]("rounds").served_by(lambda: rounds)

    async with trio.open_nursery() as nursery:
        await nursery.start(served)
        await trio.sleep(30)
        rounds.wake_now()
        await trio.sleep(70)
        served.stop()

    assert rounds.began == [0.0, 30.0, 90.0]
