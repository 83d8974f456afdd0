"""Views of sources, of why they wait, and of what came of searches, without keys."""

from __future__ import annotations

from datetime import datetime, time, tzinfo
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import attrs
from attrs import frozen

from cormorant.rules.search.limits import Lane
from cormorant.rules.search.outcomes import Outcome
from cormorant.rules.search.priorities import Priority
from cormorant.rules.search.reasons import Explanation, Reason, ReasonName
from cormorant.rules.search.requests import Result
from cormorant.rules.secrets import NO_SCREEN, SecretFilter, redact_passwords, secret_filter_of
from cormorant.rules.views import view_of

if TYPE_CHECKING:  # a command imports this module for its help, and must not wait for the database's driver
    from storage.search.source_views import SourceView
    from storage.search.sources import SourceRecord

BY_HAND = {ReasonName.STOPPED: "stopped", ReasonName.ENABLED: "disabled", ReasonName.PAUSED: "paused"}
"""Gates that only a person can open, and the state of a source behind each."""


@frozen(kw_only=True)
class GateOut:
    """One thing in the way of a request."""

    name: str
    opens_at: datetime | None
    why: str


@frozen(kw_only=True)
class ExplanationOut:
    """Why a request submitted now would wait. `opens_at` is null when nobody knows."""

    priority: str
    lane: str
    opens_at: datetime | None
    gates: list[GateOut]
    lines: list[str]


@frozen(kw_only=True)
class SourceOut:
    """A source, and why it waits."""

    name: str
    kind: str
    url: str
    origin: str
    waiting: int
    running: int
    explanation: ExplanationOut


@frozen(kw_only=True)
class ResultOut:
    """One find. Its link is not shown: it may hold a key."""

    title: str
    guid: str
    protocol: str
    size_bytes: int | None
    published: datetime | None
    categories: list[str]
    seeders: int | None
    peers: int | None
    grabs: int | None
    infohash: str | None
    details: str


@frozen(kw_only=True)
class OutcomeOut:
    """What came of a search at one source."""

    source: str
    status: str
    error: str | None
    waited_s: float
    took_s: float
    is_cached: bool
    was_cut: bool
    results: list[ResultOut]


def explanation_out(explanation: Explanation, *, priority: str, lane: str) -> ExplanationOut:
    """Why a request waits, as the API shows it."""
    gates = [view_of(GateOut, reason) for reason in explanation.reasons]
    return view_of(ExplanationOut, explanation, priority=priority, lane=lane, gates=gates)


def outcome_out(outcome: Outcome, record: SourceRecord | None) -> OutcomeOut:
    """What came of a search at one source, without the keys of that source."""
    secret_filter = NO_SCREEN if record is None else filter_of(record)
    error = outcome.error
    return view_of(
        OutcomeOut,
        outcome,
        error=None if error is None else redact_passwords(secret_filter.redact(f"{type(error).__name__}: {error}")),
        results=[result_out(result, secret_filter) for result in outcome.results],
    )


def result_out(result: Result, secret_filter: SecretFilter) -> ResultOut:
    """A find without the secrets that the filter knows."""
    hidden = {name: secret_filter.redact(getattr(result, name)) for name in ("title", "guid", "details")}
    categories = [each for each in result.categories if not secret_filter.shows(each)]
    return view_of(ResultOut, result, categories=categories, **hidden)


def filter_of(record: SourceRecord) -> SecretFilter:
    """Hides the secrets of a source."""
    return secret_filter_of(record.key, record.proxy)


def source_json(view: SourceView) -> dict[str, Any]:
    """A source with its state and what was spent, as the commands show it."""
    explanation = view.explain(Priority.INTERACTIVE)
    state = view.known.state
    return {
        "name": view.record.name,
        "kind": view.record.kind,
        "host": host_of(view.record.url),
        "origin": view.record.origin,
        "has_key": bool(view.record.key),
        "has_proxy": bool(view.record.proxy),
        "state": state_of(explanation),
        "is_open": not explanation.reasons,
        "opens_at": explanation.opens_at,
        "gates": _gates(explanation),
        "spent": _spent(view),
        "queries_this_hour": view.queries_this_hour,
        "queries_today": view.queries_today,
        "limits": _limits(view),
        "failures_in_a_row": state.failure_streak,
        "last_success_at": state.last_success_at,
        "last_failure_at": state.last_failure_at,
        "caps_at": view.caps_at,
    }


def explanation_json(view: SourceView, priority: Priority, lane: Lane) -> dict[str, Any]:
    """Why a request submitted now would wait, as the commands show it."""
    explanation = view.explain(priority, lane)
    return {
        "source": view.record.name,
        "at": view.now,
        "priority": priority.name.lower(),
        "lane": lane.value,
        "opens_at": explanation.opens_at,
        "gates": _gates(explanation),
        "lines": list(explanation.lines),
        "spent": _spent(view),
        "limits": _limits(view),
    }


def _gates(explanation: Explanation) -> list[dict[str, Any]]:
    return [{"gate": each.name.value, "opens_at": each.opens_at, "why": each.why} for each in explanation.reasons]


def _spent(view: SourceView) -> list[dict[str, Any]]:
    return [
        {
            "lane": each.lane.value,
            "per": each.window.name.value,
            "count": each.count,
            "limit": each.window.whole,
            "since": each.since,
        }
        for each in view.spent
    ]


def _limits(view: SourceView) -> dict[str, Any]:
    return {
        "configured": _plain(view.record.limits),
        "learned": {name: value for name, value in _plain(view.known.learned).items() if value is not None},
        "holding": _plain(view.limits),
    }


def _plain(limits: Any) -> dict[str, Any]:
    values = attrs.asdict(limits, recurse=False)
    return {name: str(value) if isinstance(value, time | tzinfo) else value for name, value in values.items()}


def host_of(url: str) -> str:
    """Where a source is. No more of its address is shown: in some sites' paths there are keys."""
    return urlsplit(url).netloc


def decisive(explanation: Explanation) -> Reason | None:
    """The one gate that says most: what only a person can open, then what nobody knows the end of, then what opens last."""
    gates = explanation.reasons
    by_hand = [gate for gate in gates if gate.name in BY_HAND]
    unknown = [gate for gate in gates if gate.opens_at is None]
    by_time = sorted((gate.opens_at, place) for place, gate in enumerate(gates) if gate.opens_at is not None)
    last = [gates[place] for _, place in by_time[-1:]]
    return next(iter([*by_hand, *unknown, *last]), None)


def state_of(explanation: Explanation) -> str:
    """The state in a line: open, or the gate that says most."""
    gate = decisive(explanation)
    if gate is None:
        return "open"
    line = explanation.lines[explanation.reasons.index(gate)]
    if gate.name not in BY_HAND:
        return line
    until = line.partition(" until ")[2].partition(": ")[0] if gate.opens_at else ""
    return f"{BY_HAND[gate.name]} until {until}" if until else f"{BY_HAND[gate.name]}: {gate.why}"
