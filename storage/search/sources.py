"""Source records: configured and added ones, caps."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from attrs import evolve, field, frozen
from sqlalchemy import Connection, text

from cormorant.rules.errors import AlreadyExists, ConflictError, NotFound
from cormorant.rules.search.limits import SourceLimits
from cormorant.rules.secrets import Secret
from storage.engine.columns import check_text, from_micros, to_micros
from storage.engine.statements import announce
from storage.search.source_rows import dump_limits, load_limits
from storage.search.source_states import CHANNEL
from storage.tables import SOURCES, RowCodec, excluded

CONFIGURED = "configured"
BY_COMMAND = "by command"


class AddressInUse(ConflictError):
    """A source with this address is there already under another name."""


class UnknownSource(NotFound):
    """There is no source of this name."""

    def __init__(self, name: str, known: Sequence[str] = ()) -> None:
        remedy = f"there are {', '.join(sorted(known))}" if known else "add it with `cormorant sources add`"
        super().__init__("source", name, remedy)
        self.name = name


class SourceOfOtherSettings(UnknownSource):
    """The source is in the settings of another process, which has its key."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.args = (f"{name!r} is a source of another settings file, which has its key; name that file with --config",)


@frozen(kw_only=True)
class SourceRecord:
    """A source as it is asked."""

    id: int = 0
    name: str
    identity: str
    kind: str
    url: str
    key: Secret = field(factory=lambda: Secret(""))
    proxy: Secret = field(factory=lambda: Secret(""))
    limits: SourceLimits = field(factory=SourceLimits)
    origin: str = BY_COMMAND


SOURCE = RowCodec(SOURCES, SourceRecord, also=("key", "proxy", "limits"))


def as_stored(source: SourceRecord) -> SourceRecord:
    """The source as the database has it: the settings file keeps the secrets of its own sources."""
    return evolve(source, key=Secret(""), proxy=Secret("")) if source.origin == CONFIGURED else source


def usable_sources(connection: Connection, configured: Sequence[SourceRecord]) -> list[SourceRecord]:
    """Sources that a process with these configured sources may ask, by name, with their secrets.

    A source of another process's settings is left out: its key is not known here, and a request without a key can cost the
    account.
    """
    own = {each.identity: each for each in configured}
    return [
        evolve(each, key=own[each.identity].key, proxy=own[each.identity].proxy) if each.identity in own else each
        for each in all_sources(connection)
        if each.origin != CONFIGURED or each.identity in own
    ]


def all_sources(connection: Connection) -> list[SourceRecord]:
    """Those that are in use, by name."""
    return [_record(row) for row in connection.execute(_ALL)]


def find(connection: Connection, name: str) -> SourceRecord:
    """One source, or `UnknownSource`."""
    row = connection.execute(_FIND, {"name": name}).one_or_none()
    if row is None:
        raise UnknownSource(name, [each.name for each in all_sources(connection)])
    return _record(row)


def by_identity(connection: Connection, identity: str) -> tuple[SourceRecord, bool] | None:
    """Whoever has this address, or had it last, and whether it was removed; None: nobody."""
    row = connection.execute(_BY_IDENTITY, {"identity": identity}).one_or_none()
    return None if row is None else (_record(row), bool(row.is_removed))


def add(connection: Connection, source: SourceRecord, *, now: datetime) -> SourceRecord:
    """Take a source in. One that was there before, under whatever name, goes on from what was spent."""
    if connection.execute(_FIND, {"name": source.name}).one_or_none() is not None:
        raise AlreadyExists("source", source.name)
    known = by_identity(connection, source.identity)
    if known is not None and not known[1]:
        raise AddressInUse(f"this address is in use already as {known[0].name!r}; one account has one source")
    return _put(connection, source, now=now)


