"""What does a reply of Spotify mean: wait, give up, renew the token, or stop at once?"""

from __future__ import annotations

from typing import Final

from attrs import frozen

from cormorant.rules.search.outcomes import (
    CredentialsRefused,
    SourceError,
    SourceLimited,
    SourceRefused,
    SourceUnavailable,
)

QUOTA: Final = "QUOTA_EXCEEDED"
UNAUTHORIZED: Final = 401
_OK: Final = range(200, 300)
_CLIENT_ERRORS: Final = range(400, 500)
_NOT_FOUND: Final = 404
_TOO_MANY_REQUESTS: Final = 429
_PASSING: Final = {408, 425}
_BAD_CLIENT: Final = {"invalid_client", "unauthorized_client"}


@frozen(kw_only=True)
class SpotifyReply:
    """What of a reply decides. `asked` is what was asked for, in words; `words` are Spotify's own, without secrets."""

    status: int
    asked: str
    words: str = ""
    reason: str = ""
    retry_after_s: float | None = None

    @property
    def said(self) -> str:
        """The status and the words."""
        return f"HTTP {self.status}, {self.words}" if self.words else f"HTTP {self.status}"


def error_of_token(reply: SpotifyReply) -> SourceError | None:
    """The error that a reply to the request for a token stands for; None when there is a token.

    >>> reply = SpotifyReply(status=400, asked="a token", words="Invalid client", reason="invalid_client")
    >>> print(error_of_token(reply))
    Spotify does not accept our client id and secret (HTTP 400, Invalid client); check both, then enable the source again
    """
    if reply.status == UNAUTHORIZED or (reply.status in _CLIENT_ERRORS and reply.reason in _BAD_CLIENT):
        return CredentialsRefused(
            f"Spotify does not accept our client id and secret ({reply.said}); check both, then enable the source again"
        )
    return error_of_api(reply)


def error_of_api(reply: SpotifyReply) -> SourceError | None:
    """The error that any other reply stands for; None when it is none. A first 401 is not for here: renew the token.

    >>> for status in 200, 401, 403, 404, 429, 502:
    ...     print(type(error_of_api(SpotifyReply(status=status, asked="artist x"))).__name__)
    NoneType
    CredentialsRefused
    SourceRefused
    SourceRefused
    SourceLimited
    SourceUnavailable
    """
    if reply.status in _OK:
        return None
    if reply.status == _TOO_MANY_REQUESTS:
        return _limited(reply)
    if reply.status == UNAUTHORIZED:
        return CredentialsRefused(
            f"Spotify does not accept the token that it has just given us ({reply.said}); check the app at Spotify"
        )
    if reply.status == _NOT_FOUND:
        return SourceRefused(f"Spotify does not know {reply.asked} ({reply.said}); check the id")
    if reply.status in _CLIENT_ERRORS and reply.status not in _PASSING:
        return SourceRefused(f"Spotify refused to give {reply.asked} ({reply.said})")
    return SourceUnavailable(f"Spotify cannot serve us now ({reply.said})", retry_after_s=reply.retry_after_s)


def _limited(reply: SpotifyReply) -> SourceLimited:
    if reply.reason == QUOTA:
        message = (
            f"the quota of the developer account at Spotify is used up ({reply.said}, {QUOTA}); "
            "all its client ids share it"
        )
    else:
        message = f"Spotify wants to be asked less ({reply.said})"
    return SourceLimited(message, retry_after_s=reply.retry_after_s)
