"""What follows from the status by which a feed, or a link of one, is answered?"""

from __future__ import annotations

from http import HTTPStatus

from cormorant.rules.search.outcomes import SourceError, SourceLimited, SourceRefused, SourceUnavailable

_BUSY = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY}


def error_of_feed(status: int, *, asked: str, retry_after_s: float | None = None) -> SourceError | None:
    """The error, or None when it is fine. `asked` is what was asked for, for people.

    >>> print(error_of_feed(410, asked="the feed at https://x.org"))
    the feed at https://x.org is gone for good (HTTP 410); remove it, or write its new address
    """
    if status in range(200, 300):
        return None
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return SourceLimited(
            f"{asked} was asked for too often (HTTP 429); check it less often", retry_after_s=retry_after_s
        )
    if status in _BUSY or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return SourceUnavailable(f"{asked} cannot be had now (HTTP {status})", retry_after_s=retry_after_s)
    return SourceRefused(f"{asked} {_refusal(status)}")


def _refusal(status: int) -> str:
    if status == HTTPStatus.GONE:
        return "is gone for good (HTTP 410); remove it, or write its new address"
    if status == HTTPStatus.NOT_FOUND:
        return "is not there (HTTP 404); check its address"
    if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.PROXY_AUTHENTICATION_REQUIRED}:
        return f"is not given to us (HTTP {status}); check the key or password in its address"
    return f"was refused (HTTP {status}); check its address"
