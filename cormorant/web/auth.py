"""Key throttling, session cookies, ended sessions."""

from __future__ import annotations

import hashlib
import hmac
import math
import secrets
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import trio
from attrs import define, field, frozen
from litestar.connection import ASGIConnection
from litestar.datastructures import Cookie
from litestar.exceptions import PermissionDeniedException

from actors.environment import Environment
from cormorant.rules.errors import CormorantError, StorageUnavailable
from cormorant.rules.events import WebClientBlocked, WebKeyRefused
from cormorant.rules.web_requests import BLOCKED_S, LogThrottle, LruCache, WrongKeys, address_group
from cormorant.services.keys import Keys
from cormorant.web.parts import database_patience
from storage import access

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

    environment: Environment = field(kw_only=False)
    keys: Keys
    _ended: LruCache[bool] = field(init=False, factory=lambda: LruCache(_ENDED_MAX))

    @property
    def cookie_name(self) -> str:
        """One for each key: cookies do not tell ports apart, and a machine may have two services."""
        return f"cormorant_{self.keys.sign_for(_PURPOSE, 'name').hex()[:8]}"

    def begin(self) -> BrowserSession:
        """Sign a browser in."""
        expires_at = (self.environment.now() + timedelta(seconds=self.environment.settings.web.session_s)).replace(
            microsecond=0
        )
        return self._session(secrets.token_hex(16), int(expires_at.timestamp()))

    def of(self, cookie: str) -> BrowserSession | None:
        """The session of a cookie; None: it is not ours, or it is over."""
        parts = cookie[:_COOKIE_LENGTH_MAX].split(".")
        if len(parts) != _PARTS or not parts[0].isascii() or not parts[0].isdigit():
            return None
        session = self._session(parts[1], int(parts[0][:12]))
        is_ours = hmac.compare_digest(session.cookie.encode(), cookie.encode(errors="surrogatepass"))
        is_over = self._ended.get(session.number) is not None or session.expires_at <= self.environment.now()
        return session if is_ours and not is_over else None

    def end(self, number: str) -> None:
        """Sign a browser out: the cookie is worth nothing from now on, wherever it was copied to."""
        self._ended.put(number, True)  # noqa: FBT003 - what is remembered is that it ended

    def set_cookie(self, session: BrowserSession, *, is_secure: bool) -> Cookie:
        """What a browser is given."""
        left_s = int((session.expires_at - self.environment.now()).total_seconds())
        return self._cookie(session.cookie, max_age=left_s, is_secure=is_secure)

    def drop_cookie(self) -> Cookie:
        """What takes it back."""
        return self._cookie("", max_age=0, is_secure=False)

    def _cookie(self, value: str, *, max_age: int, is_secure: bool) -> Cookie:
        return Cookie(
            key=self.cookie_name,
            value=value,
            path=self.environment.settings.web.url_base,
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


class TooManyTries(CormorantError):
    """From this address so many wrong keys have come that none is looked at now."""

    http_status = 429

    def __init__(self, wait_s: float) -> None:
        super().__init__("too many wrong keys came from this address; wait, and look at the key")
        self.retry_after_s = max(1, math.ceil(wait_s))


@define(eq=False, kw_only=True)
class KeyThrottle:
    """Counts wrong keys. Ask it before a key is compared, and tell it what came of it."""

    environment: Environment = field(kw_only=False)
    _wrong: WrongKeys = field(init=False)
    _said: LogThrottle = field(init=False, factory=LogThrottle)

    def __attrs_post_init__(self) -> None:
        self._wrong = WrongKeys(per_minute=self.environment.settings.web.wrong_keys_per_minute)

    def check(self, connection: ASGIConnection[Any, Any, Any, Any], given: str) -> None:
        """Raise `TooManyTries` when this client's keys are not looked at now."""
        wait_s = self._wrong.wait_s(address_group(client_of(connection)), _mark(given), now=trio.current_time())
        if wait_s > 0:
            raise TooManyTries(wait_s)

    def note(self, connection: ASGIConnection[Any, Any, Any, Any], given: str, *, is_right: bool) -> None:
        """Count a key that was compared."""
        client, now = client_of(connection), trio.current_time()
        group = address_group(client)
        if is_right:
            self._wrong.right(group, _mark(given))
            return
        if self._said.should_log(group, now=now):
            self.environment.emit(WebKeyRefused(path=connection.scope["path"][:200], client=client))
        if self._wrong.wrong(group, now=now):
            self.environment.emit(WebClientBlocked(client=client, for_s=BLOCKED_S))


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


LOOK_S: Final = 2.0
"""After so long a sign-out in another process is known here, and a stream ends whose session is over."""

T = TypeVar("T")


@define(eq=False, kw_only=True)
class SignOuts:
    """Ends sessions for good, and knows which are still open."""

    environment: Environment = field(kw_only=False)
    sessions: BrowserSessions
    _owed: dict[str, datetime] = field(init=False, factory=dict)
    """Signed out here and not yet written down: the database was away."""
    _looked_at: float = field(init=False, default=-math.inf)
    _is_known: bool = field(init=False, default=False)
    """Whether the database was seen since the start."""
    _turn: trio.Lock = field(init=False, factory=trio.Lock)
    _listening: dict[trio.CancelScope, str] = field(init=False, factory=dict)
    """The cookies of those who listen."""
    _is_watched: trio.Event = field(init=False, factory=trio.Event)
    """Set when a browser listens, or a sign-out is owed to the database."""

    async def session_in(self, connection: ASGIConnection[Any, Any, Any, Any]) -> BrowserSession | None:
        """The session of a request, if it was not signed out."""
        return await self.session_of(connection.cookies.get(self.sessions.cookie_name, ""))

    async def session_of(self, cookie: str) -> BrowserSession | None:
        """The session of a cookie, if it was not signed out."""
        if self.sessions.of(cookie) is None:
            return None
        await self._look()
        if not self._is_known:
            raise StorageUnavailable("who has signed out cannot be looked up now: ask again later, or use the key")
        return self.sessions.of(cookie)

    async def end(self, session: BrowserSession) -> None:
        """Sign a browser out, everywhere and for good. What the database cannot take now it is given later."""
        self.sessions.end(session.number)
        self._owed[session.number] = session.expires_at
        self._is_watched.set()
        self._end_streams()
        async with self._turn:
            await self._write()

    async def watch(self) -> None:
        """End streams of those who were signed out elsewhere, or whose time is over. Runs as long as the server."""
        while True:
            await self._is_watched.wait()
            while self._listening or self._owed:
                await trio.sleep(LOOK_S)
                await self._look()
                self._end_streams()
            self._is_watched = trio.Event()

    def permit(self, connection: ASGIConnection[Any, Any, Any, Any]) -> ListenPermit:
        """How long one who was let in may listen."""
        cookie = "" if given_key(connection) else connection.cookies.get(self.sessions.cookie_name, "")
        return ListenPermit(self, cookie)

    @contextmanager
    def listening(self, cookie: str) -> Iterator[trio.CancelScope]:
        """A scope that is cancelled when the session is over."""
        with trio.CancelScope() as scope:
            self._listening[scope] = cookie
            self._is_watched.set()
            try:
                yield scope
            finally:
                del self._listening[scope]

    def _end_streams(self) -> None:
        for scope, cookie in list(self._listening.items()):
            if self.sessions.of(cookie) is None:
                scope.cancel()

    async def _look(self) -> None:
        async with self._turn:
            if trio.current_time() - self._looked_at < LOOK_S:
                return
            await self._write()
            with database_patience():
                for number in await self.environment.database.read(access.ended_sessions, now=self.environment.now()):
                    self.sessions.end(number)
                self._is_known = True
            self._looked_at = trio.current_time()  # at the end: whoever waited for this look need not look again

    async def _write(self) -> None:
        owed = dict(self._owed)
        if not owed:
            return
        with database_patience():
            await self.environment.database.run(access.end_session, owed, now=self.environment.now())
            for number in owed:
                self._owed.pop(number, None)


@define(eq=False)
class ListenPermit:
    """How long somebody may listen: with a cookie until its session is over, with a key as long as the server runs."""

    sign_outs: SignOuts
    cookie: str = field(repr=False)

    @property
    def is_over(self) -> bool:
        """Whether no more may be told."""
        return bool(self.cookie) and self.sign_outs.sessions.of(self.cookie) is None

    async def run_until_signed_out(self, work: Callable[[], Awaitable[T]]) -> T | None:
        """What comes of something that may wait for long; None when the session is over first."""
        if not self.cookie:
            return await work()
        result: T | None = None
        if not self.is_over:
            with self.sign_outs.listening(self.cookie):
                result = await work()
        return result
