"""Tables, the transactions over them, migrations and the gateway. No outside system but the database."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from storage.database import Database
    from storage.engine.columns import from_micros, to_micros
    from storage.jobs.jobs import NewJob
    from storage.search.answers import read_answers

__all__ = ["Database", "NewJob", "from_micros", "read_answers", "to_micros"]

_LOADED_LATE = {
    "Database": "storage.database",
    "NewJob": "storage.jobs.jobs",
    "from_micros": "storage.engine.columns",
    "read_answers": "storage.search.answers",
    "to_micros": "storage.engine.columns",
}


def __getattr__(name: str) -> Any:
    """Load a public name on first use: a module of this package must not load all others."""
    if name in _LOADED_LATE:
        return getattr(import_module(_LOADED_LATE[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
