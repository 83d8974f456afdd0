"""Plans of an import from Prowlarr or Jackett and of our endpoints in an app."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final, Literal
from urllib.parse import urlsplit

from attrs import evolve, frozen

from cormorant.rules.addresses import normalised, web_address_problem
from cormorant.rules.settings.fields import name_problem
from cormorant.rules.settings.sources import RESERVED_NAMES

COMBINED: Final = "combined"
_OURS: Final = "Cormorant"
_GATE_PATH: Final = re.compile(r"\A.*/gate/([a-z][a-z0-9_-]{0,39})/?")
_NAMES_MAX: Final = 1_000

Implementation = Literal["Torznab", "Newznab"]


@frozen(kw_only=True)
class AppIndexer:
    """An indexer as the app has it."""

    id: int
    name: str
    implementation: str
    url: str
    is_enabled: bool = True


@frozen(kw_only=True)
class GateEndpoint:
    """An indexer as the app shall have it: a source of ours, or all of them together."""

    source: str
    implementation: Implementation
    url: str
    name: str


@frozen
class GateAddress:
    """Where the app reaches us."""

    address: str

    def url_of(self, source: str) -> str:
        """The address of a source there."""
        return f"{self.address.rstrip('/')}/gate/{source}"

    def source_of(self, entry: AppIndexer) -> str | None:
        """The source that an entry of ours leads to; None: it is not ours.

        Keys come back masked, so address and name have to tell. An address that is no longer ours counts with our name.

        >>> gate = GateAddress("http://cormorant:7979")
        >>> entry = AppIndexer(id=1, name="Cormorant: attic", implementation="Torznab", url="http://old:7979/gate/attic/")
        >>> gate.source_of(entry), gate.source_of(AppIndexer(id=2, name="Mine", implementation="Torznab", url=entry.url))
        ('attic', None)
        """
        if web_address_problem(entry.url):
            return None
        found = _GATE_PATH.fullmatch(urlsplit(entry.url).path)
        if found is None:
            return None
        is_here = normalised(entry.url) == normalised(self.url_of(found[1]))
        return found[1] if is_here or entry.name.startswith(_OURS) else None


def endpoints(gate: GateAddress, kinds: Iterable[tuple[str, str]], *, is_combined: bool) -> list[GateEndpoint]:
    """What the app shall have for these sources, each with its kind."""
    pairs = list(kinds)
    if not is_combined:
        return [
            GateEndpoint(
                source=name, implementation=_implementation(kind), url=gate.url_of(name), name=f"{_OURS}: {name}"
            )
            for name, kind in pairs
        ]
    found = dict.fromkeys(_implementation(kind) for _, kind in pairs)
    url = gate.url_of(COMBINED)
    return [
        GateEndpoint(
            source=COMBINED,
            implementation=each,
            url=url,
            name=_OURS if len(found) == 1 or each == "Torznab" else f"{_OURS} (Usenet)",
        )
        for each in found
    ]


def _implementation(kind: str) -> Implementation:
    return "Newznab" if kind == "newznab" else "Torznab"


class ConnectStep(StrEnum):
    """What is done about an indexer of the app."""

    ADD = "add"
    UPDATE = "update"
    REMOVE = "remove"


@frozen(kw_only=True)
class IndexerChange:
    """One thing to do in the app. `entry` is what is there, `endpoint` what shall be."""

    step: ConnectStep
    name: str
    source: str
    endpoint: GateEndpoint | None = None
    entry: AppIndexer | None = None


def changes(
    gate: GateAddress, entries: Sequence[AppIndexer], wanted: Sequence[GateEndpoint], *, known: Iterable[str]
) -> Iterator[IndexerChange]:
    """What has to be done. Entries of ours that lead to none of the `known` sources, or twice to one, go away."""
    ours = [(entry, source) for entry in entries if (source := gate.source_of(entry)) is not None]
    used: set[int] = set()
    names = {entry.name for entry in entries}
    for endpoint in wanted:
        there = next((e for e, source in ours if _leads_to(e, source, endpoint) and e.id not in used), None)
        if there is not None:
            used.add(there.id)
            yield IndexerChange(
                step=ConnectStep.UPDATE, name=there.name, source=endpoint.source, endpoint=endpoint, entry=there
            )
        else:
            name = _free(endpoint.name, names)
            names.add(name)
            yield IndexerChange(step=ConnectStep.ADD, name=name, source=endpoint.source, endpoint=endpoint)
    served = {(endpoint.source, endpoint.implementation) for endpoint in wanted}
    in_use = set(known)
    for entry, source in ours:
        is_spare = source not in in_use or (source, entry.implementation) in served
        if entry.id not in used and is_spare:
            yield IndexerChange(step=ConnectStep.REMOVE, name=entry.name, source=source, entry=entry)


def _leads_to(entry: AppIndexer, source: str, endpoint: GateEndpoint) -> bool:
    return source == endpoint.source and entry.implementation == endpoint.implementation


def _free(name: str, taken: set[str]) -> str:
    """A name that the app has not given yet.

    >>> _free("Cormorant", {"Cormorant", "Cormorant 2"})
    'Cormorant 3'
    """
    numbered = (f"{name} {number}" for number in range(2, _NAMES_MAX))
    return name if name not in taken else next(each for each in numbered if each not in taken)


def goes_direct(gate: GateAddress, entries: Iterable[AppIndexer]) -> list[str]:
    """The indexers that the app still asks without us."""
    return sorted(entry.name for entry in entries if entry.is_enabled and gate.source_of(entry) is None)


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


CHANGES: Final = frozenset({ImportStep.ADD, ImportStep.RETURN, ImportStep.UPDATE})
"""The steps that change a source."""


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
