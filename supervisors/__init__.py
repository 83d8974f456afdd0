"""Ownership, restarts and the order of starting and stopping; `open_service`. No business logic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cormorant.rules.supervision import ChildState, ChildView, Ending, OnExhausted, Restart, Strategy
from supervisors.child import ChildReport, ChildSpec, ShutdownReport
from supervisors.supervisor import Supervisor

if TYPE_CHECKING:
    from supervisors.service import Service, open_service

__all__ = [
    "ChildReport",
    "ChildSpec",
    "ChildState",
    "ChildView",
    "Ending",
    "OnExhausted",
    "Restart",
    "Service",
    "ShutdownReport",
    "Strategy",
    "Supervisor",
    "open_service",
]


def __getattr__(name: str) -> Any:
    """Load the service only for those who use it: the kit alone needs no database."""
    if name in {"Service", "open_service"}:
        from supervisors import service  # noqa: PLC0415 - loaded late on purpose

        return getattr(service, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
