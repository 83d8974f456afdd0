"""How a test makes parts of the search branch crash, and looks at what they share."""

from __future__ import annotations

from typing import Any

from actors.search.source_requests import SourceRequests
from actors.search.waiting import SlotWaiters
from supervisors import Service

BOMB: Any = object()
"""A message that nobody can handle: whoever takes it crashes."""


def _child(service: Service, *path: str) -> Any:
    found: Any = service._root  # noqa: SLF001 - there is no polite way to make a part crash
    for name in path:
        found = found._table[name].spec.run  # noqa: SLF001 - as above
    return found


def crash_limiter(service: Service, source: str, *, times: int = 1) -> None:
    """Let the limiter of a source crash, and so many of its successors."""
    for _ in range(times):
        _child(service, "search", "sources", f"rate_limiter:{source}").served._address.tell_nowait(BOMB)  # noqa: SLF001 - as above


def crash_dispatcher(service: Service) -> None:
    """Let the dispatcher crash."""
    _child(service, "search", "dispatcher")._address.tell_nowait(BOMB)  # noqa: SLF001 - as above


def slots_of(service: Service) -> SlotWaiters:
    """The slots that all sources share."""
    made = _child(service, "search", "dispatcher")._make
    slots: SlotWaiters = made.__self__.slots
    return slots


def desk_of(service: Service, source: str) -> SourceRequests:
    """The desk of a source."""
    return service.sources.directory.by_name[source]
