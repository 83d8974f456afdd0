"""Reserves and finishes a request under the row's version.

The database decides; whoever holds a copy of the state in memory has a hint. What a change returns is the fresh state. With
a hint one statement is enough: it writes only if the row still has the version that the hint has. Else another process was
faster, and the row is locked and read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import TypeVar

from attrs import asdict, evolve, field, frozen
from sqlalchemy import Connection, bindparam, text

from cormorant.rules.search.limits import (
    Edges,
    Lane,
    LearnedLimits,
    SourceLimits,
    edges_wanted,
    has_windows,
    share_windows,
    stricter,
)
from cormorant.rules.search.reasons import NextRequest, Reason, share_reason
from cormorant.rules.search.reservations import RequestEnd, RequestPermit, Reserved, SourceClosedNow, after
from cormorant.rules.search.reservations import reserve as decide
from cormorant.rules.search.source_state import SourceState
from storage.engine.columns import from_micros, maybe_from_micros, maybe_to_micros, to_micros
from storage.engine.statements import FastStatement, announce
from storage.search.source_rows import (
    COLUMNS,
    QUERY_COLUMNS,
    dump_learned,
    from_row,
    health_values,
    is_same_health,
    lane_values,
)

Following = SourceState | Reserved | SourceClosedNow
A = TypeVar("A", bound=Following)


@frozen(kw_only=True)
class KnownState:
    """A source as the database has it: its state, what it said of its limits, and the requests that windows depend on."""

    state: SourceState
    learned: LearnedLimits
    limits: SourceLimits
    """What holds: of what is configured and what was learned, the stricter. Limits and edges belong together."""
    edges: Mapping[Lane, Edges]
    version: int = 0
    """Rises with every change of the row; 0: there is no row yet."""
    configured: SourceLimits | None = field(default=None, eq=False, repr=False)
    """What `limits` were found out for."""


@frozen(kw_only=True)
class ReservationRequest(NextRequest):
    """A request that somebody would like to make."""

    lease_s: float
    consumer: str = ""
    share: float = 1.0
    """The part of each quota that the consumer may use."""


def read(connection: Connection, source_id: int, *, configured: SourceLimits) -> KnownState:
    """The source as it is. One that was never asked has a fresh state."""
    return _read(connection, source_id, configured, lock=False)


def reserve(
    connection: Connection,
    source_id: int,
    wanted: ReservationRequest,
    *,
    configured: SourceLimits,
    now: datetime,
    hint: KnownState | None = None,
) -> tuple[Reserved | SourceClosedNow, KnownState]:
    """Spend one request, if every gate is open. Send it only after COMMIT; it is never refunded."""

    def used_up(limits: SourceLimits) -> Reason | None:
        return read_share(connection, source_id, wanted.lane, wanted.consumer, wanted.share, limits)

    def choose(known: KnownState) -> Reserved | SourceClosedNow:
        request, edges = wanted, known.edges[wanted.lane]
        if wanted.share < 1:
            request = evolve(wanted, share_reason=used_up(known.limits))
        return decide(known.state, known.limits, request, now=now, edges=edges, lease_s=wanted.lease_s)

    known, answer = _change_by(hint, connection, source_id, choose, configured)
    if isinstance(answer, SourceClosedNow):
        return answer, known
    times = (to_micros(answer.at), to_micros(answer.expires_at))
    _REQUEST.change(connection, (source_id, wanted.lane.value, answer.permit.seq, *times, wanted.consumer))
    if wanted.share < 1:
        answer = evolve(answer, share_reason=used_up(known.limits))
    return answer, _changed(connection, source_id, known, answer.state, configured)


def read_share(
    connection: Connection, source_id: int, lane: Lane, app: str, share: float, limits: SourceLimits
) -> Reason | None:
    """Until when an app that may use a part of each quota has used it; in the past if it has some of it left."""
    windows = share_windows(limits, lane, share)
    if not windows:
        return None
    times = nth_latest(connection, source_id, lane, app, {window.limit for window in windows})
    return share_reason(app, lane, windows, times)


def nth_latest(
    connection: Connection, source_id: int, lane: Lane, consumer: str, numbers: Iterable[int]
) -> Mapping[int, datetime | None]:
    """When the latest, the second latest, … request of an app was made; None: there are not so many."""
    words = {"source_id": source_id, "lane": lane.value, "consumer": consumer}
    found: dict[int, datetime | None] = {}
    for number in numbers:
        at = connection.execute(_NTH, words | {"before": number - 1}).scalar_one_or_none()
        found[number] = maybe_from_micros(at)
    return found


def _change_by(
    hint: KnownState | None,
    connection: Connection,
    source_id: int,
    choose: Callable[[KnownState], A],
    configured: SourceLimits,
) -> tuple[KnownState, A]:
    """Decide by what is known already, and only if that is out of date, or says no, by what the database has."""
    if hint is not None and _is_usable(hint, configured):
        answer = choose(hint)
        # A hint that is out of date opens nothing: what it would spend is not written.
        if _write_answer(connection, source_id, hint, answer):
            return hint, answer
    known = _read(connection, source_id, configured, lock=True)
    answer = choose(known)
    _write_answer(connection, source_id, known, answer)
    return known, answer


def _write_answer(connection: Connection, source_id: int, known: KnownState, answer: Following) -> bool:
    """Write the state that follows. False: none follows, or the row has another version by now."""
    if isinstance(answer, SourceClosedNow):
        return False
    return _write(connection, source_id, known, answer.state if isinstance(answer, Reserved) else answer)


def finish(  # noqa: PLR0913 - what has ended, how, and what is known of its source
    connection: Connection,
    source_id: int,
    permit: RequestPermit,
    end: RequestEnd,
    *,
    configured: SourceLimits,
    now: datetime,
    hint: KnownState | None = None,
) -> KnownState:
    """Record how a request ended."""
    known, state = _change_by(
        hint, connection, source_id, lambda known: after(known.state, permit, end, now=now), configured
    )
    learned = known.learned if end.learned is None else _added(known.learned, end.learned)
    if learned != known.learned:
        # In the same transaction and under the lock that the write above has taken, so under the same version.
        _LEARN.change(connection, (dump_learned(learned), source_id))
        return _known(connection, source_id, state, learned, configured, version=known.version + 1)
    return _changed(connection, source_id, known, state, configured)


def _added(known: LearnedLimits, said: LearnedLimits) -> LearnedLimits:
    """What is known after a source has said something: what it did not mention this time still holds."""
    return evolve(known, **{name: value for name, value in asdict(said).items() if value is not None})


def is_in_flight(connection: Connection, source_id: int, permit: RequestPermit) -> bool:
    """Whether the end of a request is not recorded yet."""
    state = _read(connection, source_id, SourceLimits(), lock=True).state
    return any(lease.seq == permit.seq for lease in state.lane(permit.lane).in_flight)


def change(
    connection: Connection,
    source_id: int,
    rule: Callable[[SourceState], SourceState],
    *,
    configured: SourceLimits,
) -> KnownState:
    """Change the state by hand: pause, resume, reset."""
    known, state = _change_by(None, connection, source_id, lambda known: rule(known.state), configured)
    announce(connection, CHANNEL)
    return _changed(connection, source_id, known, state, configured)


def prune_requests(connection: Connection, *, before: datetime, limit: int) -> int:
    """Forget requests that no window looks at any more, oldest first.

    A clock that is far ahead deletes nothing: what is old is old beside the last request of the same source, too.
    """
    words = {"before": to_micros(before), "limit": limit, "kept": KEPT_US}
    pruned: int = connection.execute(_PRUNE, words).rowcount
    return pruned


def _is_usable(hint: KnownState, configured: SourceLimits) -> bool:
    """Whether it says all that a decision needs: that there is a row, and the requests on which these limits depend."""
    return hint.version > 0 and hint.configured is configured


def _changed(
    connection: Connection, source_id: int, before: KnownState, state: SourceState, configured: SourceLimits
) -> KnownState:
    """What is known once `state` was written over what was known before."""
    return KnownState(
        state=state,
        learned=before.learned,
        limits=before.limits,
        edges=_edges_of(connection, source_id, state, before.limits),
        version=before.version + 1,
        configured=configured,
    )


def _known(
    connection: Connection,
    source_id: int,
    state: SourceState,
    learned: LearnedLimits,
    configured: SourceLimits,
    *,
    version: int,
) -> KnownState:
    limits = stricter(configured, learned)
    return KnownState(
        state=state,
        learned=learned,
        limits=limits,
        edges=_edges_of(connection, source_id, state, limits),
        version=version,
        configured=configured,
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


def _read(connection: Connection, source_id: int, configured: SourceLimits, *, lock: bool) -> KnownState:
    statement = _LOCK if lock and connection.dialect.name == "postgresql" else _READ
    row = statement.first(connection, (source_id,))
    if row is None and lock:
        _CREATE.change(connection, (source_id,))
        row = statement.first(connection, (source_id,))
        assert row is not None
    if row is None:
        return _known(connection, source_id, SourceState(), LearnedLimits(), configured, version=0)
    state, learned, version = from_row(row)
    return _known(connection, source_id, state, learned, configured, version=version)


def _write(connection: Connection, source_id: int, before: KnownState, state: SourceState) -> bool:
    """Write what has changed, unless the row has another version by now: then nothing happens, and it is False."""
    old, row = before.state, (source_id, before.version)
    # Most requests change one lane and nothing else, and all columns take six times as long.
    if state.grab is old.grab and is_same_health(old, state):
        return (
            _WRITE_QUERY.change(connection, (*lane_values(state.query), maybe_to_micros(state.last_success_at), *row))
            == 1
        )
    values = (*health_values(state), *lane_values(state.query), *lane_values(state.grab))
    return _WRITE.change(connection, (*values, *row)) == 1


_NO_EDGES: Mapping[Lane, Edges] = {lane: {} for lane in Lane}

KEPT_US = 32 * 86_400 * 1_000_000
"""Longer than the widest window, a month."""

CHANNEL = "cormorant_sources"
"""Where PostgreSQL tells the other processes of changes by hand."""

_SELECT = f"SELECT {', '.join(COLUMNS)}, learned, version FROM source_state WHERE source_id = :source_id"
_READ = FastStatement(_SELECT)
_LOCK = FastStatement(f"{_SELECT} FOR UPDATE")
_CREATE = FastStatement("INSERT INTO source_state (source_id) VALUES (:source_id) ON CONFLICT (source_id) DO NOTHING")


def _update(columns: Iterable[str]) -> FastStatement:
    return FastStatement(
        f"UPDATE source_state SET {', '.join(f'{name} = :{name}' for name in columns)}, version = version + 1 "
        "WHERE source_id = :source_id AND version = :version"
    )


_WRITE = _update(COLUMNS)
_WRITE_QUERY = _update((*QUERY_COLUMNS, "last_success_at"))
_LEARN = FastStatement("UPDATE source_state SET learned = :learned WHERE source_id = :source_id")
_REQUEST = FastStatement("""
    INSERT INTO source_requests (source_id, lane, seq, at, expires_at, consumer)
    VALUES (:source_id, :lane, :seq, :at, :expires_at, :consumer)
""")
_EDGES = text("""
    SELECT seq, at FROM source_requests WHERE source_id = :source_id AND lane = :lane AND seq IN :seqs
""").bindparams(bindparam("seqs", expanding=True))
_NTH = text("""
    SELECT at FROM source_requests WHERE source_id = :source_id AND lane = :lane AND consumer = :consumer
    ORDER BY seq DESC LIMIT 1 OFFSET :before
""")
_PRUNE = text("""
    DELETE FROM source_requests WHERE (source_id, lane, seq) IN (
        SELECT old.source_id, old.lane, old.seq FROM source_requests AS old
        JOIN source_state ON source_state.source_id = old.source_id
        WHERE old.at < :before
              AND old.at < CASE old.lane WHEN 'query' THEN query_last_at ELSE grab_last_at END - :kept
        ORDER BY old.at LIMIT :limit)
""")
