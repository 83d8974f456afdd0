"""What does a reply of slskd to a search mean: wait a moment, give up, or stop at once?"""

from __future__ import annotations

from typing import Final

from cormorant.rules.search.outcomes import CredentialsRefused, SourceError, SourceRefused, SourceUnavailable

BUSY_S: Final = 2.0
"""slskd starts one search at a time, and does not say when the next may come: it takes a moment."""

OFFLINE_S: Final = 60.0
"""After so long it may be connected to Soulseek again."""

_OK: Final = range(200, 300)
_CLIENT_ERRORS: Final = range(400, 500)
_CREDENTIALS: Final = {401, 403}
_NOT_FOUND: Final = {404, 405}
_PASSING: Final = {
    409: ("slskd is not connected to Soulseek", OFFLINE_S),
    429: ("slskd is just starting another search", BUSY_S),
}


def error_of_search(status: int, words: str = "") -> SourceError | None:
    """The error that a reply stands for; None when it is none.

    >>> for status in 200, 401, 404, 409, 429, 400, 500:
    ...     print(status, type(error_of_search(status)).__name__)
    200 NoneType
    401 CredentialsRefused
    404 SourceRefused
    409 SourceUnavailable
    429 SourceUnavailable
    400 SourceRefused
    500 SourceUnavailable
    """
    said = f"HTTP {status}, {words}" if words else f"HTTP {status}"
    if status in _OK:
        return None
    if status in _CREDENTIALS:
        return CredentialsRefused(
            f"slskd does not accept our key ({said}); check the key, its role and the addresses it is bound to"
        )
    if status in _NOT_FOUND:
        return SourceRefused(f"there is no slskd at this address ({said}); check the address, also its url_base")
    passing = _PASSING.get(status)
    if passing is not None:
        return SourceUnavailable(f"{passing[0]} ({said})", retry_after_s=passing[1])
    if status in _CLIENT_ERRORS:
        return SourceRefused(f"slskd refused the search ({said})")
    return SourceUnavailable(f"slskd cannot search now ({said})")
