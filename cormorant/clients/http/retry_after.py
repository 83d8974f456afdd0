"""How long does a Retry-After header ask us to wait?"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

RETRY_AFTER_MAX_S = 7 * 24 * 3600.0
"""A longer wait is taken for a mistake and cut: the source would never be asked again."""

_SECONDS = re.compile(r"\A\s*+(\d{1,15})(?:\.\d{0,15})?\s*", re.ASCII)
_DATE_LENGTH_MAX = 64  # the longest form of RFC 9110 has 33 characters


def retry_after_s(header: str | None, *, now: datetime) -> float | None:
    """Seconds to wait, from 0 to a week; None when the header is absent or says nothing that can be understood.

    >>> now = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)
    >>> [retry_after_s(text, now=now) for text in ("120", "Mon, 16 Nov 2026 12:01:30 GMT", "soon", None)]
    [120.0, 90.0, None, None]
    >>> [retry_after_s(text, now=now) for text in ("99999999999", "Mon, 16 Nov 2020 12:00:00 GMT")]
    [604800.0, 0.0]
    """
    if header is None:
        return None
    seconds = _SECONDS.fullmatch(header)
    if seconds is not None:
        return min(RETRY_AFTER_MAX_S, float(seconds[0]))
    date = _date(header)
    if date is None:
        return None
    return min(RETRY_AFTER_MAX_S, max(0.0, (date - now).total_seconds()))


def _date(text: str) -> datetime | None:
    if len(text) > _DATE_LENGTH_MAX:
        return None
    try:
        date = parsedate_to_datetime(text.strip())
        return date.replace(tzinfo=UTC) if date.tzinfo is None else date.astimezone(UTC)
    except (ValueError, OverflowError, IndexError, TypeError):
        # The parser of the standard library raises more than the one error it documents.
        return None
