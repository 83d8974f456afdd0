"""Long-lived tasks with a mailbox or a clock. Decisions are in `cormorant.rules`, ownership is in `supervisors`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from actors.actor import Actor, Address, Reply

if TYPE_CHECKING:
    from actors.environment import Clients, Environment
    from actors.jobs.handler import Handler, JobContext
    from storage.database import SystemClock

__all__ = ["Actor", "Address", "Clients", "Environment", "Handler", "JobContext", "Reply", "SystemClock"]

_LOADED_LATE = {
    "Clients": "actors.environment",
    "Environment": "actors.environment",
    "Handler": "actors.jobs.handler",
    "JobContext": "actors.jobs.handler",
    "SystemClock": "storage.database",
}


def __getattr__(name: str) -> Any:
    """Load what needs SQLAlchemy on first use: the supervisor kit alone needs no database."""
    if name in _LOADED_LATE:
        return getattr(import_module(_LOADED_LATE[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
