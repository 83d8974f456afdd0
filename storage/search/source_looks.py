"""What can be found out about sources? Those of the settings file and those added by command, each as the database has it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from attrs import evolve
from sqlalchemy import Connection

from storage.search import sources
from storage.search.source_views import SourceView, look
from storage.search.sources import SourceOfOtherSettings, SourceRecord, UnknownSource

__all__ = ["look_at_all", "look_at_one", "take_in"]


def look_at_all(connection: Connection, configured: Sequence[SourceRecord], *, now: datetime) -> list[SourceView]:
    """Every source, by name."""
    return [look(connection, record, now=now) for record in _records(connection, configured)]


def look_at_one(connection: Connection, name: str, configured: Sequence[SourceRecord], *, now: datetime) -> SourceView:
    """One source, or `UnknownSource`."""
    return look(connection, _named(connection, name, configured), now=now)


def take_in(connection: Connection, name: str, configured: Sequence[SourceRecord], *, now: datetime) -> SourceRecord:
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
