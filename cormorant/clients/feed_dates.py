"""When was an entry published? In the usual forms, and in those of the world's odder programs, which feedparser knows."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from importlib import import_module
from time import struct_time
from typing import Final

from cormorant.clients.http.headers import read_date

Reader = Callable[[str], struct_time | None]
_LENGTH_MAX: Final = 64
_FORMS: Final = ("onblog", "nate", "greek", "hungarian", "rfc822", "w3dtf", "asctime", "perforce")
_USUAL: Final = re.compile(
    r"\A[A-Za-z0-9, ]+ \d\d:\d\d:\d\d (?:[+-]\d{4}|GMT|UTC|Z)"
    r"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?",
    re.ASCII,
)


def read_feed_date(text: str) -> datetime | None:
    """The time in UTC, or None when there is none to be had.

    >>> print(read_feed_date("Thu, 01 Jan 2004 19:48:21 GMT"), read_feed_date("2004년 05월 28일  01:31:15"))
    2004-01-01 19:48:21+00:00 2004-05-27 16:31:15+00:00
    """
    if not text or len(text) > _LENGTH_MAX:
        return None
    if _USUAL.fullmatch(text) and (usual := read_date(text)) is not None:
        return usual
    return next((found for read in _readers() if (found := _read(read, text)) is not None), None) or _rest(text)


def _rest(text: str) -> datetime | None:
    """Seconds since 1970, and forms of ISO 8601 that are odd but whole."""
    return read_date(text) if text.isascii() and "T" not in text[11:] and ":" not in text[19:] else None


def _read(read: Reader, text: str) -> datetime | None:
    try:
        found = read(text)
        return None if found is None else datetime(*found[:6], tzinfo=UTC)
    except (ValueError, OverflowError, TypeError, IndexError, KeyError, AttributeError):
        # What stands for a date may be anything, and its readers raise more than the errors they document.
        return None


@cache
def _readers() -> tuple[Reader, ...]:
    """Loaded when the first odd date comes: most processes never see one.

    Not the one for ISO 8601: it fills up what is missing with what is today, and finds a date in everything.
    """
    known = import_module("feedparser.datetimes")
    found = (getattr(known, f"_parse_date_{form}", None) for form in _FORMS)
    return tuple(read for read in found if read is not None)
