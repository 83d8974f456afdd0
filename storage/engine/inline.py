"""Gateway without threads, for tests and simulation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import trio
from sqlalchemy import Connection
from trio.lowlevel import ParkingLot, checkpoint_if_cancelled
from typing_extensions import override

from storage.engine.calls import Call, CallQueue, ConnectionWorker, DatabaseAway
from storage.engine.gateway import Gateway, GatewayParts

T = TypeVar("T")


class Inline(Gateway):
    """Serves together what came in the same turn of the loop, as the writer's thread does. An outage can be played."""

    def __init__(self, parts: GatewayParts, *, is_away: Callable[[], bool]) -> None:
        self._line = CallQueue()
        super().__init__(parts, [self._line])
        self._is_away = is_away
        self._requests_of = ConnectionWorker(parts.dialect.open_session)
        self._idle = ParkingLot()

    @override
    async def submit(self, work: Callable[[Connection], T], *, reads_only: bool) -> T:
        await checkpoint_if_cancelled()
        call = Call(work, reads_only=reads_only)
        await self._enter(call)
        self._line.put(call)
        self._idle.unpark()
        return await self._room.wait(call, self._line)

    @override
    async def serve(self, started: Callable[[], None]) -> None:
        is_ready = await self._try_to_prepare()
        try:
            async with trio.open_nursery() as watchers:
                watchers.start_soon(self._outage.expire)
                watchers.start_soon(self._watch_outages, is_ready)
                started()
                await self._serve_until_stopped()
                watchers.cancel_scope.cancel()
        finally:
            self.stop()
            self._requests_of.close()
            self._refuse_all()
        self._raise_failure()

    @override
    def stop(self) -> None:
        super().stop()
        self._idle.unpark()

    async def _serve_until_stopped(self) -> None:
        while True:
            self._serve_line()
            if self._stopping.is_set():
                return
            # Whoever calls in the turn that now begins is served in the next one, all together.
            await self._idle.park()

    def _serve_line(self) -> None:
        most = self._parts.dialect.group_max
        while not self._line.is_paused and (calls := self._line.take_now(most)):
            self._serve(calls)
            self._room.answer([call for call in calls if call.outcome is not None])

    @override
    async def _prepare(self) -> None:
        self._check_played_outage()
        self._parts.tell(self._parts.prepare())

    @override
    async def _probe(self) -> None:
        self._requests_of.close()  # a database in memory has one connection, and it may be set to read only
        await self._prepare()
        self._parts.dialect.probe()

    @override
    def _resume(self) -> None:
        self._line.resume()
        self._idle.unpark()

    def _serve(self, calls: Sequence[Call[Any]]) -> None:
        away = self._attempt(calls)
        if away is not None:
            held = [call for call in calls if call.outcome is None]
            self._line.put_back(held)
            self._outage.hold(held, self._line, away)

    def _attempt(self, calls: Sequence[Call[Any]]) -> DatabaseAway | None:
        try:
            self._check_played_outage()
        except DatabaseAway as away:
            self._requests_of.close()  # as in a real one: in memory the probe uses the same connection, which may be set to read only
            return away
        return self._requests_of.serve(calls)

    def _check_played_outage(self) -> None:
        if self._is_away():
            raise DatabaseAway("an outage is played")
