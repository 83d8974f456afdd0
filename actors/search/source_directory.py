"""SourceDirectory: the sources of a service by name, each with the address of its limiter."""

from __future__ import annotations

import trio
from attrs import define, field, frozen

from actors.actor import Address
from actors.environment import Environment
from actors.search.rate_limiter import LimiterMessage
from actors.search.source_requests import RequestsView, SourceRequests, SourceSnapshot
from storage.search.sources import SourceRecord, UnknownSource

MAILBOX_SPARE = 64
"""Room in the mailbox of a limiter beside the tickets and their withdrawals."""


@frozen(eq=False)
class SourceEntry:
    """A source: where its limiter is reached, and what readers see of it."""

    address: Address[LimiterMessage]
    requests: SourceRequests = field(repr=False)
    """The state of the address. Invariant: nothing but the limiter changes it."""

    @property
    def snapshot(self) -> SourceSnapshot:
        """The source as its limiter last published it."""
        return self.requests.snapshot

    @property
    def record(self) -> SourceRecord:
        """The settings that the limiter uses."""
        return self.requests.snapshot.record

    def view(self) -> RequestsView:
        """What runs and what waits now, as a copy."""
        return self.requests.view()


def entry_for(environment: Environment, record: SourceRecord) -> SourceEntry:
    """A source whose limiter is still to be started."""
    capacity = 2 * environment.settings.search.queue_max + MAILBOX_SPARE
    address = Address[LimiterMessage](f"rate_limiter:{record.name}", capacity=capacity, emit=environment.emit)
    return SourceEntry(address, SourceRequests(record=record))


@define(eq=False)
class SourceDirectory:
    """The sources of a service by name. Invariant: only the reconciler changes it."""

    by_name: dict[str, SourceEntry] = field(factory=dict)
    loaded: trio.Event = field(factory=trio.Event)
    """Set once the sources are known: a search right after the start must not miss them."""

    def record_of(self, name: str) -> SourceRecord | None:
        """The settings of a source; None: there is none."""
        entry = self.by_name.get(name)
        return None if entry is None else entry.record

    def records(self) -> tuple[SourceRecord, ...]:
        """The settings of all sources."""
        return tuple(entry.record for entry in self.by_name.values())

    def find(self, name: str) -> SourceEntry:
        """A source, or `UnknownSource`."""
        entry = self.by_name.get(name)
        if entry is None:
            raise UnknownSource(name, list(self.by_name))
        return entry
