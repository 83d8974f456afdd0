"""How is kept what a source can do? As plain values that JSON takes, in a fixed order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cormorant.rules.search.requests import KINDS, PAGE_SIZE_MAX, Caps, Category

__all__ = ["dump_caps", "load_caps"]


def dump_caps(caps: Caps) -> dict[str, Any]:
    """What a source can do, as plain values.

    >>> caps = Caps(title="Attic", searching={"tv": frozenset({"season", "q"})}, categories=(Category(id=5000, name="TV"),))
    >>> dump_caps(caps)["searching"], load_caps(dump_caps(caps)) == caps
    ({'tv': ['q', 'season']}, True)
    """
    return {
        "title": caps.title,
        "page_size": caps.page_size,
        "searching": {kind: sorted(caps.searching[kind]) for kind in KINDS if kind in caps.searching},
        "states_params": [kind for kind in KINDS if kind in caps.states_params],
        "categories": [_dump_category(category) for category in caps.categories],
    }


def load_caps(kept: Mapping[str, Any]) -> Caps:
    """What plain values mean. Kinds that this version does not know are left out."""
    offered = kept.get("searching", {})
    return Caps(
        title=kept.get("title", ""),
        page_size=kept.get("page_size", PAGE_SIZE_MAX),
        searching={kind: frozenset(offered[kind]) for kind in KINDS if kind in offered},
        states_params=frozenset(kind for kind in KINDS if kind in kept.get("states_params", ())),
        categories=_load_categories(kept.get("categories", ())),
    )


def _dump_category(category: Category) -> dict[str, Any]:
    return {
        "id": category.id,
        "name": category.name,
        "children": [_dump_category(child) for child in category.children],
    }


def _load_categories(kept: Iterable[Mapping[str, Any]]) -> tuple[Category, ...]:
    return tuple(
        Category(id=each["id"], name=each["name"], children=_load_categories(each["children"])) for each in kept
    )
