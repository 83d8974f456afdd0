"""How are calls served without any thread? In the caller's own task, for tests and the simulator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import trio
from sqlalchemy import Connection
from trio.lowlevel import checkpoint
from typing_extensions import override

from storage.calls import Away, Call, Line
from storage.desk import Desk
from storage.gateway import Gateway, Parts

T = TypeVar("T")


class Inline(Gateway):
    """Serves each call at once, in its own transaction. An outage can be played."""

    def __init__(self, parts: Parts, *, is_away: Callable[[], bool]) -> None:
        self._line = Line()
        super().__init__(parts, [self._line])
        self._is_away = is_away
        self._desk = Desk(parts.dialect.open_session)

    @override
    async def submit(self, work: Callable[[Connection], T], *, reads_only: bool) -> T:
        await checkpoint()
        call = Call(work, reads_only=reads_only)
        await self._enter(call)
        if self._outage.is_on:
            self._line.put(call)
        else:
            self._serve([call])
        if call.outcome is None:
            return await self._room.wait(call, self._line)
        self._room.leave()
        return call.outcome.unwrap()

    @override
    async def serve(self, started: Callable[[], None]) -> None:
        is_ready = await self._try_to_prepare()
        try:
            async with trio.open_nursery() as watchers:
                watchers.start_soon(self._outage.expire)
                watchers.start_soon(self._watch_outages, is_ready)
                started()
                await self._stopping.wait()
                watchers.cancel_scope.cancel()
        finally:
            self.stop()
            self._desk.close()
            self._refuse_all()
        self._raise_failure()

    @override
    async def _prepare(self) -> None:
        self._check_played_outage()
        self._parts.tell(self._parts.prepare())

    @override
    async def _probe(self) -> None:
        await self._prepare()
        self._parts.dialect.probe()

    @override
    def _resume(self) -> None:
        """Serve those who waited, in order, as far as the database stays."""
        self._line.resume()
        calls = self._line.take_now()
        for index, call in enumerate(calls):
            if self._outage.is_on:
                self._line.put_back(calls[index:])
                return
            self._serve([call])
            if call.outcome is not None:
                self._room.answer([call])

    def _serve(self, calls: Sequence[Call[Any]]) -> None:
        away = self._attempt(calls)
        if away is not None:
            held = [call for call in calls if call.outcome is None]
            self._line.put_back(held)
            self._outage.hold(held, self._line, away)

    def _attempt(self, calls: Sequence[Call[Any]]) -> Away | None:
        try:
            self._check_played_outage()
        except Away as away:
            self._desk.close()  # as in a real one: in memory the probe uses the same connection, which may be set to read only
            return away
        return self._desk.serve(calls)

    def _check_played_outage(self) -> None:
        if self._is_away():
            raise Away("an outage is played")
