"""Caps to JSON and back, merged and default caps, categories."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from cormorant.rules.search.requests import KINDS, PAGE_SIZE_MAX, Caps, Category, Result

_PRIVATE: Final = 100_000
"""From here on categories are a site's own."""
_GROUP: Final = 1_000
_DIGITS_MAX: Final = 9


def _group(number: int, name: str, *below: tuple[int, str]) -> Category:
    children = tuple(Category(id=each, name=f"{name}/{title}") for each, title in below)
    return Category(id=number, name=name, children=children)


_CATEGORIES: Final = (
    _group(1000, "Console"),
    _group(2000, "Movies", (2010, "Foreign"), (2020, "Other"), (2030, "SD"), (2040, "HD"), (2045, "UHD"), (2050, "BluRay"),
           (2060, "3D"), (2070, "DVD"), (2080, "WEB-DL")),
    _group(3000, "Audio", (3010, "MP3"), (3020, "Video"), (3030, "Audiobook"), (3040, "Lossless"), (3050, "Other")),
    _group(4000, "PC", (4050, "Games")),
    _group(5000, "TV", (5010, "WEB-DL"), (5020, "Foreign"), (5030, "SD"), (5040, "HD"), (5045, "UHD"), (5050, "Other"),
           (5060, "Sport"), (5070, "Anime"), (5080, "Documentary")),
    _group(7000, "Books", (7010, "Mags"), (7020, "EBook"), (7030, "Comics")),
    _group(8000, "Other"),
)  # fmt: skip

DEFAULT_CAPS: Final = Caps(
    searching={
        "search": frozenset({"q"}),
        "tv": frozenset({"q", "season", "ep"}),
        "movie": frozenset({"q"}),
        "music": frozenset({"q"}),
        "book": frozenset({"q"}),
    },
    states_params=frozenset(KINDS),
    categories=_CATEGORIES,
)
"""What is safe to say of a source that was never asked: words, seasons and episodes. Ids would be ignored by some."""


def merged_caps(each: Sequence[Caps]) -> Caps:
    """What all sources together can do: every kind that one of them offers, with the parameters that all of those take.

    >>> one, two = (Caps(searching={"tv": frozenset({"q", more})}) for more in ("tvdbid", "rid"))
    >>> merged_caps([one, two]).searching
    {'tv': frozenset({'q'})}
    """
    if not each:
        return DEFAULT_CAPS
    searching = {
        kind: frozenset.intersection(*(caps.searching[kind] for caps in each if kind in caps.searching))
        for kind in KINDS
        if any(kind in caps.searching for caps in each)
    }
    return Caps(
        page_size=min(caps.page_size for caps in each),
        searching=searching,
        states_params=frozenset(searching),
        categories=_merged(category for caps in each for category in caps.categories),
    )


def _merged(categories: Iterable[Category]) -> tuple[Category, ...]:
    names: dict[int, str] = {}
    children: dict[int, dict[int, Category]] = {}
    for each in categories:
        names.setdefault(each.id, each.name)
        children.setdefault(each.id, {}).update((one.id, one) for one in each.children)
    return tuple(
        Category(id=number, name=names[number], children=tuple(children[number].values())) for number in sorted(names)
    )


def is_wanted(result: Result, categories: Sequence[int]) -> bool:
    """Whether a find of a shared page is of one of these categories. One that says nothing a stranger can read is.

    >>> tv = Result(title="x", guid="x", link="x", protocol="torrent", categories=("5040", "100321"))
    >>> [is_wanted(tv, wanted) for wanted in ([], [5040], [5000], [5030], [3000, 5000])]
    [True, True, True, False, True]
    """
    return are_wanted(category_numbers(result.categories), categories)


def category_numbers(stated: Iterable[str]) -> frozenset[int]:
    """The categories that are numbers.

    >>> sorted(category_numbers(["5040", "TV > HD", "12345678901"]))
    [5040]
    """
    return frozenset(int(text) for text in stated if text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX)


def are_wanted(stated: frozenset[int], categories: Collection[int]) -> bool:
    """The same for the categories of a find."""
    standard = {number for number in stated if number < _PRIVATE}
    if not categories or not standard:
        return True
    asked = set(categories)
    groups = {number for number in asked if number % _GROUP == 0}
    whole_groups = {number for number in standard if number % _GROUP == 0}
    are_only_groups = standard == whole_groups
    return bool(
        asked & stated
        or any(number - number % _GROUP in groups for number in standard)
        or (are_only_groups and any(number - number % _GROUP in whole_groups for number in asked))
    )


def may_support(caps: Caps, categories: Collection[int]) -> bool:
    """Whether a source with these abilities may ever have something in one of these categories.

    >>> audio = Caps(categories=(_group(3000, "Audio", (3010, "MP3")),))
    >>> [may_support(audio, wanted) for wanted in ([], [3010], [3040], [3000], [2000, 2010])]
    [True, True, True, True, False]
    >>> may_support(Caps(), [2000])
    True
    """
    offered = {each.id for group in caps.categories for each in (group, *group.children)}
    groups = {number - number % _GROUP for number in offered if number < _PRIVATE}
    return (
        not categories
        or not offered
        or any(number in offered or number - number % _GROUP in groups for number in categories)
    )


def dump_caps(caps: Caps) -> dict[str, Any]:
    """What a source can do, as plain values.

    >>> caps = Caps(title="Attic", searching={"tv": frozenset({"season", "q"})}, categories=(Category(id=5000, name="TV"),))
    >>> dump_caps(caps)["searching"], load_caps(dump_caps(caps)) == caps
    ({'tv': ['q', 'season']}, True)
    >>> load_caps(dump_caps(DEFAULT_CAPS)) == DEFAULT_CAPS
    True
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
        categories=tuple(map(_load_category, kept.get("categories", ()))),
    )


def _dump_category(category: Category) -> dict[str, Any]:
    return {
        "id": category.id,
        "name": category.name,
        "children": [_dump_category(child) for child in category.children],
    }


def _load_category(kept: Mapping[str, Any]) -> Category:
    return Category(id=kept["id"], name=kept["name"], children=tuple(map(_load_category, kept["children"])))
