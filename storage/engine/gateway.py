"""Gateway: admission, outages (held calls, probes with back-off) and an orderly end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import trio
from attrs import frozen
from sqlalchemy import Connection

from cormorant.rules.errors import DatabaseNeedsNewerCode, DatabasePreRelease, StorageMisconfigured, StorageUnavailable
from cormorant.rules.events import SchemaMigrated, StorageBack, StorageLost
from cormorant.rules.ports import Chance, Clock, Emit
from cormorant.rules.supervision import LOSSES_MAX, delay_before_probe, held_until
from storage.engine.calls import Admission, Call, CallQueue, DatabaseAway
from storage.engine.dialect import Dialect
from storage.engine.options import StorageOptions
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
        if not self._room.acquire():
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


SHORTEST_LOOK_S = 0.02


class Outage:
    """Told of the first call that meets an outage; holds what waits, probes with back-off, lets all go on in order."""

    def __init__(
        self, lines: Sequence[CallQueue], admission: Admission, *, hold_s: float, emit: Emit, resume: Callable[[], None]
    ) -> None:
        self._lines = lines
        self._room = admission
        self._hold_s = hold_s
        self._emit = emit
        self._resume = resume
        self._since: float | None = None
        self._why = ""
        self._begun = trio.Event()
        self._over = trio.Event()

    @property
    def is_on(self) -> bool:
        """Whether the database is away."""
        return self._since is not None

    @property
    def refusal(self) -> str:
        """What a call is told that has waited long enough."""
        return f"the database was away for the {self._hold_s:g} s that a call waits ({self._why}): ask again later"

    def begin(self, away: DatabaseAway) -> None:
        """The database is away, as far as is known. Lines are paused by whoever noticed."""
        self._why = str(away)
        if self._since is None:
            self._since = trio.current_time()
            self._over = trio.Event()
            self._begun.set()
            self._emit(StorageLost(error=self._why))

    def hold(self, calls: Sequence[Call[Any]], line: CallQueue, away: DatabaseAway) -> None:
        """These calls met the outage and are back in line, unless nobody waits for them or they seem to be its cause."""
        self.begin(away)
        for call in calls:
            call.losses += away.is_stale
            call.held_since = trio.current_time() if call.held_since is None else call.held_since
            self._room.release(call, line)
            if call.losses >= LOSSES_MAX and line.withdraw(call):
                self._room.refuse([call], f"the database was lost {call.losses} times during this call: {self._why}")

    def is_too_late(self, call: Call[Any]) -> bool:
        """Whether a call used up its time before it could join the line."""
        return self._since is not None and self._deadline_of(call, self._since) <= trio.current_time()

    async def watch(self, probe: Callable[[], Awaitable[None]], *, chance: Chance, was_ready: bool) -> None:
        """See each outage to its end, one after the other. Runs as long as the gateway.

        Until the database was ready once, a refusal is a mistake in the settings and raised; later it may pass.
        """
        while True:
            await self._begun.wait()
            await self._wait_until_back(probe, chance=chance, was_ready=was_ready)
            was_ready = True
            self._end()

    async def expire(self) -> None:
        """Refuse whoever has waited long enough. Runs as long as the gateway."""
        while True:
            await self._begun.wait()
            next_at = self._refuse_expired()
            with trio.move_on_at(max(next_at, trio.current_time() + SHORTEST_LOOK_S)):
                await self._over.wait()

    async def _wait_until_back(self, probe: Callable[[], Awaitable[None]], *, chance: Chance, was_ready: bool) -> None:
        failures = 0
        while True:
            await trio.sleep(delay_before_probe(failures=failures, jitter=chance.random()))
            try:
                await probe()
            except DatabaseAway as away:
                self._why = str(away)
            except StorageMisconfigured as refused:
                if isinstance(refused, DatabaseNeedsNewerCode | DatabasePreRelease) or not was_ready:
                    raise
                self._why = str(refused)
            else:
                return
            failures += 1

    def _end(self) -> None:
        now = trio.current_time()
        since, self._since = self._since, None
        self._begun = trio.Event()
        self._over.set()
        self._emit(StorageBack(away_s=now - (now if since is None else since)))
        self._resume()

    def _refuse_expired(self) -> float:
        """When to look again: who comes later has a later deadline, so one timer is enough."""
        now = trio.current_time()
        next_at = now + self._hold_s
        if self._since is None:
            return next_at
        for line in self._lines:
            for call in line.waiting() if line.is_paused else ():
                deadline = self._deadline_of(call, self._since)
                if deadline > now:
                    next_at = min(next_at, deadline)
                    break
                if line.withdraw(call):
                    self._room.refuse([call], self.refusal)
        return next_at

    def _deadline_of(self, call: Call[Any], away_since: float) -> float:
        return held_until(
            arrived_at=call.arrived_at, away_since=away_since, held_since=call.held_since, hold_s=self._hold_s
        )