def set_configured(connection: Connection, wanted: Sequence[SourceRecord], *, now: datetime) -> None:
    """Make the configured sources those of the settings file. Sources added by command are left alone."""
    connection.execute(_FORGET_SECRETS, {"origin": CONFIGURED})  # earlier versions stored them
    in_use = {each.identity: each for each in all_sources(connection)}
    for source in wanted:
        named = next((each for each in in_use.values() if each.name == source.name), None)
        if named is not None and named.identity != source.identity:
            _remove(connection, named.id, now)
            del in_use[named.identity]
    for source in wanted:
        there = in_use.get(source.identity)
        if there is None or as_stored(evolve(source, id=there.id, origin=CONFIGURED)) != there:
            _put(connection, evolve(source, origin=CONFIGURED), now=now)
    names = {source.identity for source in wanted}
    for identity, there in in_use.items():
        if there.origin == CONFIGURED and identity not in names:
            _remove(connection, there.id, now)


def change(connection: Connection, source: SourceRecord, *, now: datetime) -> SourceRecord:
    """Rename a source, or reach it differently. With another identity it is another account, and begins anew."""
    named = connection.execute(_FIND, {"name": source.name}).one_or_none()
    if named is not None and named.identity != source.identity:
        if named.id != source.id:
            raise AlreadyExists("source", source.name)
        _remove(connection, named.id, now)
    return _put(connection, source, now=now)


def remove(connection: Connection, name: str, *, now: datetime) -> None:
    """Ask a source no more. What was spent is kept, should it come back."""
    _remove(connection, find(connection, name).id, now)


def caps(connection: Connection, source_id: int) -> tuple[Any, datetime] | None:
    """What the source can do, as it last said, and when that was."""
    row = connection.execute(_CAPS, {"id": source_id}).one_or_none()
    return None if row is None or row.caps is None else (json.loads(row.caps), from_micros(row.caps_at))


def set_caps(connection: Connection, source_id: int, said: Any, *, now: datetime) -> None:
    """Keep what the source says it can do."""
    connection.execute(_SET_CAPS, {"id": source_id, "caps": json.dumps(said), "now": to_micros(now)})


def _put(connection: Connection, source: SourceRecord, *, now: datetime) -> SourceRecord:
    stored = as_stored(source)
    words = SOURCE.to_row(
        source,
        key=check_text(stored.key.reveal()),
        proxy=check_text(stored.proxy.reveal()),
        limits=dump_limits(source.limits),
        changed_at=to_micros(now),
    )
    source_id: int = connection.execute(_PUT, words).scalar_one()
    announce(connection, CHANNEL)
    return evolve(source, id=source_id)


def _remove(connection: Connection, source_id: int, now: datetime) -> None:
    connection.execute(_REMOVE, {"id": source_id, "now": to_micros(now)})
    announce(connection, CHANNEL)


def _record(row: Any) -> SourceRecord:
    return SOURCE.from_row(row, key=Secret(row.key), proxy=Secret(row.proxy), limits=load_limits(row.limits))


_ALL = text(f"SELECT {SOURCE.columns} FROM sources WHERE NOT is_removed ORDER BY name")
_FIND = text(f"SELECT {SOURCE.columns} FROM sources WHERE NOT is_removed AND name = :name")
_BY_IDENTITY = text(f"SELECT {SOURCE.columns}, is_removed FROM sources WHERE identity = :identity")
_WRITTEN = ("name", "kind", "url", "key", "proxy", "limits", "origin", "changed_at")
_PUT = text(f"""
    {SOURCE.insert("changed_at")} ON CONFLICT (identity) DO UPDATE SET {excluded(_WRITTEN)}, is_removed = false
    RETURNING id
""")
_REMOVE = text("UPDATE sources SET is_removed = true, changed_at = :now WHERE id = :id")
_FORGET_SECRETS = text("UPDATE sources SET key = '', proxy = '' WHERE origin = :origin AND (key <> '' OR proxy <> '')")
_CAPS = text("SELECT caps, caps_at FROM sources WHERE id = :id")
_SET_CAPS = text("UPDATE sources SET caps = :caps, caps_at = :now WHERE id = :id")
