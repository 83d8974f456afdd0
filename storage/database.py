"""Database: run, read and listen; the public entrance."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Concatenate, NoReturn, ParamSpec, TypeVar

import trio
from attrs import define, field
from sqlalchemy import Connection

from cormorant.rules.errors import StorageMisconfigured, StorageUnavailable
from cormorant.rules.ports import Chance, Clock, Emit
from storage.engine.change_listener import ChangeListener
from storage.engine.dialect import Dialect, dialect_for
from storage.engine.file_locks import WorkerLocks
from storage.engine.gateway import STOPPED, Gateway, GatewayParts, Inline, Threaded
from storage.engine.options import Mode, StorageOptions
from storage.engine.schema import Migration, SchemaState
from storage.migrations import MIGRATIONS, SCHEMA_VERSION

__all__ = ["SCHEMA_VERSION", "Database", "Mode", "SchemaState", "StorageOptions", "inspect"]

P = ParamSpec("P")
T = TypeVar("T")


class SystemClock:
    """The machine's own wall time."""

    def now(self) -> datetime:
        """The time in UTC."""
        return datetime.now(UTC)

    def stopwatch(self) -> float:
        """Seconds of real time."""
        return time.perf_counter()


@define(eq=False, slots=False)
class Database:
    """The gateway: a supervised child. Call it to serve, `stop()` it to end; afterwards it can be started again."""

    _options: StorageOptions
    _mode: Mode = field(kw_only=True)
    _emit: Emit = field(kw_only=True)
    _chance: Chance = field(kw_only=True)
    _clock: Clock = field(kw_only=True, factory=SystemClock)
    _migrations: Sequence[Migration] = field(kw_only=True, default=MIGRATIONS)
    _dialect: Dialect | None = field(init=False, default=None)
    _gateway: Gateway | None = field(init=False, default=None)
    _changes: ChangeListener = field(init=False, factory=ChangeListener)
    _locks: WorkerLocks | None = field(init=False, default=None)
    _is_away: bool = field(init=False, default=False)

    async def __call__(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Open, migrate, acknowledge, and serve until stopped.

        A database that is away is waited for; `StorageMisconfigured` is for what waiting does not cure.
        """
        gateway = self._new_gateway()
        self._gateway = gateway
        try:
            await gateway.serve(task_status.started)
        finally:
            self._gateway = None

    @property
    def is_shared(self) -> bool:
        """Whether other processes may use it. A database in memory has one owner."""
        return self._known_dialect.is_shared

    @property
    def may_miss_changes(self) -> bool:
        """Whether a change of another process may go unheard for a while: a notification is not repeated."""
        return self._known_dialect.may_miss_changes

    @property
    def _known_dialect(self) -> Dialect:
        self._dialect = self._dialect or dialect_for(self._options)
        return self._dialect

    def adopt(self, *, emit: Emit, chance: Chance, clock: Clock) -> None:
        """Belong to a service from now on: its events, its chance, its time. For a gateway that was made before it."""
        self._emit, self._chance, self._clock = emit, chance, clock

    def stop(self) -> None:
        """Take no more calls, finish those taken and those in line, then end."""
        if self._gateway is not None:
            self._gateway.stop()

    async def run(self, function: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call `function(connection, …)` in one write transaction and return what it returns, once that is durable.

        The function may be called more than once, so it changes nothing but the database. What it raises undoes its own
        changes and nobody else's. Besides that: `StorageUnavailable` (surely did not happen) and `CommitUnknown`.
        """
        gateway = self._gateway or await self._not_running()
        return await gateway.submit(lambda connection: function(connection, *args, **kwargs), reads_only=False)

    async def read(self, function: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """As `run`, for functions that change nothing. Does not wait behind writes, and sees all that was acknowledged."""
        gateway = self._gateway or await self._not_running()
        return await gateway.submit(lambda connection: function(connection, *args, **kwargs), reads_only=True)

    async def listen(
        self,
        channel: str,
        heard: Callable[[], None],
        *,
        own: bool = True,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Call `heard` in the loop after each commit that has announced the channel, until cancelled.

        Without `own` the commits of this object do not count. It may be called once too often: after a COMMIT in doubt, and
        when the connection that hears of other processes was lost. It must be quick and must not raise.
        """
        await self._changes.listen(channel, heard, own=own, task_status=task_status)

    async def with_locks(
        self, function: Callable[Concatenate[WorkerLocks, P], T], /, *args: P.args, **how: P.kwargs
    ) -> T:
        """Call a method of the locks that show which processes are dead."""
        if self._locks is None:
            self._dialect = self._dialect or dialect_for(self._options)
            self._locks = WorkerLocks(self._dialect.locks_folder, self._options.file_mode)
        if self._locks.folder is None or self._mode is Mode.INLINE:
            return function(self._locks, *args, **how)
        return await trio.to_thread.run_sync(partial(function, self._locks, *args, **how))

    def go_away(self) -> None:
        """Play an outage, in line only: calls are held as if the database could not be reached."""
        self._play(is_away=True)

    def come_back(self) -> None:
        """End a played outage. As with a real one, it is noticed at the next probe."""
        self._play(is_away=False)

    def dispose(self) -> None:
        """Forget what is kept between two starts: a database in memory."""
        dialect, self._dialect = self._dialect, None
        if dialect is not None:
            dialect.dispose()

    def _play(self, *, is_away: bool) -> None:
        if self._mode is not Mode.INLINE:
            raise ValueError("an outage can be played only in line: stop the real database instead")
        self._is_away = is_away

    async def _not_running(self) -> NoReturn:
        # Whoever is cancelled hears of that first: storage and its callers are often cancelled together.
        await trio.lowlevel.checkpoint()
        raise StorageUnavailable(STOPPED)

    def _new_gateway(self) -> Gateway:
        self._dialect = self._dialect or dialect_for(self._options)
        parts = GatewayParts(
            dialect=self._dialect,
            options=self._options,
            changes=self._changes,
            migrations=self._migrations,
            clock=self._clock,
            emit=self._emit,
            chance=self._chance,
        )
        if self._mode is Mode.INLINE:
            return Inline(parts, is_away=lambda: self._is_away)
        return Threaded(parts)


def inspect(url: str, *, migrations: Sequence[Migration] = MIGRATIONS) -> SchemaState:
    """Look at a database without creating or changing anything. Blocks; for `cormorant doctor`."""
    try:
        return dialect_for(StorageOptions(url=url)).inspect(migrations)
    except StorageMisconfigured as error:
        return SchemaState(is_reachable=False, problem=str(error))
