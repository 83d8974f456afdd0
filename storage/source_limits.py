"""How are the limits of a source kept? As JSON of what differs from the usual, so that new limits need no new columns."""

from __future__ import annotations

import json
from datetime import UTC, time
from typing import Any

import attrs

from cormorant.rules.limits import SourceLimits

_USUAL = SourceLimits()


def dump_limits(limits: SourceLimits) -> str:
    """The limits as text.

    >>> dump_limits(SourceLimits(per_day=300, reset=time(4, 30, tzinfo=UTC)))
    '{"per_day": 300, "reset": "04:30:00"}'
    """
    written: dict[str, Any] = {}
    for each in attrs.fields(SourceLimits):
        value = getattr(limits, each.name)
        if value != getattr(_USUAL, each.name):
            written[each.name] = value.replace(tzinfo=None).isoformat() if isinstance(value, time) else value
    return json.dumps(written)


def load_limits(written: str) -> SourceLimits:
    """The limits that a text means. What an older process does not know is left out.

    >>> load_limits('{"per_day": 300, "reset": "04:30:00"}').reset
    datetime.time(4, 30, tzinfo=datetime.timezone.utc)
    """
    known = {each.name for each in attrs.fields(SourceLimits)}
    values = {name: value for name, value in json.loads(written).items() if name in known}
    if values.get("reset") is not None:
        values["reset"] = time.fromisoformat(values["reset"]).replace(tzinfo=UTC)
    return SourceLimits(**values)
