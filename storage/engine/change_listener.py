"""ChangeListener: calls back when a channel was announced, by this process or by another. One for each database."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import closing
from typing import Protocol

import trio
from attrs import define, field, frozen

from cormorant.rules.events import ListenerLost, ListenerRestored
from cormorant.rules.ports import Chance, Emit
from cormorant.rules.supervision import delay_before_probe
from storage.engine.calls import DatabaseAway

LOOK_S = 0.1
"""Shortest time between two looks at a file that others write to. A look takes 10 to 50 us, so that it needs no thread."""
LOOK_ANYWAY_S = 60.0
"""Longest time between two looks: a process that is killed between its COMMIT and its notification sends none."""


class ChangeConnection(Protocol):
    """A connection that hears what other processes announce. Its methods do not wait, but for `close`."""

    pause_s: float
    """Minimum time between two looks."""

    def fileno(self) -> int | None:
        """What becomes readable when there is something to hear. None: it must be asked after each pause."""
        ...

    def look(self) -> Collection[str] | None:
        """The channels that others have announced since the last look. None: it cannot be known now; look again.

        Raises `DatabaseAway` when the connection cannot hear any more.
        """
        ...

    def close(self) -> None:
        """Stop listening."""
        ...


@frozen(eq=False)
class _Registration:
    channel: str
    heard: Callable[[], None]
    own: bool


@define(eq=False)
class ChangeListener:
    """Who in this process is to be called for which channel, and the one task that hears of other processes."""

    _registered: dict[_Registration, None] = field(init=False, factory=dict)
    _is_wanted: trio.Event = field(init=False, factory=trio.Event)

    async def listen(
        self, channel: str, heard: Callable[[], None], *, own: bool, task_status: trio.TaskStatus[None]
    ) -> None:
        """Call `heard` for each announcement until cancelled. Without `own` only for those of others."""
        registration = _Registration(channel, heard, own)
        self._registered[registration] = None
        self._is_wanted.set()
        task_status.started()
        try:
            await trio.sleep_forever()
        finally:
            del self._registered[registration]

    def deliver(self, own: Collection[str], others: Collection[str]) -> None:
        """Channels were announced by this process, and by others."""
        for each in list(self._registered):
            if each.channel in others or (each.own and each.channel in own):
                self._call(each)

    def _deliver_all(self) -> None:
        for each in list(self._registered):
            self._call(each)

    def _call(self, registration: _Registration) -> None:
        if registration in self._registered:  # one that was called before may have ended it
            registration.heard()

    async def follow(self, connect: Callable[[], ChangeConnection | None], *, chance: Chance, emit: Emit) -> None:
        """Hear what other processes announce while something listens, for ever.

        A lost connection is opened anew. What was missed meanwhile counts as one announcement on every channel.
        """
        failures, thread = 0, trio.CapacityLimiter(1)  # of its own: handlers may have taken all threads of the program
        while True:
            await self._is_wanted.wait()
            try:
                connection = await trio.to_thread.run_sync(connect, limiter=thread)
                if connection is None:
                    return
                if failures > 1:
                    emit(ListenerRestored())
                failures = 0
                with closing(connection):
                    await self._follow(connection)
            except DatabaseAway as away:
                failures += 1
                if failures == 2:  # noqa: PLR2004 - the first one opens a connection that was lost, and usually succeeds
                    emit(ListenerLost(error=str(away)))
                await trio.sleep(delay_before_probe(failures=failures - 1, jitter=chance.random()))

    async def _follow(self, connection: ChangeConnection) -> None:
        self._deliver_all()
        file, is_sure = connection.fileno(), True
        while self._registered:
            if file is not None and is_sure:
                with trio.move_on_after(LOOK_ANYWAY_S):
                    await trio.lowlevel.wait_readable(file)
            others = connection.look()
            is_sure = others is not None
            self.deliver((), others or ())
            await trio.sleep(connection.pause_s)
        self._is_wanted = trio.Event()
