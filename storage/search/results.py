"""How are finds kept? As JSON that gives back exactly what was found."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import attrs

from cormorant.rules.search.requests import Result

_NAMES = frozenset(each.name for each in attrs.fields(Result))
_USUAL = {each.name: each.default for each in attrs.fields(Result) if each.default is not attrs.NOTHING}


def dump_results(results: Sequence[Result]) -> str:
    """Finds as text."""
    return json.dumps([_plain(result) for result in results])


def load_results(written: str) -> list[Result]:
    """The finds that a text means."""
    return [_result(plain) for plain in json.loads(written)]


def _plain(result: Result) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for each in attrs.fields(Result):
        value = getattr(result, each.name)
        if each.name in _USUAL and value == _USUAL[each.name]:
            continue
        plain[each.name] = _value(value)
    return plain


def _value(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, tuple | str | int | float) or value is None:
        return value
    return {name: list(values) for name, values in value.items()}


def _result(plain: dict[str, Any]) -> Result:
    values = {name: value for name, value in plain.items() if name in _NAMES}
    if values.get("published") is not None:
        values["published"] = datetime.fromisoformat(values["published"])
    values["categories"] = tuple(values.get("categories", ()))
    values["attributes"] = {name: tuple(each) for name, each in values.get("attributes", {}).items()}
    return Result(**values)
