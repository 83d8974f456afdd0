"""What a program can do: operations, job handlers and the gate."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cormorant.services.durable_search import payload_for

__all__ = ["payload_for"]


def __getattr__(name: str) -> Any:
    """Load a public name on first use: a module of this package must not load all others."""
    if name in __all__:
        return getattr(import_module("cormorant.services.durable_search"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
