"""Makes a view (what the API, JSON and text show) from the object it shows, and pages of views."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any, TypeVar

import attrs

V = TypeVar("V")


def view_of(view: type[V], shown: object, **named: Any) -> V:
    """A view whose fields are attributes of the same name of `shown`. `named` gives the fields that differ.

    A view is a list of what may be seen: an attribute that the view does not name is never shown.

    >>> Point = attrs.make_class("Point", ["x", "y", "secret"])
    >>> Place = attrs.make_class("Place", ["x", "north"])
    >>> point = Point(x=(1, 2), y=3, secret="key")
    >>> view_of(Place, point, north=point.y)
    Place(x=[1, 2], north=3)
    """
    names = [each.name for each in attrs.fields(view) if each.name not in named]  # type: ignore[arg-type]  # an attrs class
    return view(**named, **{name: _plain(getattr(shown, name)) for name in names})


def _plain(value: Any) -> Any:
    """A value as JSON has it: an enum is its value, a tuple is a list."""
    if isinstance(value, Enum):
        return value.value
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


def next_page(found: Sequence[Any], limit: int) -> int | None:
    """The number that the next page begins after; None: there is no next page.

    >>> Row = attrs.make_class("Row", ["id"])
    >>> next_page([Row(9), Row(7)], 2), next_page([Row(9)], 2)
    (7, None)
    """
    return found[-1].id if len(found) == limit else None
