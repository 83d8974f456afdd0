"""Who may try a key? Nobody who has just tried many wrong ones; and a thousand tries are one line in the log."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import trio
from attrs import define, field
from litestar.connection import ASGIConnection

from cormorant.rules.errors import CormorantError
from cormorant.rules.events import WebClientBlocked, WebKeyRefused
from cormorant.rules.ports import Emit
from cormorant.rules.web_requests import BLOCKED_S, LogThrottle, WrongKeys, address_group

__all__ = ["KeyThrottle", "TooManyTries", "client_of", "given_key"]


class TooManyTries(CormorantError):
    """From this address so many wrong keys have come that none is looked at now."""

    def __init__(self, wait_s: float) -> None:
        super().__init__("too many wrong keys came from this address; wait, and look at the key")
        self.retry_after_s = max(1, math.ceil(wait_s))


@define(eq=False, kw_only=True)
class KeyThrottle:
    """Counts wrong keys. Ask it before a key is compared, and tell it what came of it."""

    wrong_keys_per_minute: int
    emit: Emit
    _wrong: WrongKeys = field(init=False)
    _said: LogThrottle = field(init=False, factory=LogThrottle)

    def __attrs_post_init__(self) -> None:
        self._wrong = WrongKeys(per_minute=self.wrong_keys_per_minute)

    def check(self, client: str, given: str) -> None:
        """Raise `TooManyTries` when this client's keys are not looked at now."""
        wait_s = self._wrong.wait_s(address_group(client), _mark(given), now=trio.current_time())
        if wait_s > 0:
            raise TooManyTries(wait_s)

    def accepted(self, client: str, given: str) -> None:
        """The key was right."""
        self._wrong.right(address_group(client), _mark(given))

    def refused(self, client: str, *, path: str) -> None:
        """The key was wrong."""
        group, now = address_group(client), trio.current_time()
        if self._said.is_news(group, now=now):
            self.emit(WebKeyRefused(path=path[:200], client=client))
        if self._wrong.wrong(group, now=now):
            self.emit(WebClientBlocked(client=client, for_s=BLOCKED_S))


def client_of(connection: ASGIConnection[Any, Any, Any, Any]) -> str:
    """The address that a request came from, as far as it can be believed."""
    return connection.client.host if connection.client else ""


def given_key(connection: ASGIConnection[Any, Any, Any, Any]) -> str:
    """The key that somebody has sent; empty: none."""
    kind, _, token = connection.headers.get("authorization", "").partition(" ")
    bearer = token.strip() if kind.lower() == "bearer" else ""
    return connection.headers.get("x-api-key") or connection.query_params.get("apikey") or bearer


def _mark(given: str) -> str:
    # Not the key itself: what is remembered for long should open nothing.
    return hashlib.sha256(given.encode(errors="surrogatepass")).hexdigest()[:32]
