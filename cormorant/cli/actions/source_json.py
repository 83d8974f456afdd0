"""Sources as JSON, without keys."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import time, tzinfo
from typing import Any

import attrs

from cormorant.cli.actions.source_text import host_of, state_of
from cormorant.rules.search.limits import Lane
from cormorant.rules.search.priorities import Priority
from cormorant.rules.search.reasons import Explanation
from storage.search.source_views import SourceView

__all__ = ["explanation_json", "source_json", "sources_json"]


def sources_json(looks: Sequence[SourceView]) -> dict[str, Any]:
    """All sources."""
    return {"sources": [source_json(look) for look in looks]}


def source_json(look: SourceView) -> dict[str, Any]:
    """A source with its state and what was spent."""
    explanation = look.explain(Priority.INTERACTIVE)
    state = look.known.state
    return {
        "name": look.record.name,
        "kind": look.record.kind,
        "host": host_of(look.record.url),
        "origin": look.record.origin,
        "has_key": bool(look.record.key),
        "has_proxy": bool(look.record.proxy),
        "state": state_of(explanation),
        "is_open": not explanation.reasons,
        "opens_at": explanation.opens_at,
        "gates": _reasons(explanation),
        "spent": _spent(look),
        "queries_this_hour": look.queries_this_hour,
        "queries_today": look.queries_today,
        "limits": _limits(look),
        "failures_in_a_row": state.failure_streak,
        "last_success_at": state.last_success_at,
        "last_failure_at": state.last_failure_at,
        "caps_at": look.caps_at,
    }


def explanation_json(look: SourceView, priority: Priority, lane: Lane) -> dict[str, Any]:
    """Why a request submitted now would wait."""
    explanation = look.explain(priority, lane)
    return {
        "source": look.record.name,
        "at": look.now,
        "priority": priority.name.lower(),
        "lane": lane.value,
        "opens_at": explanation.opens_at,
        "gates": _reasons(explanation),
        "lines": list(explanation.lines),
        "spent": _spent(look),
        "limits": _limits(look),
    }


def _reasons(explanation: Explanation) -> list[dict[str, Any]]:
    return [
        {"gate": reason.name.value, "opens_at": reason.opens_at, "why": reason.why} for reason in explanation.reasons
    ]


def _spent(look: SourceView) -> list[dict[str, Any]]:
    return [
        {
            "lane": each.lane.value,
            "per": each.window.name.value,
            "count": each.count,
            "limit": each.window.whole,
            "since": each.since,
        }
        for each in look.spent
    ]


def _limits(look: SourceView) -> dict[str, Any]:
    return {
        "configured": _plain(look.record.limits),
        "learned": {name: value for name, value in _plain(look.known.learned).items() if value is not None},
        "holding": _plain(look.limits),
    }


def _plain(limits: Any) -> dict[str, Any]:
    values = attrs.asdict(limits, recurse=False)
    return {name: str(value) if isinstance(value, time | tzinfo) else value for name, value in values.items()}
