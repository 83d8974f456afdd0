"""What runs when in the next hours, over all watches and periodic actors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

import trio
from attrs import define, field

from actors.actor import Actor
from cormorant.rules.schedules import SchedulePreview, plan_of
from cormorant.services.watch.watches import WatchService


async def preview(services: Sequence[WatchService[Any]], *, hours: float, most: int, now: datetime) -> SchedulePreview:
    """What runs from now on, soonest first."""
    until = now + timedelta(hours=hours)
    planned = [each for service in services for each in await service.planned(until=until, most=most + 1)]
    return plan_of([each for each in planned if each.first < until], until=until, most=most)


A = TypeVar("A", bound=Actor[Any])


@define(eq=False)
class Timetable:
    """The actors that wake by themselves, in the order they came."""

    _actors: dict[str, Actor[Any]] = field(init=False, factory=dict)

    def recorded(self, name: str, actor: A) -> A:
        """Remember an incarnation, in the place of the one before."""
        self._actors[name] = actor
        return actor

    def due(self) -> list[tuple[str, float | None]]:
        """Each with the seconds until its next time; None: it has none just now."""
        now = trio.current_time()
        times = {name: actor.due_at for name, actor in self._actors.items()}
        return [(name, None if at == math.inf else max(0.0, at - now)) for name, at in times.items()]
