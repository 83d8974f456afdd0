"""What can go wrong with a source, by name. The class says whether asking again makes sense."""

from __future__ import annotations

from cormorant.rules.errors import CormorantError


class SourceError(CormorantError):
    """A source did not give what was asked of it. `source` is its name, set by whoever knows it."""

    def __init__(self, message: str, *, retry_after_s: float | None = None, source: str = "") -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        self.source = source


class SourceUnavailable(SourceError):
    """The source cannot serve us now. Asking again later may work."""


class Unreachable(SourceUnavailable):
    """There was no connection: what was asked has surely not arrived."""


class SourceLimited(SourceError):
    """The source was asked too fast, or its quota is used up. Asking before `retry_after_s` makes it worse."""


class SourceRefused(SourceError):
    """The source understood us and said no. Asking again will not help."""


class SourceNotAsked(SourceRefused):
    """The source is disabled, or stopped because it refused our key. A person has to act; then it is asked again."""


class CredentialsRefused(SourceError):
    """The source does not accept our key. Stop at once: hammering with a dead key is how accounts are lost."""
