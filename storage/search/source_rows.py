"""State of a source to row and back; limits as JSON."""

from __future__ import annotations

import json
from datetime import time
from typing import Any

from cormorant.rules.search.breaker import Breaker, BreakerState, Cooldown, Probe
from cormorant.rules.search.limits import LearnedLimits, SourceLimits
from cormorant.rules.search.source_state import LaneState, RequestLease, SourceState
from cormorant.rules.units import zone_of
from storage.engine.columns import (
    changed_fields,
    from_micros,
    kept_text,
    known_fields,
    maybe_from_micros,
    maybe_to_micros,
    to_micros,
)
from storage.tables import SOURCE_STATE

BECAUSE_LENGTH_MAX = 1_000
COLUMNS = tuple(each.name for each in SOURCE_STATE.c if each.name not in {"source_id", "learned", "version"})
"""Read and written by place, in the order of the table. Each request does both, and the codec knows no nested classes."""
QUERY_COLUMNS = tuple(name for name in COLUMNS if name.startswith("query_"))


def from_row(values: tuple[Any, ...]) -> tuple[SourceState, LearnedLimits, int]:
    """The state that a row means, what the source said of its limits, and the version of the row."""
    state = SourceState(
        is_enabled=bool(values[0]),
        is_paused=bool(values[1]),
        paused_until=maybe_from_micros(values[2]),
        stopped_because=values[3],
        cooldown=Cooldown(until=maybe_from_micros(values[4]), level=values[5]),
        breaker=Breaker(
            state=BreakerState(values[6]),
            failures=values[7],
            open_until=maybe_from_micros(values[8]),
            probes=tuple(Probe(key=key, expires_at=from_micros(at)) for key, at in json.loads(values[9])),
            generation=values[10],
        ),
        failure_streak=values[11],
        last_success_at=maybe_from_micros(values[12]),
        last_failure_at=maybe_from_micros(values[13]),
        query=_lane(values[14:20]),
        grab=_lane(values[20:26]),
    )
    return state, _load_learned(values[26]), values[27]


def _lane(values: tuple[Any, ...]) -> LaneState:
    return LaneState(
        last_seq=values[0],
        last_at=maybe_from_micros(values[1]),
        last_end_at=maybe_from_micros(values[2]),
        tokens=values[3],
        tokens_at=maybe_from_micros(values[4]),
        in_flight=tuple(RequestLease(seq=seq, expires_at=from_micros(at)) for seq, at in json.loads(values[5])),
    )


def is_same_health(old: SourceState, new: SourceState) -> bool:
    """Whether all is the same but the lanes and the last success."""
    return (
        # Most of the time they are the very same, which is known sooner than that they are equal.
        (new.breaker is old.breaker or new.breaker == old.breaker)
        and (new.cooldown is old.cooldown or new.cooldown == old.cooldown)
        and new.failure_streak == old.failure_streak
        and new.last_failure_at == old.last_failure_at
        and new.is_enabled == old.is_enabled
        and new.is_paused == old.is_paused
        and new.paused_until == old.paused_until
        and new.stopped_because == old.stopped_because
    )


def health_values(state: SourceState) -> tuple[Any, ...]:
    """All of a state but its lanes, as the row has it, in the order of `COLUMNS`."""
    breaker, because = state.breaker, state.stopped_because
    return (
        state.is_enabled,
        state.is_paused,
        maybe_to_micros(state.paused_until),
        None if because is None else kept_text(because, BECAUSE_LENGTH_MAX),
        maybe_to_micros(state.cooldown.until),
        state.cooldown.level,
        breaker.state.value,
        breaker.failures,
        maybe_to_micros(breaker.open_until),
        json.dumps([(probe.key, to_micros(probe.expires_at)) for probe in breaker.probes]),
        breaker.generation,
        state.failure_streak,
        maybe_to_micros(state.last_success_at),
        maybe_to_micros(state.last_failure_at),
    )


def lane_values(own: LaneState) -> tuple[Any, ...]:
    """One lane as the row has it, in the order of `QUERY_COLUMNS`."""
    return (
        own.last_seq,
        maybe_to_micros(own.last_at),
        maybe_to_micros(own.last_end_at),
        own.tokens,
        maybe_to_micros(own.tokens_at),
        _leases(own),
    )


def _leases(lane: LaneState) -> str:
    if not lane.in_flight:
        return "[]"
    return "[" + ", ".join(f"[{lease.seq}, {to_micros(lease.expires_at)}]" for lease in lane.in_flight) + "]"


def dump_learned(learned: LearnedLimits) -> str:
    """What a source said of its limits, as the row has it."""
    return json.dumps(changed_fields(learned))


def _load_learned(written: str) -> LearnedLimits:
    return LearnedLimits(**known_fields(LearnedLimits, json.loads(written)))


def dump_limits(limits: SourceLimits) -> str:
    """The limits as text.

    >>> dump_limits(SourceLimits(per_day=300, reset=time(4, 30), reset_zone=zone_of("Europe/Berlin")))
    '{"per_day": 300, "reset": "04:30:00", "reset_zone": "Europe/Berlin"}'
    """
    return json.dumps(changed_fields(limits), default=str)


def load_limits(written: str) -> SourceLimits:
    """The limits that a text means. What an older process does not know is left out.

    >>> load_limits('{"per_day": 300, "reset": "04:30:00", "unheard_of": 1}').reset
    datetime.time(4, 30)
    """
    values = known_fields(SourceLimits, json.loads(written))
    if values.get("reset") is not None:
        values["reset"] = time.fromisoformat(values["reset"])
    if values.get("reset_zone") is not None:
        values["reset_zone"] = zone_of(values["reset_zone"])
    return SourceLimits(**values)
