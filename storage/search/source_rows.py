"""State of a source to row and back; limits as JSON."""

from __future__ import annotations

import json
from datetime import datetime, time, tzinfo
from typing import Any

import attrs

from cormorant.rules.search.breaker import Breaker, BreakerState, Cooldown, Probe
from cormorant.rules.search.limits import Lane, LearnedLimits, SourceLimits
from cormorant.rules.search.source_state import LaneState, RequestLease, SourceState
from cormorant.rules.units import zone_of
from storage.engine.columns import from_micros, kept_text, maybe_from_micros, to_micros

BECAUSE_LENGTH_MAX = 1_000

OF_A_LANE = ("last_seq", "last_at", "last_end_at", "tokens", "tokens_at", "in_flight")
COLUMNS = (
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
    *(f"{lane}_{name}" for lane in Lane for name in OF_A_LANE),
)


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
        micros(state.paused_until),
        None if because is None else kept_text(because, BECAUSE_LENGTH_MAX),
        micros(state.cooldown.until),
        state.cooldown.level,
        breaker.state.value,
        breaker.failures,
        micros(breaker.open_until),
        json.dumps([(probe.key, to_micros(probe.expires_at)) for probe in breaker.probes]),
        breaker.generation,
        state.failure_streak,
        micros(state.last_success_at),
        micros(state.last_failure_at),
    )


def lane_values(own: LaneState) -> tuple[Any, ...]:
    """One lane as the row has it, in the order of `OF_A_LANE`."""
    return (
        own.last_seq,
        micros(own.last_at),
        micros(own.last_end_at),
        own.tokens,
        micros(own.tokens_at),
        _leases(own),
    )


def _leases(lane: LaneState) -> str:
    if not lane.in_flight:
        return "[]"
    return "[" + ", ".join(f"[{lease.seq}, {to_micros(lease.expires_at)}]" for lease in lane.in_flight) + "]"


def micros(moment: datetime | None) -> int | None:
    """A time that may be missing."""
    return None if moment is None else to_micros(moment)


def dump_learned(learned: LearnedLimits) -> str:
    """What a source said of its limits, as the row has it."""
    return json.dumps({name: value for name, value in attrs.asdict(learned).items() if value is not None})


def _load_learned(written: str) -> LearnedLimits:
    names = {each.name for each in attrs.fields(LearnedLimits)}
    return LearnedLimits(**{name: value for name, value in json.loads(written).items() if name in names})


_USUAL = SourceLimits()


def dump_limits(limits: SourceLimits) -> str:
    """The limits as text.

    >>> dump_limits(SourceLimits(per_day=300, reset=time(4, 30), reset_zone=zone_of("Europe/Berlin")))
    '{"per_day": 300, "reset": "04:30:00", "reset_zone": "Europe/Berlin"}'
    """
    written: dict[str, Any] = {}
    for each in attrs.fields(SourceLimits):
        value = getattr(limits, each.name)
        if value != getattr(_USUAL, each.name):
            written[each.name] = str(value) if isinstance(value, time | tzinfo) else value
    return json.dumps(written)


def load_limits(written: str) -> SourceLimits:
    """The limits that a text means. What an older process does not know is left out.

    >>> load_limits('{"per_day": 300, "reset": "04:30:00", "unheard_of": 1}').reset
    datetime.time(4, 30)
    """
    known = {each.name for each in attrs.fields(SourceLimits)}
    values = {name: value for name, value in json.loads(written).items() if name in known}
    if values.get("reset") is not None:
        values["reset"] = time.fromisoformat(values["reset"])
    if values.get("reset_zone") is not None:
        values["reset_zone"] = zone_of(values["reset_zone"])
    return SourceLimits(**values)
