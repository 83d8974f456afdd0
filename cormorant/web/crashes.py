"""Reports of requests that fail because of what they hold, bounded so that a client cannot fill the log."""

from __future__ import annotations

import trio
from attrs import define, field

from cormorant.rules.events import WebBodyTooDeep, WebRequestCrashed
from cormorant.rules.ports import Emit
from cormorant.rules.web_requests import LogThrottle

__all__ = ["Crashes", "kind_of"]

_PATH_MAX = 200


@define(eq=False, kw_only=True)
class Crashes:
    """Emits an event for each kind of error at most once a minute in all, with the number of those left out."""

    emit: Emit
    _said: LogThrottle = field(init=False, factory=LogThrottle)

    def crashed(self, error: BaseException, *, method: str, path: str) -> None:
        """Report a request that was answered with 500."""
        left_out = self._said.say_or_count(kind_of(error), now=trio.current_time())
        if left_out is not None:
            self.emit(WebRequestCrashed(method=method, path=path[:_PATH_MAX], error=error, left_out=left_out))

    def too_deep(self, *, client: str, path: str) -> None:
        """Report a body that was refused for its nesting."""
        left_out = self._said.say_or_count("too deep", now=trio.current_time())
        if left_out is not None:
            self.emit(WebBodyTooDeep(client=client, path=path[:_PATH_MAX], left_out=left_out))


def kind_of(error: BaseException) -> str:
    """The type of an error and the line that raised it. Nothing in it comes from a request."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = "" if trace is None else f" {trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
    return f"{type(error).__qualname__}{where}"
