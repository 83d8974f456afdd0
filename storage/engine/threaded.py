"""Gateway over worker threads."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import trio
from sqlalchemy import Connection
from trio.lowlevel import TrioToken, checkpoint_if_cancelled, current_trio_token
from typing_extensions import override

from storage.engine.calls import Call, CallQueue, ConnectionWorker, DatabaseAway
from storage.engine.gateway import Gateway, GatewayParts

T = TypeVar("T")

HUNG_LOOKS = 4
"""How often, within the limit, it is looked for a session that hangs."""


class Threaded(Gateway):
    """Lines in front of worker threads. The threads are tasks of this run and end with it."""

    def __init__(self, parts: GatewayParts) -> None:
        self._writes = CallQueue()
        self._reads = CallQueue() if parts.dialect.has_reader else self._writes
        super().__init__(parts, list(dict.fromkeys([self._writes, self._reads])))
        self._directory: list[ConnectionWorker] = []
        # Not trio's shared limiter: forty busy threads elsewhere must not keep the database from starting.
        self._threads = trio.CapacityLimiter(parts.dialect.writers + 2)
        # Also while the run is cancelled: trio waits for the threads, and a thread may wait for a server that hangs.
        self._hung_watch = trio.CancelScope(shield=True)

    @override
    async def submit(self, work: Callable[[Connection], T], *, reads_only: bool) -> T:
        await checkpoint_if_cancelled()
        call = Call(work, reads_only=reads_only)
        await self._enter(call)
        line = self._reads if reads_only else self._writes
        line.put(call)
        return await self._room.wait(call, line)

    @override
    async def serve(self, started: Callable[[], None]) -> None:
        is_ready = await self._try_to_prepare()
        try:
            async with trio.open_nursery() as watchers:
                self._start_watchers(watchers, is_ready=is_ready)
                await self._work_until_stopped(started)
                watchers.cancel_scope.cancel()
        finally:
            self._refuse_all()
        self._raise_failure()

    async def _work_until_stopped(self, started: Callable[[], None]) -> None:
        try:
            async with trio.open_nursery() as workers:
                self._start_workers(workers)
                started()
                await self._wait_until_stopped()
        finally:
            self._hung_watch.cancel()

    @override
    async def _prepare(self) -> None:
        self._parts.tell(await self._in_thread(self._parts.prepare))

    @override
    async def _probe(self) -> None:
        await self._prepare()
        await self._in_thread(self._parts.dialect.probe)

    @override
    def _resume(self) -> None:
        for line in self._lines:
            line.resume()

    async def _in_thread(self, function: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(function, limiter=self._threads)

    async def _wait_until_stopped(self) -> None:
        try:
            await self._stopping.wait()
        except trio.Cancelled:
            self._refuse_all()
            raise
        finally:
            # Also when cancelled: the threads end only by this, and trio waits for them.
            self.stop()
            for line in self._lines:
                line.close()

    def _start_watchers(self, watchers: trio.Nursery, *, is_ready: bool) -> None:
        watchers.start_soon(self._outage.expire)
        watchers.start_soon(self._watch_outages, is_ready)
        limit_s = self._parts.dialect.hang_limit_s
        if limit_s is not None:
            watchers.start_soon(self._watch_hung, limit_s)

    async def _watch_hung(self, limit_s: float) -> None:
        with self._hung_watch:
            while True:
                await trio.sleep(limit_s / HUNG_LOOKS)
                for requests in self._directory:
                    requests.cancel_if_hung(limit_s)

    def _start_workers(self, workers: trio.Nursery) -> None:
        token = current_trio_token()
        lines = [self._writes] * self._parts.dialect.writers
        if self._reads is not self._writes:
            lines.append(self._reads)
        for line in lines:
            requests = ConnectionWorker(self._parts.dialect.open_session)
            self._directory.append(requests)
            workers.start_soon(self._in_thread, partial(self._work, line, requests, token))

    def _work(self, line: CallQueue, requests: ConnectionWorker, token: TrioToken) -> None:
        """The life of a worker thread."""
        most = self._parts.dialect.group_max if line is self._writes else 1
        try:
            while calls := line.take(most):
                self._serve(calls, line, requests, token)
        finally:
            requests.close()

    def _serve(self, calls: list[Call[Any]], line: CallQueue, requests: ConnectionWorker, token: TrioToken) -> None:
        try:
            away = requests.serve(calls)
        finally:
            # One wake-up of the loop for the whole group: it costs more than the answers themselves.
            token.run_sync_soon(self._room.answer, [call for call in calls if call.outcome is not None])
        if away is not None:
            self._give_back([call for call in calls if call.outcome is None], line, away, token)

    def _give_back(self, calls: list[Call[Any]], line: CallQueue, away: DatabaseAway, token: TrioToken) -> None:
        line.put_back(calls)
        token.run_sync_soon(self._outage.hold, calls, line, away)
