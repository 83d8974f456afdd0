"""How old may a count be? The dearer it was the older, so that counting never keeps the database busy; small tables are counted anew."""

from __future__ import annotations

import math
from typing import Final, Generic, TypeVar

import trio
from attrs import define, field

__all__ = ["CountCache"]

TIMES: Final = 20.0
"""A count is kept for so many times as long as it took: counting takes at most a twentieth of the time."""
KEPT_S_MAX: Final = 30.0

T = TypeVar("T")


@define(eq=False)
class CountCache(Generic[T]):
    """What was counted last, as long as it may be shown."""

    _value: T | None = field(init=False, default=None)
    _until: float = field(init=False, default=-math.inf)

    @property
    def known(self) -> T | None:
        """The count; None: it has to be made."""
        return self._value if trio.current_time() < self._until else None

    def keep(self, value: T, *, took_s: float) -> None:
        """Remember a count that was just made."""
        self._value, self._until = value, trio.current_time() + min(KEPT_S_MAX, took_s * TIMES)
