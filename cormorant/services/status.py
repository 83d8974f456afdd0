"""ServiceMonitor: whether the service is ready, and its tree."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import frozen

from cormorant.rules.supervision import ChildView


@frozen(kw_only=True)
class ServiceMonitor:
    """The state of a service for those that show it. The service itself is in a higher layer."""

    is_ready: Callable[[], bool]
    children: Callable[[], Sequence[ChildView]]
    """The children of the root, with their own children."""
