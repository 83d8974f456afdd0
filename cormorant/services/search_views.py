"""Views of sources and of why they wait, without keys."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, time, tzinfo
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import attrs
from attrs import frozen

from cormorant.rules.search.limits import Lane
from cormorant.rules.search.priorities import Priority
from cormorant.rules.search.reasons import Explanation, Reason, ReasonName

if TYPE_CHECKING:  # a command imports this module for its help, and must not wait for the database's driver
    from storage.search.source_views import SourceView

_STATES = {ReasonName.STOPPED: "stopped", ReasonName.ENABLED: "disabled", ReasonName.PAUSED: "paused"}


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


def explanation_out(explanation: Explanation, *, priority: str, lane: str) -> ExplanationOut:
    """Why a request waits, as the API shows it."""
    return ExplanationOut(
        priority=priority,
        lane=lane,
        opens_at=explanation.opens_at,
        gates=[GateOut(name=gate.name.value, opens_at=gate.opens_at, why=gate.why) for gate in explanation.reasons],
        lines=list(explanation.lines),
    )


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
        "gates": _reasons(explanation.reasons),
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
        "gates": _reasons(explanation.reasons),
        "lines": list(explanation.lines),
        "spent": _spent(view),
        "limits": _limits(view),
    }


def _reasons(reasons: Sequence[Reason]) -> list[dict[str, Any]]:
    return [{"gate": each.name.value, "opens_at": each.opens_at, "why": each.why} for each in reasons]


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


def state_of(explanation: Explanation) -> str:
    """The state in a line: open, or what is longest in the way.

    A gate that only a person can open comes first: nothing else helps.
    """
    if not explanation.reasons:
        return "open"
    pairs = list(zip(explanation.reasons, explanation.lines, strict=False))
    for reason, line in pairs:
        if reason.name in _STATES:
            until = line.partition(" until ")[2].partition(": ")[0] if reason.opens_at else ""
            return f"{_STATES[reason.name]} until {until}" if until else f"{_STATES[reason.name]}: {reason.why}"
    unknown = [line for reason, line in pairs if reason.opens_at is None]
    return unknown[0] if unknown else max(pairs, key=_opening)[1]


def _opening(pair: tuple[Reason, str]) -> float:
    return pair[0].opens_at.timestamp() if pair[0].opens_at else 0.0
