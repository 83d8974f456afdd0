"""Is this browser signed in? A cookie that only we can have written, for a bounded time; and a word for each change it makes."""

from __future__ import annotations

import hmac
import secrets
from collections import OrderedDict
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import urlsplit

from attrs import define, field, frozen
from litestar.connection import ASGIConnection
from litestar.datastructures import Cookie
from litestar.exceptions import PermissionDeniedException

from cormorant.rules.ports import Clock
from cormorant.services.keys import Keys

__all__ = ["CHANGE_HEADER", "BrowserSession", "BrowserSessions", "check_change", "check_own_page"]

CHANGE_HEADER: Final = "X-Csrf-Token"
SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})

_COOKIE_LENGTH_MAX: Final = 300
_PARTS: Final = 3
_ENDED_MAX: Final = 10_000
"""So many that were signed out are remembered until they would have ended by themselves; then the oldest is forgotten."""

_PURPOSE: Final = "sessions of the page"


@frozen(kw_only=True)
class BrowserSession:
    """A browser that is signed in."""

    number: str
    expires_at: datetime
    cookie: str = field(repr=False)
    change_token: str = field(repr=False)


@define(eq=False, kw_only=True)
class BrowserSessions:
    """Makes sessions and knows them again. They are not stored: whoever changes the key ends them all."""

    keys: Keys
    life_s: float
    path: str
    clock: Clock
    _ended: OrderedDict[str, None] = field(init=False, factory=OrderedDict)

    @property
    def cookie_name(self) -> str:
        """One for each key: cookies do not tell ports apart, and a machine may have two services."""
        return f"cormorant_{self.keys.sign_for(_PURPOSE, 'name').hex()[:8]}"

    def begin(self) -> BrowserSession:
        """Sign a browser in."""
        expires_at = (self.clock.now() + timedelta(seconds=self.life_s)).replace(microsecond=0)
        return self._session(secrets.token_hex(16), int(expires_at.timestamp()))

    def of(self, cookie: str) -> BrowserSession | None:
        """The session of a cookie; None: it is not ours, or it is over."""
        parts = cookie[:_COOKIE_LENGTH_MAX].split(".")
        if len(parts) != _PARTS or not parts[0].isascii() or not parts[0].isdigit():
            return None
        session = self._session(parts[1], int(parts[0][:12]))
        is_ours = hmac.compare_digest(session.cookie.encode(), cookie.encode(errors="surrogatepass"))
        is_over = session.number in self._ended or session.expires_at <= self.clock.now()
        return session if is_ours and not is_over else None

    def end(self, number: str) -> None:
        """Sign a browser out: the cookie is worth nothing from now on, wherever it was copied to."""
        self._ended[number] = None
        self._ended.move_to_end(number)
        while len(self._ended) > _ENDED_MAX:
            self._ended.popitem(last=False)

    def set_cookie(self, session: BrowserSession, *, is_secure: bool) -> Cookie:
        """What a browser is given."""
        left_s = int((session.expires_at - self.clock.now()).total_seconds())
        return self._cookie(session.cookie, max_age=left_s, is_secure=is_secure)

    def drop_cookie(self) -> Cookie:
        """What takes it back."""
        return self._cookie("", max_age=0, is_secure=False)

    def _cookie(self, value: str, *, max_age: int, is_secure: bool) -> Cookie:
        return Cookie(
            key=self.cookie_name,
            value=value,
            path=self.path,
            max_age=max_age,
            httponly=True,
            samesite="strict",
            secure=is_secure,
        )

    def _session(self, number: str, expires: int) -> BrowserSession:
        signature = self.keys.sign_for(_PURPOSE, "cookie", number, str(expires)).hex()
        return BrowserSession(
            number=number,
            expires_at=datetime.fromtimestamp(min(expires, _LAST), UTC),
            cookie=f"{expires}.{number}.{signature}",
            change_token=self.keys.sign_for(_PURPOSE, "changes", number).hex(),
        )


_LAST: Final = 253_402_300_799
"""The last second of the year 9999: beyond it Python has no dates."""


def check_change(connection: ASGIConnection[Any, Any, Any, Any], session: BrowserSession) -> None:
    """A change needs the token of the session, too, and must come from our own page."""
    if connection.scope.get("method", "GET") in SAFE_METHODS:
        return
    given = connection.headers.get(CHANGE_HEADER, "")
    if not hmac.compare_digest(given.encode(errors="surrogatepass"), session.change_token.encode()):
        raise PermissionDeniedException(f"the header {CHANGE_HEADER} is missing or wrong; load the page anew")
    check_own_page(connection)


def check_own_page(connection: ASGIConnection[Any, Any, Any, Any]) -> None:
    """Refuse what a page of somebody else has sent. Programs send neither of these headers."""
    site = connection.headers.get("sec-fetch-site")
    if site is not None and site not in {"same-origin", "none"}:
        raise PermissionDeniedException("a page of another site has sent this; only our own may")
    origin = connection.headers.get("origin")
    if site is None and origin is not None and urlsplit(origin).netloc.lower() not in _own_hosts(connection):
        raise PermissionDeniedException(f"this was sent by {origin[:100]!r}; only our own page may")


def _own_hosts(connection: ASGIConnection[Any, Any, Any, Any]) -> set[str]:
    # No page can set either of them for a request to another site.
    names = (connection.headers.get("host", ""), connection.headers.get("x-forwarded-host", ""))
    return {name.lower() for name in names if name}
