"""What has every run of the gateway, with threads or in line? Admission, outages, and an orderly end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import trio
from attrs import frozen
from sqlalchemy import Connection

from cormorant.rules.errors import StorageMisconfigured, StorageUnavailable
from cormorant.rules.events import SchemaMigrated
from cormorant.rules.ports import Chance, Clock, Emit
from storage.engine.calls import Call, CallQueue, DatabaseAway
from storage.engine.dialect import Dialect
from storage.engine.options import StorageOptions
from storage.engine.outage import Outage
from storage.engine.waiting_room import Admission
from storage.migrations.runner import Migrated, Migration

T = TypeVar("T")

STOPPED = "the storage is not running: it was stopped, or is being restarted"


@frozen(kw_only=True)
class GatewayParts:
    """What a run is made of and does not own."""

    dialect: Dialect
    options: StorageOptions
    migrations: Sequence[Migration]
    clock: Clock
    emit: Emit
    chance: Chance

    def prepare(self) -> Migrated | None:
        """Reach the database and bring it to our schema. Blocks."""
        return self.dialect.prepare(self.migrations, self.clock.now)

    def tell(self, migrated: Migrated | None) -> None:
        """Say that there was something to migrate."""
        if migrated is not None:
            self.emit(
                SchemaMigrated(
                    from_version=migrated.from_version, to_version=migrated.to_version, backup=migrated.backup
                )
            )


class Gateway(ABC):
    """One run, from start to stop."""

    def __init__(self, parts: GatewayParts, lines: Sequence[CallQueue]) -> None:
        self._parts = parts
        self._lines = lines
        self._room = Admission(parts.options.queue_max)
        self._outage = Outage(lines, self._room, hold_s=parts.options.hold_s, emit=parts.emit, resume=self._resume)
        self._stopping = trio.Event()
        self._failure: StorageMisconfigured | None = None

    @abstractmethod
    async def submit(self, work: Callable[[Connection], T], *, reads_only: bool) -> T:
        """Run `work` in a transaction of its own and return what it returns."""

    @abstractmethod
    async def serve(self, started: Callable[[], None]) -> None:
        """Prepare the database and serve until stopped."""

    @abstractmethod
    async def _prepare(self) -> None:
        """Reach the database and bring it to our schema."""

    @abstractmethod
    async def _probe(self) -> None:
        """Raise `DatabaseAway` unless a call would be served now."""

    @abstractmethod
    def _resume(self) -> None:
        """Let those go on who were held."""

    def stop(self) -> None:
        """Take no more calls, finish those in line, end. During an outage nothing can be finished."""
        self._stopping.set()

    async def _enter(self, call: Call[Any]) -> None:
        """Take a seat for the call, or wait for one; unless there is no point any more when it is had."""
        if not self._room.take_seat():
            await self._room.enter()
        if self._stopping.is_set() or self._outage.is_too_late(call):
            self._room.leave()
            raise StorageUnavailable(STOPPED if self._stopping.is_set() else self._outage.refusal)

    async def _try_to_prepare(self) -> bool:
        """Whether the database is ready. If it is away, that is an outage like any other."""
        try:
            await self._prepare()
        except DatabaseAway as away:
            for line in self._lines:
                line.pause()
            self._outage.begin(away)
            return False
        return True

    async def _watch_outages(self, is_ready: bool) -> None:  # noqa: FBT001 - start_soon passes no names
        try:
            await self._outage.watch(self._probe, chance=self._parts.chance, was_ready=is_ready)
        except StorageMisconfigured as failure:
            self._failure = failure
            self.stop()

    def _refuse_all(self) -> None:
        for line in self._lines:
            self._room.refuse(line.take_now(), STOPPED)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure
