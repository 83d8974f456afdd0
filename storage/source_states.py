"""What was spent at a source, and may it be asked now? The row of its state is locked, a pure rule decides, and it is written.

The database decides; whoever holds a copy of the state in memory has a hint. What a change returns is the fresh state. With
a hint one statement is enough: it writes only if the row still has the version that the hint has. Else another process was
faster, and the row is locked and read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

import attrs
from attrs import field, frozen
from sqlalchemy import Connection, bindparam, text

from cormorant.rules.breaker import Breaker, BreakerState, Probe
from cormorant.rules.cooldowns import Cooldown
from cormorant.rules.limits import Lane, LearnedLimits, SourceLimits, stricter
from cormorant.rules.priorities import Priority
from cormorant.rules.request_ends import RequestEnd, after
from cormorant.rules.reservations import Closed, Permit, Reserved
from cormorant.rules.reservations import reserve as decide
from cormorant.rules.source_state import LaneState, Lease, SourceState
from cormorant.rules.windows import Edges, edges_wanted, has_windows
from storage.columns import from_micros, to_micros
from storage.plain import Plain


@frozen(kw_only=True)
class Known:
    """A source as the database has it: its state, what it said of its limits, and the requests that windows depend on."""

    state: SourceState
    learned: LearnedLimits
    edges: Mapping[Lane, Edges]
    version: int = 0
    """Rises with every change of the row; 0: there is no row yet."""
    configured: SourceLimits | None = field(default=None, eq=False, repr=False)
    """What `held` was found out for."""
    held: SourceLimits | None = field(default=None, eq=False, repr=False)

    def limits(self, configured: SourceLimits) -> SourceLimits:
        """What holds: of what is configured and what was learned, the stricter."""
        if self.held is not None and configured is self.configured:
            return self.held
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
    return _read(connection, source_id, configured, lock=False)


def reserve(
    connection: Connection,
    source_id: int,
    wish: Wish,
    *,
    configured: SourceLimits,
    now: datetime,
    hint: Known | None = None,
) -> tuple[Reserved | Closed, Known]:
    """Spend one request, if every gate is open. Send it only after COMMIT; it is never refunded."""
    known = hint if hint is not None and _is_usable(hint, configured) else None
    answer = None if known is None else _decide(known, wish, configured, now)
    # A hint that is out of date opens nothing: what it would spend is not written.
    if known is None or not isinstance(answer, Reserved) or not _write(connection, source_id, known, answer.state):
        known = _read(connection, source_id, configured, lock=True)
        answer = _decide(known, wish, configured, now)
        if isinstance(answer, Closed):
            return answer, known
        _write(connection, source_id, known, answer.state)
    _REQUEST.change(
        connection,
        {
            "source_id": source_id,
            "lane": wish.lane.value,
            "seq": answer.seq,
            "at": to_micros(answer.at),
            "expires_at": to_micros(answer.expires_at),
            "consumer": wish.consumer,
        },
    )
    return answer, _changed(connection, source_id, known, answer.state, configured)


def _decide(known: Known, wish: Wish, configured: SourceLimits, now: datetime) -> Reserved | Closed:
    return decide(
        known.state,
        known.limits(configured),
        lane=wish.lane,
        priority=wish.priority,
        now=now,
        edges=known.edges[wish.lane],
        lease_s=wish.lease_s,
        pace_s=wish.pace_s,
        waited_s=wish.waited_s,
    )


def finish(  # noqa: PLR0913 - what has ended, how, and what is known of its source
    connection: Connection,
    source_id: int,
    permit: Permit,
    end: RequestEnd,
    *,
    configured: SourceLimits,
    now: datetime,
    hint: Known | None = None,
) -> Known:
    """Record how a request ended."""
    known = hint if hint is not None and _is_usable(hint, configured) else None
    state = None if known is None else after(known.state, permit, end, now=now)
    if known is None or state is None or not _write(connection, source_id, known, state):
        known = _read(connection, source_id, configured, lock=True)
        state = after(known.state, permit, end, now=now)
        _write(connection, source_id, known, state)
    if end.learned is not None and end.learned != known.learned:
        # In the same transaction and under the lock that the write above has taken, so under the same version.
        _LEARN.change(connection, {"source_id": source_id, "learned": _dump_learned(end.learned)})
        return _known(connection, source_id, state, end.learned, configured, version=known.version + 1)
    return _changed(connection, source_id, known, state, configured)


def change(
    connection: Connection,
    source_id: int,
    rule: Callable[[SourceState], SourceState],
    *,
    configured: SourceLimits,
) -> Known:
    """Change the state by hand: pause, resume, reset."""
    known = _read(connection, source_id, configured, lock=True)
    state = rule(known.state)
    _write(connection, source_id, known, state)
    announce(connection)
    return _changed(connection, source_id, known, state, configured)


def announce(connection: Connection) -> None:
    """Tell the other processes when this transaction commits that something about sources was changed by hand."""
    if connection.dialect.name == "postgresql":
        connection.execute(_NOTIFY)


def prune_requests(connection: Connection, *, before: datetime, limit: int) -> int:
    """Forget requests that no window looks at any more, oldest first."""
    pruned: int = connection.execute(_PRUNE, {"before": to_micros(before), "limit": limit}).rowcount
    return pruned


def _is_usable(hint: Known, configured: SourceLimits) -> bool:
    """Whether it says all that a decision needs: that there is a row, and the requests on which these limits depend."""
    return hint.version > 0 and hint.configured is configured


def _changed(
    connection: Connection, source_id: int, before: Known, state: SourceState, configured: SourceLimits
) -> Known:
    """What is known once `state` was written over what was known before."""
    limits = before.limits(configured)
    return Known(
        state=state,
        learned=before.learned,
        edges=_edges_of(connection, source_id, state, limits),
        version=before.version + 1,
        configured=configured,
        held=limits,
    )


def _known(
    connection: Connection,
    source_id: int,
    state: SourceState,
    learned: LearnedLimits,
    configured: SourceLimits,
    *,
    version: int,
) -> Known:
    limits = stricter(configured, learned)
    return Known(
        state=state,
        learned=learned,
        edges=_edges_of(connection, source_id, state, limits),
        version=version,
        configured=configured,
        held=limits,
    )


def _edges_of(connection: Connection, source_id: int, state: SourceState, limits: SourceLimits) -> Mapping[Lane, Edges]:
    if not has_windows(limits):
        return _NO_EDGES
    return {lane: _edges(connection, source_id, lane, state.lane(lane).last_seq, limits) for lane in Lane}


def _edges(connection: Connection, source_id: int, lane: Lane, last_seq: int, limits: SourceLimits) -> Edges:
    wanted = edges_wanted(limits, lane, last_seq=last_seq)
    if not wanted:
        return {}
    found = connection.execute(_EDGES, {"source_id": source_id, "lane": lane.value, "seqs": sorted(wanted)})
    times = {row.seq: from_micros(row.at) for row in found}
    return {seq: times.get(seq) for seq in wanted}


def _read(connection: Connection, source_id: int, configured: SourceLimits, *, lock: bool) -> Known:
    statement = _LOCK if lock and connection.dialect.name == "postgresql" else _READ
    row = statement.first(connection, {"source_id": source_id})
    if row is None and lock:
        _CREATE.change(connection, {"source_id": source_id})
        row = statement.first(connection, {"source_id": source_id})
        assert row is not None
    if row is None:
        return _known(connection, source_id, SourceState(), LearnedLimits(), configured, version=0)
    state, learned, version = _from_row(row)
    return _known(connection, source_id, state, learned, configured, version=version)


def _from_row(values: tuple[Any, ...]) -> tuple[SourceState, LearnedLimits, int]:
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
    return state, _load_learned(values[26]), values[27]


def _lane(values: tuple[Any, ...]) -> LaneState:
    return LaneState(
        last_seq=values[0],
        last_at=_moment(values[1]),
        last_end_at=_moment(values[2]),
        tokens=values[3],
        tokens_at=_moment(values[4]),
        in_flight=tuple(Lease(seq=seq, expires_at=from_micros(at)) for seq, at in json.loads(values[5])),
    )


def _write(connection: Connection, source_id: int, before: Known, state: SourceState) -> bool:
    """Write what has changed, unless the row has another version by now: then nothing happens, and it is False."""
    old, words = before.state, {"source_id": source_id, "version": before.version}
    # Most requests change one lane and nothing else, and all columns take six times as long.
    if state.grab is old.grab and _is_same_health(old, state):
        words |= _lane_words("query", state.query) | {"last_success_at": _micros(state.last_success_at)}
        return _WRITE_QUERY.change(connection, words) == 1
    words |= _health_words(state) | _lane_words("query", state.query) | _lane_words("grab", state.grab)
    return _WRITE.change(connection, words) == 1


def _is_same_health(old: SourceState, new: SourceState) -> bool:
    """Whether all is the same but the lanes and the last success."""
    return (
        new.breaker == old.breaker
        and new.cooldown == old.cooldown
        and new.failure_streak == old.failure_streak
        and new.last_failure_at == old.last_failure_at
        and new.is_enabled == old.is_enabled
        and new.is_paused == old.is_paused
        and new.paused_until == old.paused_until
        and new.stopped_because == old.stopped_because
    )


def _health_words(state: SourceState) -> dict[str, Any]:
    breaker = state.breaker
    return {
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


def _lane_words(lane: str, own: LaneState) -> dict[str, Any]:
    return {
        f"{lane}_last_seq": own.last_seq,
        f"{lane}_last_at": _micros(own.last_at),
        f"{lane}_last_end_at": _micros(own.last_end_at),
        f"{lane}_tokens": own.tokens,
        f"{lane}_tokens_at": _micros(own.tokens_at),
        f"{lane}_in_flight": _leases(own),
    }


def _leases(lane: LaneState) -> str:
    if not lane.in_flight:
        return "[]"
    return "[" + ", ".join(f"[{lease.seq}, {to_micros(lease.expires_at)}]" for lease in lane.in_flight) + "]"


def _moment(micros: int | None) -> datetime | None:
    return None if micros is None else from_micros(micros)


def _micros(moment: datetime | None) -> int | None:
    return None if moment is None else to_micros(moment)


def _dump_learned(learned: LearnedLimits) -> str:
    return json.dumps({name: value for name, value in attrs.asdict(learned).items() if value is not None})


def _load_learned(written: str) -> LearnedLimits:
    names = {each.name for each in attrs.fields(LearnedLimits)}
    return LearnedLimits(**{name: value for name, value in json.loads(written).items() if name in names})


_NO_EDGES: Mapping[Lane, Edges] = {lane: {} for lane in Lane}

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
_SELECT = f"SELECT {', '.join(_COLUMNS)}, learned, version FROM source_state WHERE source_id = :source_id"
_READ = Plain(_SELECT)
_LOCK = Plain(f"{_SELECT} FOR UPDATE")
_CREATE = Plain("INSERT INTO source_state (source_id) VALUES (:source_id) ON CONFLICT (source_id) DO NOTHING")


def _update(columns: Iterable[str]) -> Plain:
    return Plain(
        f"UPDATE source_state SET {', '.join(f'{name} = :{name}' for name in columns)}, version = version + 1 "
        "WHERE source_id = :source_id AND version = :version"
    )


_WRITE = _update(_COLUMNS)
_WRITE_QUERY = _update((*(f"query_{name}" for name in _OF_A_LANE), "last_success_at"))
_LEARN = Plain("UPDATE source_state SET learned = :learned WHERE source_id = :source_id")
_REQUEST = Plain("""
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
