"""What can be found out about sources? Those of the settings file and those added by command, each as the database has it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, tzinfo

from attrs import evolve, frozen
from sqlalchemy import Connection

from cormorant.rules.gates import Explanation, explain
from cormorant.rules.limits import Lane, SourceLimits
from cormorant.rules.priorities import Priority
from cormorant.rules.windows import Window, counts_since, windows_of
from storage import source_reports, source_states, sources
from storage.source_states import Known
from storage.sources import CONFIGURED, SourceRecord, UnknownSource

__all__ = ["SourceLook", "Spent", "look_at_all", "look_at_one", "take_in"]

_HOUR = timedelta(hours=1)
_DAY = timedelta(days=1)


@frozen(kw_only=True)
class Spent:
    """How much of one limit is used up."""

    lane: Lane
    window: Window
    count: int
    since: datetime


@frozen(kw_only=True)
class SourceLook:
    """A source at one moment."""

    now: datetime
    record: SourceRecord
    known: Known
    spent: tuple[Spent, ...]
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
        return explain(
            self.known.state,
            self.limits,
            lane=lane,
            priority=priority,
            now=self.now,
            edges=self.known.edges[lane],
            zone=zone,
        )


def look_at_all(connection: Connection, configured: Sequence[SourceRecord], *, now: datetime) -> list[SourceLook]:
    """Every source, by name."""
    return [_look(connection, record, now) for record in _records(connection, configured)]


def look_at_one(connection: Connection, name: str, configured: Sequence[SourceRecord], *, now: datetime) -> SourceLook:
    """One source, or `UnknownSource`."""
    return _look(connection, _named(connection, name, configured), now)


def take_in(connection: Connection, name: str, configured: Sequence[SourceRecord], *, now: datetime) -> SourceRecord:
    """One source as it is to be asked. One of the settings file that no service has taken in yet gets its row here."""
    record = _named(connection, name, configured)
    stored = {each.name: each for each in sources.all_sources(connection)}
    there = stored.get(name)
    if there == record:
        return record
    if there is not None and there.identity != record.identity:
        sources.remove(connection, name, now=now)
    return sources.change(connection, record, now=now)


def _records(connection: Connection, configured: Sequence[SourceRecord]) -> list[SourceRecord]:
    """Invariant: the settings file wins, as it does when a service starts."""
    names, identities = {each.name for each in configured}, {each.identity for each in configured}
    others = [
        each for each in sources.all_sources(connection) if each.name not in names and each.identity not in identities
    ]
    ours = [evolve(each, id=_id_of(connection, each)) for each in configured]
    return sorted([*ours, *others], key=lambda each: each.name)


def _id_of(connection: Connection, record: SourceRecord) -> int:
    known = sources.by_identity(connection, record.identity)
    return 0 if known is None else known[0].id


def _named(connection: Connection, name: str, configured: Sequence[SourceRecord]) -> SourceRecord:
    records = {each.name: each for each in _records(connection, configured)}
    if name not in records:
        raise UnknownSource(name, list(records))
    return records[name]


def _look(connection: Connection, record: SourceRecord, now: datetime) -> SourceLook:
    known = source_states.look(connection, record.id, configured=record.limits)
    limits = known.limits
    spent = []
    for lane in Lane:
        for window in windows_of(limits, lane, Priority.INTERACTIVE):
            since = counts_since(window, now=now)
            count = source_reports.spent(connection, record.id, lane, since=since)
            spent.append(Spent(lane=lane, window=window, count=count, since=since))
    return SourceLook(
        now=now,
        record=record,
        known=known,
        spent=tuple(spent),
        queries_this_hour=source_reports.spent(connection, record.id, Lane.QUERY, since=now - _HOUR),
        queries_today=source_reports.spent(connection, record.id, Lane.QUERY, since=now - _DAY),
        caps_at=source_reports.caps_at(connection, record.id),
    )
