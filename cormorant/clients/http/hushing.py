"""Who keeps quiet while keys are on the way? The libraries below us, which would log headers and links."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_is_ours: ContextVar[bool] = ContextVar("cormorant_request", default=False)


for _name in ("http11", "http2", "connection", "proxy", "socks"):
    logging.getLogger(f"httpcore2.{_name}").addFilter(lambda _record: not _is_ours.get())


@contextmanager
def hushed() -> Iterator[None]:
    """Keep the log of the HTTP library silent in this task. What other tasks and programs do with it is still logged."""
    token = _is_ours.set(True)
    try:
        yield
    finally:
        _is_ours.reset(token)
