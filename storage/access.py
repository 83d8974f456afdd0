"""Client apps added by command, their spend, and ended browser sessions."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from attrs import frozen
from sqlalchemy import Connection, text

from cormorant.rules.errors import AlreadyExists, NotFound
from cormorant.rules.settings.service import ClientSettings
from storage.engine.columns import check_text, to_micros
from storage.tables import GATE_CLIENTS, RowCodec

_DAY = timedelta(days=1)


@frozen(kw_only=True)
class ClientRecord:
    """An app that was added by command."""

    name: str
    settings: ClientSettings
    """Without the key: nobody has it but the app."""
    key_digest: str
    added_at: datetime


@frozen(kw_only=True)
class ClientSpend:
    """What one app has spent at one source."""

    consumer: str
    source: str
    queries: int
    grabs: int


@frozen(kw_only=True)
class ClientSourceView:
    """What an app has spent at one source in the last 24 hours."""

    source: str
    queries_today: int
    grabs_today: int


@frozen(kw_only=True)
class ClientAppView:
    """An app that searches through the gate. One `from_file` is changed in the settings file."""

    name: str
    priority: str
    share: float
    hold_s: float
    from_file: bool
    queries_today: int
    grabs_today: int
    sources: tuple[ClientSourceView, ...]


def digest_of(key: str) -> str:
    """What is kept of a key. It is made of 256 random bits, so that nothing slower is needed to keep it safe."""
    return hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()


def read_clients(
    connection: Connection, configured: Mapping[str, ClientSettings], *, now: datetime
) -> list[ClientAppView]:
    """Every app, by name. Where both have a name, the settings file wins, as it does at the gate."""
    spending = spent(connection, since=now - _DAY)
    known = {each.name: each.settings for each in all_clients(connection)} | dict(configured)
    return [
        _view(name, settings, [each for each in spending if each.consumer == name], from_file=name in configured)
        for name, settings in sorted(known.items())
    ]


def _view(name: str, settings: ClientSettings, own: Sequence[ClientSpend], *, from_file: bool) -> ClientAppView:
    return ClientAppView(
        name=name,
        priority=settings.priority,
        share=settings.share,
        hold_s=settings.hold_s,
        from_file=from_file,
        queries_today=sum(each.queries for each in own),
        grabs_today=sum(each.grabs for each in own),
        sources=tuple(
            ClientSourceView(source=each.source, queries_today=each.queries, grabs_today=each.grabs) for each in own
        ),
    )


def all_clients(connection: Connection) -> list[ClientRecord]:
    """Those that were added by command, by name."""
    return [
        _CLIENT.from_row(row, settings=ClientSettings(priority=row.priority, hold_s=row.hold_s, share=row.share))
        for row in connection.execute(_ALL)
    ]


def add(connection: Connection, client: ClientRecord) -> None:
    """Take an app in, or `AlreadyExists`."""
    chosen = client.settings
    row = _CLIENT.to_row(client, priority=chosen.priority, hold_s=chosen.hold_s, share=chosen.share)
    if not connection.execute(_ADD, row).rowcount:
        raise AlreadyExists("client", client.name)


def add_same(connection: Connection, client: ClientRecord) -> None:
    """As `add`; a client that is there with the same key stays as it is."""
    there = next((each for each in all_clients(connection) if each.name == client.name), None)
    if there is None or there.key_digest != client.key_digest:
        add(connection, client)


def remove(connection: Connection, name: str) -> None:
    """Let an app in no more, or `NotFound`. What it spent stays spent."""
    if not connection.execute(_REMOVE, {"name": name}).rowcount:
        known = sorted(each.name for each in all_clients(connection))
        remedy = f"there are {', '.join(known)}" if known else "add it with `cormorant clients add`"
        raise NotFound("client", name, remedy)


def spent(connection: Connection, *, since: datetime) -> list[ClientSpend]:
    """What everybody has spent at each source after a moment, by name."""
    return [
        ClientSpend(consumer=row.consumer, source=row.source, queries=row.queries, grabs=row.grabs)
        for row in connection.execute(_SPENT, {"since": to_micros(since)})
    ]


KEPT_MAX = 10_000
"""So many are looked at, the latest first."""


def end_session(connection: Connection, ended: Mapping[str, datetime], *, now: datetime) -> None:
    """Remember sessions by number, each until its time would have been over, and forget those whose time is."""
    connection.execute(_PRUNE, {"now": to_micros(now)})
    for number, expires_at in sorted(ended.items()):
        name = check_text(f"{_PREFIX}{number}")
        connection.execute(_PUT, {"name": name, "until": str(to_micros(expires_at)), "now": to_micros(now)})


def ended_sessions(connection: Connection, *, now: datetime) -> frozenset[str]:
    """The numbers of those whose time is not over yet."""
    rows = connection.execute(_ENDED, {"now": to_micros(now), "limit": KEPT_MAX})
    return frozenset(row.name.removeprefix(_PREFIX) for row in rows)


_CLIENT = RowCodec(GATE_CLIENTS, ClientRecord, also=("priority", "hold_s", "share"))
_ALL = text(f"SELECT {_CLIENT.columns} FROM gate_clients ORDER BY name")  # noqa: S608 - names of ours
_ADD = text(f"{_CLIENT.insert()} ON CONFLICT (name) DO NOTHING")
_REMOVE = text("DELETE FROM gate_clients WHERE name = :name")
_SPENT = text("""
    SELECT r.consumer, s.name AS source, sum(CASE WHEN r.lane = 'query' THEN 1 ELSE 0 END) AS queries,
           sum(CASE WHEN r.lane = 'grab' THEN 1 ELSE 0 END) AS grabs
    FROM source_requests r JOIN sources s ON s.id = r.source_id
    WHERE r.at > :since GROUP BY r.consumer, s.name ORDER BY r.consumer, s.name
""")
_PREFIX = "signed out "
# Among the switches: each is one, that is on until its time is over.
_PUT = text("""
    INSERT INTO flags (name, value, changed_at) VALUES (:name, :until, :now)
    ON CONFLICT (name) DO UPDATE SET value = excluded.value
""")
_ENDED = text(f"""
    SELECT name FROM flags WHERE name LIKE '{_PREFIX}%' AND CAST(value AS BIGINT) > :now
    ORDER BY changed_at DESC, name LIMIT :limit
""")  # noqa: S608 - all parts are ours
_PRUNE = text(f"DELETE FROM flags WHERE name LIKE '{_PREFIX}%' AND CAST(value AS BIGINT) <= :now")  # noqa: S608 - as above
