"""Column types and values that both databases store exactly."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
from sqlalchemy import BigInteger, Dialect, Text, TypeDecorator
from sqlalchemy.types import TypeEngine
from typing_extensions import override

from cormorant.rules.errors import TextRefused

Impl = TypeEngine[Any] | type[TypeEngine[Any]]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)

# A backslash that is itself escaped does not escape the u.
_ESCAPED_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


def to_micros(moment: datetime) -> int:
    """Microseconds since 1970 UTC, exact.

    >>> to_micros(datetime(2026, 11, 16, 2, 0, 0, 7, tzinfo=UTC))
    1794794400000007
    """
    if moment.tzinfo is None:
        raise ValueError(f"{moment.isoformat()} names no time zone; times are kept in UTC")
    return (moment - EPOCH) // MICROSECOND


def from_micros(micros: int) -> datetime:
    """The time in UTC that so many microseconds since 1970 mean.

    >>> from_micros(-1).isoformat()
    '1969-12-31T23:59:59.999999+00:00'
    """
    return EPOCH + timedelta(0, 0, micros)  # by place: by name it takes twice as long


def maybe_from_micros(micros: int | None) -> datetime | None:
    """The same where there may be none."""
    return None if micros is None else from_micros(micros)


def maybe_to_micros(moment: datetime | None) -> int | None:
    """As `to_micros`, where there may be none."""
    return None if moment is None else to_micros(moment)


def changed_fields(thing: Any) -> dict[str, Any]:
    """The fields of an attrs object that have another value than their default: a text of them stays short."""
    fields = attrs.fields(type(thing))
    return {each.name: value for each in fields if (value := getattr(thing, each.name)) != each.default}


def known_fields(cls: type[Any], plain: Mapping[str, Any]) -> dict[str, Any]:
    """The values that an attrs class has a field for. What a newer or older process wrote besides is left out."""
    return {each.name: plain[each.name] for each in attrs.fields(cls) if each.name in plain}


def check_text(text: str) -> str:
    """The same text, if every database can keep it. PostgreSQL has no NUL, and half a surrogate pair is no character."""
    if "\0" in text:
        raise TextRefused("a text with a NUL character cannot be stored: remove it where the text comes in")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise TextRefused(f"a text that is not valid Unicode cannot be stored: {error.reason}") from error
    return text


def kept_text(words: str, most: int) -> str:
    """As much of a text as is kept, and of that what every database can keep. For what others say, which may be anything.

    >>> kept_text("abc" + chr(0) + "d", 3)
    'abc'
    """
    if words.isascii() and len(words) <= most and "\0" not in words:
        return words
    return words.replace("\0", "")[:most].encode(errors="replace").decode()


class Micros(TypeDecorator[datetime]):
    """A point in time: aware in Python, BIGINT microseconds UTC in the database. Sorts and compares alike everywhere."""

    impl: Impl = BigInteger
    cache_ok: bool | None = True

    @override
    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:
        return maybe_to_micros(value)

    @override
    def process_result_value(self, value: int | None, dialect: Dialect) -> datetime | None:
        return maybe_from_micros(value)


class PlainText(TypeDecorator[str]):
    """Text that both databases can keep; what one of them could not is refused by both."""

    impl: Impl = Text
    cache_ok: bool | None = True

    @override
    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return None if value is None else check_text(value)


class JsonText(TypeDecorator[Any]):
    """Plain values as JSON in a TEXT column. Escaped to ASCII, so that half a surrogate pair comes back as it was."""

    impl: Impl = Text
    cache_ok: bool | None = True

    @override
    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        if value is None:
            return None
        text = json.dumps(value, allow_nan=False, separators=(",", ":"))
        if _ESCAPED_NUL.search(text):
            raise TextRefused("a value with a NUL character cannot be stored: remove it where it comes in")
        return text

    @override
    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        return None if value is None else json.loads(value)
