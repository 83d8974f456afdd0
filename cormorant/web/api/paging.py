"""Pages of lists, and numbers in addresses."""

from __future__ import annotations

from typing import Annotated, Final

from litestar.params import QueryParameter

__all__ = ["ID_MAX", "Before", "PageSize", "known_id"]

ID_MAX: Final = 2**63 - 1
"""The largest number that a database can hold."""

Before = Annotated[int | None, QueryParameter(ge=1, le=ID_MAX)]
"""The last number of the page before, in a list that begins with the newest."""
PageSize = Annotated[int, QueryParameter(ge=1, le=500)]


def known_id(number: int) -> int:
    """The number; 0, which nothing has, for one that no database can hold."""
    return number if 0 < number <= ID_MAX else 0
