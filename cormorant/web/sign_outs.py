"""Who was signed out, here, in another process or before a restart? Kept in the database; whoever still listens is ended."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any, Final, TypeVar

import trio
from attrs import define, field
from litestar.connection import ASGIConnection

from cormorant.rules.errors import CommitUnknown, StorageUnavailable
from cormorant.rules.ports import Clock
from cormorant.web.auth import BrowserSession, BrowserSessions
from cormorant.web.porter import given_key
from storage import access
from storage.database import Database

__all__ = ["ListenPermit", "SignOuts"]

LOOK_S: Final = 2.0
"""After so long a sign-out in another process is known here, and a stream ends whose session is over."""
_PATIENCE_S: Final = 2.0

T = TypeVar("T")


@define(eq=False, kw_only=True)
class SignOuts:
    """Ends sessions for good, and knows which are still open."""

    sessions: BrowserSessions
    database: Database
    clock: Clock
    _owed: dict[str, datetime] = field(init=False, factory=dict)
    """Signed out here and not yet written down: the database was away."""
    _looked_at: float = field(init=False, default=-math.inf)
    _is_known: bool = field(init=False, default=False)
    """Whether the database was seen since the start."""
    _turn: trio.Lock = field(init=False, factory=trio.Lock)
    _listening: dict[trio.CancelScope, str] = field(init=False, factory=dict)
    """The cookies of those who listen."""

    async def session_of(self, cookie: str) -> BrowserSession | None:
        """The session of a cookie, if nobody has signed it out."""
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
        self._end_streams()
        async with self._turn:
            await self._write()

    async def watch(self) -> None:
        """End streams of those who were signed out elsewhere, or whose time is over. Runs as long as the server."""
        while True:
            await trio.sleep(LOOK_S)
            if self._listening or self._owed:
                await self._look()
                self._end_streams()

    def permit(self, connection: ASGIConnection[Any, Any, Any, Any]) -> ListenPermit:
        """How long one who was let in may listen."""
        cookie = "" if given_key(connection) else connection.cookies.get(self.sessions.cookie_name, "")
        return ListenPermit(self, cookie)

    @contextmanager
    def listening(self, cookie: str) -> Iterator[trio.CancelScope]:
        """A scope that is cancelled when the session is over."""
        with trio.CancelScope() as scope:
            self._listening[scope] = cookie
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
            with trio.move_on_after(_PATIENCE_S), suppress(StorageUnavailable, CommitUnknown):
                for number in await self.database.read(access.ended_sessions, now=self.clock.now()):
                    self.sessions.end(number)
                self._is_known = True
            self._looked_at = trio.current_time()  # at the end: whoever waited for this look need not look again

    async def _write(self) -> None:
        owed = dict(self._owed)
        with trio.move_on_after(_PATIENCE_S):
            try:
                if owed:
                    await self.database.run(access.end_session, owed, now=self.clock.now())
            except (StorageUnavailable, CommitUnknown):
                return
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

    async def unless_over(self, work: Callable[[], Awaitable[T]]) -> T | None:
        """What comes of something that may wait for long; None when the session is over first."""
        if not self.cookie:
            return await work()
        result: T | None = None
        if not self.is_over:
            with self.sign_outs.listening(self.cookie):
                result = await work()
        return result
