"""One source for display: state, spend per window and client, explanation."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

from attrs import evolve, frozen
from sqlalchemy import Connection, text

from cormorant.rules.search.limits import Lane, SourceLimits, Window, counts_since, windows_of
from cormorant.rules.search.priorities import Priority
from cormorant.rules.search.reasons import Explanation, NextRequest, explain
from cormorant.rules.search.source_state import SourceState
from storage.engine.columns import maybe_from_micros, to_micros
from storage.search import source_states, sources
from storage.search.source_states import KnownState
from storage.search.sources import CONFIGURED, SourceOfOtherSettings, SourceRecord, UnknownSource

_HOUR = timedelta(hours=1)
_DAY = timedelta(days=1)


@frozen(kw_only=True)
class WindowSpend:
    """How much of one limit is used up."""

    lane: Lane
    window: Window
    count: int
    since: datetime


@frozen(kw_only=True)
class SourceView:
    """A source at one moment."""

    now: datetime
    record: SourceRecord
    known: KnownState
    spent: tuple[WindowSpend, ...]
    """Of every limit that holds, queries first, the narrowest first."""
    queries_this_hour: int
    """In the last 60 minutes, whether that is limited or not."""
    queries_today: int
    """In the last 24 hours, likewise."""
    caps_at: datetime | None

    @property
    def limits(self) -> SourceLimits:
        """What holds: of what is configured and what was learned, the stricter."""
        return self.known.limits

    @property
    def is_configured(self) -> bool:
        """Whether it is a source of the settings file."""
        return self.record.origin == CONFIGURED

    def explain(self, priority: Priority, lane: Lane = Lane.QUERY, *, zone: tzinfo = UTC) -> Explanation:
        """Why a request submitted now would wait."""
        request, edges = NextRequest(lane=lane, priority=priority), self.known.edges[lane]
        return explain(self.known.state, self.limits, request, now=self.now, edges=edges, zone=zone)


def read_view(connection: Connection, record: SourceRecord, *, now: datetime) -> SourceView:
    """A source as the database has it."""
    known = source_states.read(connection, record.id, configured=record.limits)
    return SourceView(
        now=now,
        record=record,
        known=known,
        spent=tuple(spent_of_limits(connection, record.id, known, now=now)),
        queries_this_hour=spent_since(connection, record.id, Lane.QUERY, since=now - _HOUR),
        queries_today=spent_since(connection, record.id, Lane.QUERY, since=now - _DAY),
        caps_at=caps_at(connection, record.id),
    )


def spent_of_limits(
    connection: Connection, source_id: int, known: KnownState, *, now: datetime, is_capped: bool = False
) -> Iterator[WindowSpend]:
    """How much of every limit is used up. If `is_capped`, the count ends at the limit, however many were made before."""
    for lane in Lane:
        for window in windows_of(known.limits, lane, Priority.INTERACTIVE):
            since = counts_since(window, now=now)
            after = known.state.lane(lane).last_seq - window.whole if is_capped else 0
            count = spent_since(connection, source_id, lane, since=since, after=after)
            yield WindowSpend(lane=lane, window=window, count=count, since=since)


def spent_since(connection: Connection, source_id: int, lane: Lane, *, since: datetime, after: int = 0) -> int:
    """How many requests were made in a lane after a moment. Those up to the number `after` are not looked at."""
    words = {"source_id": source_id, "lane": lane.value, "since": to_micros(since), "after": after}
    count: int = connection.execute(_SPENT, words).scalar_one()
    return count


def caps_at(connection: Connection, source_id: int) -> datetime | None:
    """When the source last said what it can do; None: never."""
    at = connection.execute(_CAPS_AT, {"id": source_id}).scalar_one_or_none()
    return maybe_from_micros(at)


def read_all(connection: Connection, configured: Sequence[SourceRecord], *, now: datetime) -> list[SourceView]:
    """Every source, by name."""
    return [read_view(connection, record, now=now) for record in _records(connection, configured)]


def read_one(connection: Connection, name: str, configured: Sequence[SourceRecord], *, now: datetime) -> SourceView:
    """One source, or `UnknownSource`."""
    return read_view(connection, _named(connection, name, configured), now=now)


def add_source(connection: Connection, record: SourceRecord, *, now: datetime) -> bool:
    """Add a source. Returns whether it was there before; then new credentials end the stop that refused ones caused."""
    former = sources.by_identity(connection, record.identity)
    added = sources.add(connection, record, now=now)
    if former is not None:
        _accept_new_key(connection, former[0], added)
    return former is not None


def change_state(
    connection: Connection,
    name: str,
    rule: Callable[[SourceState], SourceState],
    configured: Sequence[SourceRecord],
    *,
    now: datetime,
) -> None:
    """Apply a rule to the state of a source, such as a pause."""
    record = upsert_configured(connection, name, configured, now=now)
    source_states.change(connection, record.id, rule, configured=record.limits)


Rows = Mapping[str, tuple[SourceRecord, bool]]
"""Sources by identity, and whether they were removed."""


@frozen(kw_only=True)
class SourceChange:
    """A source to add, or to change if `is_update`; `former` is what is known of its identity."""

    record: SourceRecord
    former: SourceRecord | None
    is_update: bool


def known_rows(connection: Connection, identities: Sequence[str]) -> Rows:
    """All sources, and those that were removed and have one of these identities."""
    found = {identity: sources.by_identity(connection, identity) for identity in identities}
    in_use = {each.identity: (each, False) for each in sources.all_sources(connection)}
    return {identity: row for identity, row in found.items() if row is not None} | in_use


def apply_changes(
    connection: Connection,
    identities: Sequence[str],
    decide: Callable[[Rows], Sequence[SourceChange]],
    *,
    now: datetime,
) -> Rows:
    """Carry out the changes that `decide` derives from the known sources. Returns the sources as they were before."""
    rows = known_rows(connection, identities)
    for each in decide(rows):
        put = sources.change if each.is_update else sources.add
        stored = put(connection, each.record, now=now)
        if each.former is not None:
            _accept_new_key(connection, each.former, stored)
    return rows


def _accept_new_key(connection: Connection, former: SourceRecord, record: SourceRecord) -> None:
    if former.key != record.key:
        # The source waits for new credentials, and these are new.
        source_states.change(
            connection, record.id, lambda state: evolve(state, stopped_because=None), configured=record.limits
        )


@frozen(kw_only=True)
class StoredSource:
    """A source with its stored caps, if it has stated them, and whether it is stopped."""

    record: SourceRecord
    caps: Any = None
    is_stopped: bool = False


def stored_sources(
    connection: Connection, configured: Sequence[SourceRecord], kinds: Collection[str]
) -> list[StoredSource]:
    """The configured sources and the usable stored ones of these kinds, by name."""
    return [_stored(connection, each) for each in _records(connection, configured) if each.kind in kinds]


def _stored(connection: Connection, record: SourceRecord) -> StoredSource:
    kept = sources.caps(connection, record.id)
    state = source_states.read(connection, record.id, configured=record.limits).state
    return StoredSource(
        record=record, caps=None if kept is None else kept[0], is_stopped=state.stopped_because is not None
    )


def upsert_configured(
    connection: Connection, name: str, configured: Sequence[SourceRecord], *, now: datetime
) -> SourceRecord:
    """One source as it is to be asked. One of the settings file that no service has taken in yet gets its row here."""
    record = _named(connection, name, configured)
    stored = {each.name: each for each in sources.all_sources(connection)}
    there = stored.get(name)
    if there == sources.as_stored(record):
        return record
    if there is not None and there.identity != record.identity:
        sources.remove(connection, name, now=now)
    return sources.change(connection, record, now=now)


def _records(connection: Connection, configured: Sequence[SourceRecord]) -> list[SourceRecord]:
    """Invariant: the settings file wins, as it does when a service starts."""
    names, identities = {each.name for each in configured}, {each.identity for each in configured}
    usable = sources.usable_sources(connection, configured)
    others = [each for each in usable if each.name not in names and each.identity not in identities]
    ours = [evolve(each, id=_id_of(connection, each)) for each in configured]
    return sorted([*ours, *others], key=lambda each: each.name)


def _id_of(connection: Connection, record: SourceRecord) -> int:
    known = sources.by_identity(connection, record.identity)
    return 0 if known is None else known[0].id


def _named(connection: Connection, name: str, configured: Sequence[SourceRecord]) -> SourceRecord:
    records = {each.name: each for each in _records(connection, configured)}
    if name not in records:
        if any(each.name == name for each in sources.all_sources(connection)):
            raise SourceOfOtherSettings(name)
        raise UnknownSource(name, list(records))
    return records[name]


_SPENT = text("""
    SELECT count(*) FROM source_requests
    WHERE source_id = :source_id AND lane = :lane AND seq > :after AND at > :since
""")
_CAPS_AT = text("SELECT caps_at FROM sources WHERE id = :id")
