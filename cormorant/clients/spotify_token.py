"""Who lets us in at Spotify? A token for an hour, asked for once however many wait for it."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable
from typing import Final

import trio
from attrs import frozen

from cormorant.rules.search.outcomes import SourceError
from cormorant.rules.secrets import Secret

MARGIN_S: Final = 60.0
"""A token is renewed so long before it ends, or at nine tenths of a shorter life."""

_LONGEST_S: Final = 24 * 3600.0
_LIFE_USED: Final = 0.9


@frozen(kw_only=True)
class Token:
    """What is shown at every request, and how long it is good for."""

    text: Secret
    lasts_s: float


def basic(client_id: str, secret: Secret) -> Secret:
    """The header that asks for a token."""
    pair = f"{client_id}:{secret.reveal()}".encode()
    return Secret(f"Basic {base64.b64encode(pair).decode('ascii')}")


class TokenCache:
    """Keeps the token, and renews it before it ends. Times are those of trio's clock. It may outlive many clients."""

    def __init__(self) -> None:
        self._lock = trio.Lock()
        self._token: Token | None = None
        self._good_until = 0.0
        self._failures = 0
        self._failure: SourceError | None = None

    async def token(self, fetch: Callable[[], Awaitable[Token]]) -> Token:
        """A token that is good, fetched if need be. Raises what asking for one raised, also to those who only waited for it."""
        failures = self._failures
        if self._is_good():
            return self._kept()
        async with self._lock:
            if self._is_good():
                return self._kept()
            # Whoever waited while it failed does not try it once more: a dead key must not be hammered with.
            if self._failures != failures and self._failure is not None:
                raise _again(self._failure)
            return await self._renew(fetch)

    def forget(self, token: Token) -> None:
        """This one was refused. Another that has come meanwhile stays."""
        if self._token is token:
            self._token = None

    async def _renew(self, fetch: Callable[[], Awaitable[Token]]) -> Token:
        asked_at = trio.current_time()
        try:
            self._token = await fetch()
        except SourceError as error:
            self._failures += 1
            self._failure = error
            raise
        lasts_s = min(self._token.lasts_s, _LONGEST_S)
        self._good_until = asked_at + max(lasts_s - MARGIN_S, lasts_s * _LIFE_USED)
        return self._token

    def _is_good(self) -> bool:
        return self._token is not None and trio.current_time() < self._good_until

    def _kept(self) -> Token:
        assert self._token is not None
        return self._token


def _again(error: SourceError) -> SourceError:
    """The same error for another task: one object raised in several tasks mixes up their traces."""
    return type(error)(str(error), retry_after_s=error.retry_after_s, source=error.source)
