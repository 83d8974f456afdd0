"""When did a release come out, as far as one knows? Spotify says the day, the month, or only the year."""

from __future__ import annotations

import re
from calendar import monthrange
from datetime import date, timedelta
from typing import Final, Literal

from attrs import frozen

Precision = Literal["day", "month", "year"]

_WRITTEN: Final = re.compile(r"(\d{4})(?:-(\d{2})(?:-(\d{2}))?)?", re.ASCII)
_PARTS: Final = {"year": 1, "month": 2, "day": 3}
_NO_OVERLAP: Final = timedelta()


@frozen
class ReleaseDate:
    """A day, or all that is known of it. What is not known is None."""

    year: int
    month: int | None = None
    day: int | None = None

    def __attrs_post_init__(self) -> None:
        if self.month is None and self.day is not None:
            raise ValueError("a day without its month is no date")
        date(self.year, self.month or 1, self.day or 1)

    @property
    def precision(self) -> Precision:
        """How much of it is known."""
        if self.month is None:
            return "year"
        return "month" if self.day is None else "day"

    @property
    def earliest(self) -> date:
        """The first day that it can be."""
        return date(self.year, self.month or 1, self.day or 1)

    @property
    def latest(self) -> date:
        """The last day that it can be."""
        month = self.month or 12
        return date(self.year, month, self.day or monthrange(self.year, month)[1])

    def is_after(self, watermark: date, overlap: timedelta = _NO_OVERLAP) -> bool:
        """Whether it may be newer than what was seen up to `watermark`. The day of the watermark itself may be.

        `overlap` looks further back: shops fill in releases some days late.

        >>> seen_until = date(2026, 11, 16)
        >>> [read_release_date(text).is_after(seen_until) for text in ("2026", "2026-11", "2026-10", "2026-11-15")]
        [True, True, False, False]
        """
        since = watermark - min(overlap, watermark - date.min)
        return self.latest >= since

    def __str__(self) -> str:
        parts = [f"{self.year:04}", *(f"{part:02}" for part in (self.month, self.day) if part is not None)]
        return "-".join(parts)


def read_release_date(text: str, precision: str = "day") -> ReleaseDate | None:
    """The date that is written here, no more exact than `precision` says; None for "0000" and what is no date.

    >>> [str(read_release_date(*date)) for date in (("1981-12",), ("1981-01-01", "year"), ("0000",), ("2026-02-30",))]
    ['1981-12', '1981', 'None', 'None']
    """
    written = _WRITTEN.fullmatch(text.strip())
    if written is None:
        return None
    known = [int(part) for part in written.groups() if part is not None][: _PARTS.get(precision, _PARTS["day"])]
    try:
        return ReleaseDate(*known)
    except ValueError:
        return None
