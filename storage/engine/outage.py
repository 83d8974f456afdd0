"""Is the database away, who finds out that it is back, and who has waited long enough?"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import trio

from cormorant.rules.errors import DatabaseNeedsNewerCode, StorageMisconfigured
from cormorant.rules.events import StorageBack, StorageLost
from cormorant.rules.ports import Chance, Emit
from cormorant.rules.supervision import LOSSES_MAX, delay_before_probe, held_until
from storage.engine.calls import Call, CallQueue, DatabaseAway
from storage.engine.waiting_room import Admission

SHORTEST_LOOK_S = 0.02


class Outage:
    """Told of the first call that meets an outage; holds what waits, probes with back-off, lets all go on in order."""

    def __init__(
        self, lines: Sequence[CallQueue], room: Admission, *, hold_s: float, emit: Emit, resume: Callable[[], None]
    ) -> None:
        self._lines = lines
        self._room = room
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
            self._room.let_go(call, line)
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
                if isinstance(refused, DatabaseNeedsNewerCode) or not was_ready:
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
