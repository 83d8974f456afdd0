"""What the tests of sources share: a source to spend at, and words for asking it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from attrs import evolve
from sqlalchemy import Connection

from cormorant.rules.search.limits import Lane, SourceLimits
from cormorant.rules.search.priorities import Priority
from cormorant.rules.search.reservations import EndKind, RequestEnd, RequestPermit, Reserved, SourceClosedNow
from cormorant.rules.secrets import Secret
from storage.search import source_states, sources
from storage.search.source_states import KnownState, ReservationRequest
from storage.search.sources import SourceRecord
from tests.storage.job_store import NOW

FREE = SourceLimits(spacing_s=0, pace_s=0)
LEASE_S = 60.0


def record_of(name: str = "a", **words: Any) -> SourceRecord:
    """A source that is not stored yet."""
    usual = SourceRecord(
        name=name,
        identity=f"http://{name}.test",
        kind="torznab",
        url=f"http://{name}.test/api",
        key=Secret("k"),
        limits=FREE,
    )
    return evolve(usual, **words)


def add_source(connection: Connection, name: str = "a", **words: Any) -> int:
    """A stored source."""
    return sources.add(connection, record_of(name, **words), now=NOW).id


def ask(
    connection: Connection,
    source_id: int,
    *,
    now: datetime = NOW,
    limits: SourceLimits = FREE,
    lane: Lane = Lane.QUERY,
    priority: Priority = Priority.BACKGROUND,
) -> Reserved | SourceClosedNow:
    """Try to reserve."""
    wanted = ReservationRequest(lane=lane, priority=priority, lease_s=LEASE_S, consumer="test")
    return source_states.reserve(connection, source_id, wanted, configured=limits, now=now)[0]


def spend(connection: Connection, source_id: int, *, now: datetime = NOW, limits: SourceLimits = FREE) -> RequestPermit:
    """Reserve, which must be possible."""
    got = ask(connection, source_id, now=now, limits=limits)
    assert isinstance(got, Reserved), got
    return got.permit


def end(
    connection: Connection,
    source_id: int,
    permit: RequestPermit,
    kind: EndKind = EndKind.ANSWERED,
    *,
    now: datetime = NOW,
    limits: SourceLimits = FREE,
    **words: Any,
) -> KnownState:
    """Record an end."""
    return source_states.finish(
        connection, source_id, permit, RequestEnd(kind=kind, **words), configured=limits, now=now
    )


def look(connection: Connection, source_id: int, *, limits: SourceLimits = FREE) -> KnownState:
    """The source as it is."""
    return source_states.read(connection, source_id, configured=limits)
