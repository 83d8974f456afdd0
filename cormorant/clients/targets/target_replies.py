"""What does the HTTP status of a target mean for the parcel: taken, not now, never, or perhaps?"""

from __future__ import annotations

from attrs import frozen

from cormorant.rules.watch.handovers import (
    TargetError,
    TargetInDoubt,
    TargetMisconfigured,
    TargetRefused,
    TargetUnavailable,
)

_GOOD = range(200, 300)
_REDIRECTS = range(300, 400)
_CLIENT_ERRORS = range(400, 500)
_CREDENTIALS = {401, 403, 407}
_MISSING = {404, 405}
# Said before anything is done with a request. 502 and 504 come from a proxy that may have passed it on.
_NOT_NOW = {408, 425, 429, 503, 507}


@frozen(kw_only=True)
class TargetReply:
    """What of a reply decides. `words` are the server's own, without secrets."""

    name: str
    """How the target is called in messages."""
    status: int
    words: str = ""
    retry_after_s: float | None = None


def error_of_reply(reply: TargetReply) -> TargetError | None:
    """The error that a reply stands for; None when the status is good.

    >>> for status in 200, 302, 401, 404, 413, 429, 500, 502, 503:
    ...     print(status, type(error_of_reply(TargetReply(name="x", status=status))).__name__)
    200 NoneType
    302 TargetMisconfigured
    401 TargetMisconfigured
    404 TargetMisconfigured
    413 TargetRefused
    429 TargetUnavailable
    500 TargetInDoubt
    502 TargetInDoubt
    503 TargetUnavailable
    """
    status, name = reply.status, reply.name
    said = f"HTTP {status}, {reply.words}" if reply.words else f"HTTP {status}"
    remedy = _remedy(status)
    if status in _GOOD:
        return None
    if remedy is not None:
        return TargetMisconfigured(f"{name} {remedy[0]} ({said}); {remedy[1]}")
    if status in _NOT_NOW:
        return TargetUnavailable(f"{name} cannot take it now ({said})", retry_after_s=reply.retry_after_s)
    if status in _CLIENT_ERRORS:
        return TargetRefused(f"{name} refused it ({said})")
    return TargetInDoubt(f"{name} failed while it had it ({said})", retry_after_s=reply.retry_after_s)


def _remedy(status: int) -> tuple[str, str] | None:
    """What is wrong with how the target is set up, and what to do; None when the status says nothing of it."""
    if status in _REDIRECTS:
        return "redirects", "write the address that it leads to into the settings"
    if status in _CREDENTIALS:
        return "does not let us in", "check user, password and key"
    if status in _MISSING:
        return "is not at this address", "check host, port and path"
    return None
