"""How are the limits of a source kept? As JSON of what differs from the usual, so that new limits need no new columns."""

from __future__ import annotations

import json
from datetime import time, tzinfo
from typing import Any

import attrs

from cormorant.rules.search.limits import SourceLimits
from cormorant.rules.units import zone_of

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
