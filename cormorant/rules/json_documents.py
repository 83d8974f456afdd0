"""JSON from outside, with a limit on nesting: a document that goes deeper is refused like one that is broken."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

__all__ = ["DEPTH_MAX", "NestedTooDeep", "check_nesting", "parse_json"]

DEPTH_MAX: Final = 100
"""Arrays and objects within each other. Whatever copies, compares or prints a value calls itself for each."""


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
