"""Which sources come of the indexers of another program? New ones, known ones brought up to date, and never one twice."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Final, Literal

from attrs import evolve, frozen

from cormorant.rules.settings.fields import name_problem
from cormorant.rules.settings.sources import RESERVED_NAMES
from cormorant.rules.web_addresses import normalised

__all__ = ["ImportAction", "ImportStep", "KnownSource", "OfferedIndexer", "plan", "source_name"]

_LENGTH_MAX: Final = 40
_FOREIGN: Final = re.compile(r"[^a-z0-9]+")


@frozen(kw_only=True)
class OfferedIndexer:
    """An indexer as the other program tells of it. `url` is the program's own, not the site's."""

    title: str
    url: str
    kind: Literal["torznab", "newznab"]
    is_private: bool
    is_enabled: bool = True


@frozen(kw_only=True)
class KnownSource:
    """A source that has, or had, this address."""

    name: str
    is_removed: bool = False
    is_configured: bool = False
    has_same_key: bool = True
    kind: str = "torznab"


class ImportStep(StrEnum):
    """What is done about an indexer."""

    ADD = "add"
    RETURN = "add again"
    """It was a source before; what was spent there still counts."""
    UPDATE = "update"
    KEEP = "keep"
    """It is a source already, and nothing has changed."""
    SKIP = "skip"


@frozen(kw_only=True)
class ImportAction:
    """What is to be done about one indexer, and why."""

    offered: OfferedIndexer
    name: str
    step: ImportStep
    limits: str | None
    """The name of the limits that it gets; None: those that it has."""
    why: str = ""


def plan(
    offered: Iterable[OfferedIndexer],
    known: Mapping[str, KnownSource],
    *,
    taken: Iterable[str],
    limits: str | None = None,
) -> list[ImportAction]:
    """What is to be done about each. `known` are sources by identity, `taken` the names in use, `limits` those for all."""
    names = set(taken)
    adoptions = []
    for each in offered:
        adoption = _step(each, known.get(normalised(each.url)), limits)
        if adoption.step in {ImportStep.ADD, ImportStep.RETURN}:
            adoption = evolve(adoption, name=source_name(adoption.name, names))
            names.add(adoption.name)
        adoptions.append(adoption)
    return adoptions


def _step(each: OfferedIndexer, known: KnownSource | None, limits: str | None) -> ImportAction:
    preset = limits or ("private" if each.is_private else "default")
    name = each.title if known is None else known.name
    step, why = ImportStep.ADD, ""
    if known is not None and known.is_configured:
        step, why = ImportStep.SKIP, "it stands in the settings file, which is not changed"
    elif not each.is_enabled:
        step, why = ImportStep.SKIP, "it is switched off there"
    elif known is not None and known.is_removed:
        step, why = ImportStep.RETURN, "it was here before, what was spent still counts"
    elif known is not None:
        changes = list(_changes(each, known, limits))
        step, why = (ImportStep.UPDATE, " and ".join(changes)) if changes else (ImportStep.KEEP, "nothing has changed")
    is_kept = step in {ImportStep.KEEP, ImportStep.SKIP} or (step is ImportStep.UPDATE and limits is None)
    return ImportAction(offered=each, name=name, step=step, limits=None if is_kept else preset, why=why)


def _changes(each: OfferedIndexer, known: KnownSource, limits: str | None) -> Iterator[str]:
    if not known.has_same_key:
        yield "another key"
    if known.kind != each.kind:
        yield f"it is {each.kind} now"
    if limits is not None:
        yield f"the limits {limits}"


def source_name(title: str, taken: Iterable[str] = ()) -> str:
    """A name for a source that is called so elsewhere, unlike all that are taken.

    >>> source_name("The Attic (API)"), source_name("1337x", ["x1337x"]), source_name("All")
    ('the-attic-api', 'x1337x-2', 'all-2')
    """
    plain = _FOREIGN.sub("-", title.lower()).strip("-") or "source"
    base = (plain if plain[0].isalpha() else f"x{plain}")[:_LENGTH_MAX].rstrip("-")
    # Where a `-` is written `_`, two names must not become one.
    known = {name.replace("_", "-") for name in taken}
    return next(name for name in _numbered(base) if name not in known and not name_problem(name, RESERVED_NAMES))


def _numbered(base: str) -> Iterator[str]:
    yield base
    for number in range(2, 10_000):
        ending = f"-{number}"
        yield f"{base[: _LENGTH_MAX - len(ending)]}{ending}"
