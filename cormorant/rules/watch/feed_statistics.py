"""Checks of the last hour, counted by the minute."""

from __future__ import annotations

from collections import deque
from datetime import datetime
from typing import Final

from attrs import define, field

__all__ = ["CheckStatistics"]

WINDOW_MINUTES: Final = 60
SET_BACK_MINUTES: Final = 15
"""No check takes that long: one that began so much before the newest says that the clock was set back."""


@define
class _Minute:
    number: int
    total: int = 0
    successful: int = 0
    duration_ms: int = 0
    items_found: int = 0
    new_items: int = 0


@define
class CheckStatistics:
    """A sliding hour in sixty buckets and their sums. Old minutes leave when they are over, each once."""

    _minutes: deque[_Minute] = field(factory=deque)
    _sums: _Minute = field(factory=lambda: _Minute(0))

    def record(
        self, *, at: datetime, success: bool, duration_ms: int, items_found: int = 0, new_items: int = 0
    ) -> None:
        """Count one check."""
        minute = self._minute(int(at.timestamp()) // 60)
        for bucket in (minute, self._sums):
            bucket.total += 1
            if success:
                bucket.successful += 1
                bucket.duration_ms += duration_ms
                bucket.items_found += items_found
                bucket.new_items += new_items

    def summary(self, *, now: datetime) -> dict[str, float]:
        """The statistics by the names of old."""
        current = int(now.timestamp()) // 60
        self._drop(current)
        sums = self._sums
        first = self._minutes[0].number if self._minutes else current
        minutes = max(1, current - first + 1)
        return {
            "total_checks": sums.total,
            "successful_checks": sums.successful,
            "failed_checks": sums.total - sums.successful,
            "average_duration_ms": sums.duration_ms / sums.successful if sums.successful else 0,
            "total_items_found": sums.items_found,
            "total_new_items": sums.new_items,
            "checks_per_minute": sums.total / minutes if sums.total else 0,
            "success_rate": 100 * sums.successful / sums.total if sums.total else 0,
        }

    def _minute(self, number: int) -> _Minute:
        """The bucket of a minute. Checks end in any order: one that began earlier counts with the newest."""
        self._drop(number)
        if not self._minutes or self._minutes[-1].number < number:
            self._minutes.append(_Minute(number))
        return self._minutes[-1]

    def _drop(self, current: int) -> None:
        """Let minutes leave that are over. When the clock was set back, all of them go back with it."""
        if self._minutes and current < self._minutes[-1].number - SET_BACK_MINUTES:
            back = self._minutes[-1].number - current
            for minute in self._minutes:
                minute.number -= back
        while self._minutes and self._minutes[0].number <= current - WINDOW_MINUTES:
            old = self._minutes.popleft()
            for name in ("total", "successful", "duration_ms", "items_found", "new_items"):
                setattr(self._sums, name, getattr(self._sums, name) - getattr(old, name))
