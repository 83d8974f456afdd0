"""JSON from outside: documents with a limit on nesting, and what an object of foreign JSON holds under a name."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

DEPTH_MAX: Final = 100
"""Arrays and objects within each other. Whatever copies, compares or prints a value calls itself for each."""


Json = Mapping[str, Any]
_NUMBER_MAX: Final = 2**63 - 1


class NestedTooDeep(ValueError):
    """A document has more than `DEPTH_MAX` arrays and objects within each other."""

    def __init__(self) -> None:
        super().__init__(f"the JSON has more than {DEPTH_MAX} arrays and objects within each other")


def parse_json(text: str | bytes, *, parse_int: Callable[[str], Any] | None = None) -> Any:
    """The value of a document. Raises `ValueError`; `NestedTooDeep` is one, `RecursionError` is not.

    >>> parse_json('{"a": [1, 2]}')
    {'a': [1, 2]}
    >>> parse_json("[" * 100_000)
    Traceback (most recent call last):
    cormorant.rules.json_documents.NestedTooDeep: the JSON has more than 100 arrays and objects within each other
    """
    try:
        value = json.loads(text, parse_int=parse_int)
    except RecursionError:
        raise NestedTooDeep from None
    check_nesting(value)
    return value


def check_nesting(value: Any) -> None:
    """Raise `NestedTooDeep` for a value of JSON that goes too deep. Level by level: it does not call itself."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(DEPTH_MAX):
        if not level:
            return
        below = (each.values() if isinstance(each, dict) else each for each in level)
        level = [child for children in below for child in children if isinstance(child, (dict, list))]
    if level:
        raise NestedTooDeep


def text_of(item: Json, name: str) -> str:
    """A text; empty when there is none."""
    value = item.get(name)
    return value if isinstance(value, str) else ""


def number_of(item: Json, name: str, *, most: int = _NUMBER_MAX) -> int | None:
    """A whole number from 0 that a database can hold; None when there is none.

    >>> [number_of({"n": value}, "n") for value in (7, 7.9, -1, True, "7")]
    [7, 7, None, None, None]
    """
    value = item.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        return None
    return int(value)


def objects_of(item: Json, name: str) -> list[Json]:
    """The objects in a list; none when there is no list."""
    value = item.get(name)
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
