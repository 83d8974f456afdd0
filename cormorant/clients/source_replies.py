"""What does a reply of an indexer mean: go on, wait, give up, or stop at once?

The code in the document decides before the HTTP status, and both before any text: Jackett says "bad key" with HTTP 200, NNTmux
says "limit" with code 500, and every server words it differently.
"""

from __future__ import annotations

from attrs import frozen

from cormorant.rules.search.outcomes import (
    CredentialsRefused,
    SourceError,
    SourceLimited,
    SourceRefused,
    SourceUnavailable,
)

_OK = range(200, 300)
_ACCOUNT = range(100, 200)
_CALL_OR_CONTENT = range(200, 400)
_CLIENT_ERRORS = range(400, 500)
_CREDENTIALS = {401, 403}
_LIMITS = {429, 500, 501}
_TOO_MANY_REQUESTS = 429
_GONE = 410
_MISSING_PARAMETER = 200
# "Took too long" and "too early" are about the moment, not about what was asked.
_PASSING = {408, 425}
_LIMIT_WORDS = ("request limit reached", "you have reached your daily limit", "download limit reached")


@frozen(kw_only=True)
class IndexerReply:
    """What of a reply decides. `code` is that of an error document; `words` are the server's own, without secrets."""

    status: int
    code: int | None = None
    words: str = ""
    retry_after_s: float | None = None
    key_was_sent: bool = True

    @property
    def is_error(self) -> bool:
        """Whether the document or the status says that something is wrong. A code of 200 is no success."""
        return self.code is not None or bool(self.words) or self.status not in _OK


def error_of(reply: IndexerReply) -> SourceError | None:
    """The error that a reply stands for; None when it is none.

    >>> for status, code in (200, 100), (429, 900), (200, 500), (400, 201), (503, None), (200, None):
    ...     print(type(error_of(IndexerReply(status=status, code=code))).__name__)
    CredentialsRefused
    SourceLimited
    SourceLimited
    SourceRefused
    SourceUnavailable
    NoneType
    """
    if not reply.is_error:
        return None
    said = _told(reply)
    if _is_about_credentials(reply):
        return CredentialsRefused(f"it does not accept our key ({said}); check the key, then enable the source again")
    if _is_limit(reply):
        return SourceLimited(f"it wants to be asked less ({said})", retry_after_s=reply.retry_after_s)
    if _is_final(reply):
        return SourceRefused(f"it refused the request ({said})", retry_after_s=reply.retry_after_s)
    return SourceUnavailable(f"it cannot serve us now ({said})", retry_after_s=reply.retry_after_s)


def _is_about_credentials(reply: IndexerReply) -> bool:
    if reply.code is None:
        return reply.status in _CREDENTIALS
    if reply.code == _MISSING_PARAMETER and not reply.key_was_sent and "key" in reply.words.lower():
        return True
    is_unsaid = reply.code not in _CALL_OR_CONTENT and reply.code not in _LIMITS
    return reply.code in _ACCOUNT or reply.code in _CREDENTIALS or (is_unsaid and reply.status in _CREDENTIALS)


def _is_limit(reply: IndexerReply) -> bool:
    if reply.code in _LIMITS or reply.status == _TOO_MANY_REQUESTS:
        return True
    return reply.words.lower().startswith(_LIMIT_WORDS)


def _is_final(reply: IndexerReply) -> bool:
    if reply.code is not None:
        return reply.code in _CALL_OR_CONTENT or reply.code == _GONE
    return reply.status in _CLIENT_ERRORS and reply.status not in _PASSING


def _told(reply: IndexerReply) -> str:
    parts = [f"HTTP {reply.status}"]
    if reply.code is not None:
        parts.append(f"code {reply.code}")
    if reply.words:
        parts.append(reply.words)
    return ", ".join(parts)
