"""What runs at its time, and when next? Knows the latest incarnation of each actor that has a clock."""

from __future__ import annotations

import math
from typing import Any, TypeVar

import trio
from attrs import define, field

from actors.actor import Actor

A = TypeVar("A", bound=Actor[Any])


@define(eq=False)
class Timetable:
    """The actors that wake by themselves, in the order they came."""

    _actors: dict[str, Actor[Any]] = field(init=False, factory=dict)

    def noted(self, name: str, actor: A) -> A:
        """Remember an incarnation, in the place of the one before."""
        self._actors[name] = actor
        return actor

    def due(self) -> list[tuple[str, float | None]]:
        """Each with the seconds until its next time; None: it has none just now."""
        now = trio.current_time()
        times = {name: actor.due_at for name, actor in self._actors.items()}
        return [(name, None if at == math.inf else max(0.0, at - now)) for name, at in times.items()]
