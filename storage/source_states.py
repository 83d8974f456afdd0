"""What was spent at a source, and may it be asked now? The row of its state is locked, a pure rule decides, and it is written.

The database decides; whoever holds a copy of the state in memory has a hint. What a change returns is the fresh state.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import attrs
from attrs import frozen
from sqlalchemy import ColumnClause, Connection, bindparam, column, text

from cormorant.rules.breaker import Breaker, BreakerState, Probe
from cormorant.rules.cooldowns import Cooldown
from cormorant.rules.limits import Lane, LearnedLimits, SourceLimits, stricter
from cormorant.rules.priorities import Priority
from cormorant.rules.request_ends import RequestEnd, after
from cormorant.rules.reservations import Closed, Permit, Reserved
from cormorant.rules.reservations import reserve as decide
from cormorant.rules.source_state import LaneState, Lease, SourceState
from cormorant.rules.windows import Edges, edges_wanted
from storage.columns import from_micros, to_micros


@frozen(kw_only=True)
class Known:
    """A source as the database has it: its state, what it said of its limits, and the requests that windows depend on."""

    state: SourceState
    learned: LearnedLimits
    edges: Mapping[Lane, Edges]

    def limits(self, configured: SourceLimits) -> SourceLimits:
        """What holds: of what is configured and what was learned, the stricter."""
        return stricter(configured, self.learned)


@frozen(kw_only=True)
class Wish:
    """A request that somebody would like to make."""

    lane: Lane = Lane.QUERY
    priority: Priority = Priority.BACKGROUND
    lease_s: float
    pace_s: float | None = None
    waited_s: float = 0.0
    consumer: str = ""


def look(connection: Connection, source_id: int, *, configured: SourceLimits) -> Known:
    """The source as it is. One that was never asked has a fresh state."""
    state, learned = _read(connection, source_id, lock=False)
    return _known(connection, source_id, state, learned, configured)


def reserve(
    connection: Connection, source_id: int, wish: Wish, *, configured: SourceLimits, now: datetime
) -> tuple[Reserved | Closed, Known]:
    """Spend one request, if every gate is open. Send it only after COMMIT; it is never refunded."""
    state, learned = _read(connection, source_id, lock=True)
    known = _known(connection, source_id, state, learned, configured)
    answer = decide(
        state,
        known.limits(configured),
        lane=wish.lane,
        priority=wish.priority,
        now=now,
        edges=known.edges[wish.lane],
        lease_s=wish.lease_s,
        pace_s=wish.pace_s,
        waited_s=wish.waited_s,
    )
    if isinstance(answer, Closed):
        return answer, known
    _write(connection, source_id, answer.state)
    connection.execute(
        _REQUEST,
        {
            "source_id": source_id,
            "lane": wish.lane.value,
            "seq": answer.seq,
            "at": to_micros(answer.at),
            "expires_at": to_micros(answer.expires_at),
            "consumer": wish.consumer,
        },
    )
    return answer, _known(connection, source_id, answer.state, learned, configured)


def finish(
    connection: Connection, source_id: int, permit: Permit, end: RequestEnd, *, configured: SourceLimits, now: datetime
) -> Known:
    """Record how a request ended."""
    state, learned = _read(connection, source_id, lock=True)
    state = after(state, permit, end, now=now)
    if end.learned is not None and end.learned != learned:
        learned = end.learned
        connection.execute(_LEARN, {"source_id": source_id, "learned": _dump_learned(learned)})
    _write(connection, source_id, state)
    return _known(connection, source_id, state, learned, configured)


def change(
    connection: Connection,
    source_id: int,
    rule: Callable[[SourceState], SourceState],
    *,
    configured: SourceLimits,
) -> Known:
    """Change the state by hand: pause, resume, reset."""
    state, learned = _read(connection, source_id, lock=True)
    state = rule(state)
    _write(connection, source_id, state)
    announce(connection)
    return _known(connection, source_id, state, learned, configured)


def announce(connection: Connection) -> None:
    """Tell the other processes when this transaction commits that something about sources was changed by hand."""
    if connection.dialect.name == "postgresql":
        connection.execute(_NOTIFY)


def prune_requests(connection: Connection, *, before: datetime, limit: int) -> int:
    """Forget requests that no window looks at any more, oldest first."""
    pruned: int = connection.execute(_PRUNE, {"before": to_micros(before), "limit": limit}).rowcount
    return pruned


def _known(
    connection: Connection, source_id: int, state: SourceState, learned: LearnedLimits, configured: SourceLimits
) -> Known:
    limits = stricter(configured, learned)
    return Known(
        state=state,
        learned=learned,
        edges={lane: _edges(connection, source_id, lane, state.lane(lane).last_seq, limits) for lane in Lane},
    )


def _edges(connection: Connection, source_id: int, lane: Lane, last_seq: int, limits: SourceLimits) -> Edges:
    wanted = edges_wanted(limits, lane, last_seq=last_seq)
    if not wanted:
        return {}
    found = connection.execute(_EDGES, {"source_id": source_id, "lane": lane.value, "seqs": sorted(wanted)})
    times = {row.seq: from_micros(row.at) for row in found}
    return {seq: times.get(seq) for seq in wanted}


def _read(connection: Connection, source_id: int, *, lock: bool) -> tuple[SourceState, LearnedLimits]:
    statement = _LOCK if lock and connection.dialect.name == "postgresql" else _READ
    row = connection.execute(statement, {"source_id": source_id}).one_or_none()
    if row is None and lock:
        connection.execute(_CREATE, {"source_id": source_id})
        row = connection.execute(statement, {"source_id": source_id}).one()
    return (SourceState(), LearnedLimits()) if row is None else _from_row(row)


def _from_row(row: Any) -> tuple[SourceState, LearnedLimits]:
    values = tuple(row)
    state = SourceState(
        is_enabled=bool(values[0]),
        is_paused=bool(values[1]),
        paused_until=_moment(values[2]),
        stopped_because=values[3],
        cooldown=Cooldown(until=_moment(values[4]), level=values[5]),
        breaker=Breaker(
            state=BreakerState(values[6]),
            failures=values[7],
            open_until=_moment(values[8]),
            probes=tuple(Probe(key=key, expires_at=from_micros(at)) for key, at in json.loads(values[9])),
            generation=values[10],
        ),
        failure_streak=values[11],
        last_success_at=_moment(values[12]),
        last_failure_at=_moment(values[13]),
        query=_lane(values[14:20]),
        grab=_lane(values[20:26]),
    )
    return state, _load_learned(values[26])


def _lane(values: tuple[Any, ...]) -> LaneState:
    return LaneState(
        last_seq=values[0],
        last_at=_moment(values[1]),
        last_end_at=_moment(values[2]),
        tokens=values[3],
        tokens_at=_moment(values[4]),
        in_flight=tuple(Lease(seq=seq, expires_at=from_micros(at)) for seq, at in json.loads(values[5])),
    )


def _write(connection: Connection, source_id: int, state: SourceState) -> None:
    breaker = state.breaker
    words: dict[str, Any] = {
        "source_id": source_id,
        "is_enabled": state.is_enabled,
        "is_paused": state.is_paused,
        "paused_until": _micros(state.paused_until),
        "stopped_because": state.stopped_because,
        "cooldown_until": _micros(state.cooldown.until),
        "cooldown_level": state.cooldown.level,
        "breaker_state": breaker.state.value,
        "breaker_failures": breaker.failures,
        "breaker_open_until": _micros(breaker.open_until),
        "breaker_probes": json.dumps([(probe.key, to_micros(probe.expires_at)) for probe in breaker.probes]),
        "generation": breaker.generation,
        "failure_streak": state.failure_streak,
        "last_success_at": _micros(state.last_success_at),
        "last_failure_at": _micros(state.last_failure_at),
    }
    for lane in Lane:
        own = state.lane(lane)
        words |= {
            f"{lane}_last_seq": own.last_seq,
            f"{lane}_last_at": _micros(own.last_at),
            f"{lane}_last_end_at": _micros(own.last_end_at),
            f"{lane}_tokens": own.tokens,
            f"{lane}_tokens_at": _micros(own.tokens_at),
            f"{lane}_in_flight": json.dumps([(lease.seq, to_micros(lease.expires_at)) for lease in own.in_flight]),
        }
    connection.execute(_WRITE, words)


def _moment(micros: int | None) -> datetime | None:
    return None if micros is None else from_micros(micros)


def _micros(moment: datetime | None) -> int | None:
    return None if moment is None else to_micros(moment)


def _dump_learned(learned: LearnedLimits) -> str:
    return json.dumps({name: value for name, value in attrs.asdict(learned).items() if value is not None})


def _load_learned(written: str) -> LearnedLimits:
    names = {each.name for each in attrs.fields(LearnedLimits)}
    return LearnedLimits(**{name: value for name, value in json.loads(written).items() if name in names})


CHANNEL = "cormorant_sources"
"""Where PostgreSQL tells the other processes of changes by hand."""

_OF_A_LANE = ("last_seq", "last_at", "last_end_at", "tokens", "tokens_at", "in_flight")
_COLUMNS = (
    "is_enabled",
    "is_paused",
    "paused_until",
    "stopped_because",
    "cooldown_until",
    "cooldown_level",
    "breaker_state",
    "breaker_failures",
    "breaker_open_until",
    "breaker_probes",
    "generation",
    "failure_streak",
    "last_success_at",
    "last_failure_at",
    *(f"{lane}_{name}" for lane in Lane for name in _OF_A_LANE),
)
_SELECT = f"SELECT {', '.join(_COLUMNS)}, learned FROM source_state WHERE source_id = :source_id"
# With its columns named, SQLAlchemy need not find them out each time.
_NAMED: list[ColumnClause[Any]] = [column(name) for name in (*_COLUMNS, "learned")]
_READ = text(_SELECT).columns(*_NAMED)
_LOCK = text(f"{_SELECT} FOR UPDATE").columns(*_NAMED)
_CREATE = text("INSERT INTO source_state (source_id) VALUES (:source_id) ON CONFLICT (source_id) DO NOTHING")
_WRITE = text(
    f"UPDATE source_state SET {', '.join(f'{name} = :{name}' for name in _COLUMNS)} WHERE source_id = :source_id"
)
_LEARN = text("UPDATE source_state SET learned = :learned WHERE source_id = :source_id")
_REQUEST = text("""
    INSERT INTO source_requests (source_id, lane, seq, at, expires_at, consumer)
    VALUES (:source_id, :lane, :seq, :at, :expires_at, :consumer)
""")
_EDGES = text("""
    SELECT seq, at FROM source_requests WHERE source_id = :source_id AND lane = :lane AND seq IN :seqs
""").bindparams(bindparam("seqs", expanding=True))
_PRUNE = text("""
    DELETE FROM source_requests WHERE (source_id, lane, seq) IN (
        SELECT source_id, lane, seq FROM source_requests WHERE at < :before ORDER BY at LIMIT :limit)
""")
_NOTIFY = text(f"SELECT pg_notify('{CHANNEL}', '')")
