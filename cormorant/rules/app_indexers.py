"""Which indexers of an app are ours, and what has to change there so that it searches through the gate?"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Final, Literal
from urllib.parse import urlsplit

from attrs import frozen

from cormorant.rules.web_addresses import normalised, web_address_problem

__all__ = [
    "COMBINED",
    "AppIndexer",
    "ConnectStep",
    "GateAddress",
    "GateEndpoint",
    "IndexerChange",
    "changes",
    "endpoints",
    "goes_direct",
]

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
