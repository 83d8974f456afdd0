"""How do notices reach people? The actor that makes jobs of them, and the handler that sends them."""

from __future__ import annotations

import hashlib
import shutil
from typing import Final

import trio
from attrs import define, field

from actors.actor import Address
from actors.handlers import Handler, JobContext
from actors.notifier import KIND, NoticeBoard, Notifier
from cormorant.clients.telling import Tell, tell_apart
from cormorant.rules.events import NoticeTold
from cormorant.rules.notices import message_of, read_batch
from cormorant.rules.ports import Clock, Emit, Offload
from cormorant.rules.quiet_hours import quiet_until
from cormorant.rules.settings import Settings
from cormorant.rules.verdicts import Cancel, Snooze
from storage.database import Database
from supervisors.child import Runnable
from supervisors.jobs import Jobs

__all__ = ["NotifyAssembly", "receivers"]

TELLING_MAX: Final = 2
"""Notifications that are sent at the same time: each takes a process while it lasts."""


def receivers(settings: Settings) -> dict[str, str]:
    """The addresses that are told, each under a name that does not give it away."""
    return {hashlib.sha256(each.encode()).hexdigest()[:12]: each for each in settings.notify.apprise.reveal().split()}


@define(eq=False, kw_only=True)
class NotifyAssembly:
    """Everything that belongs to notifications."""

    settings: Settings
    database: Database
    jobs: Jobs
    offload: Offload
    clock: Clock
    emit: Emit
    tell: Tell = tell_apart
    board: NoticeBoard = field(init=False)
    _free: trio.Semaphore = field(init=False, factory=lambda: trio.Semaphore(TELLING_MAX))

    def __attrs_post_init__(self) -> None:
        self.board = NoticeBoard(on=frozenset(self.settings.notify.on))

    def handlers(self) -> dict[str, Handler]:
        """The handler of the jobs that notices become."""
        return {KIND: Handler(self._send)}

    def notifier(self) -> Runnable:
        """Makes the jobs."""
        return Address[None]("notifier", emit=self.emit).served_by(self._notifier)

    def _notifier(self) -> Notifier:
        first = min(self.jobs.priorities, key=lambda label: self.jobs.priorities[label])
        return Notifier(
            board=self.board,
            options=self.settings.notify,
            receivers=tuple(receivers(self.settings)),
            folder=self.settings.data,
            free_bytes=_free_bytes,
            database=self.database,
            make=lambda *said, **how: self.jobs.make(*said, priority=first, **how),
            ring=self.jobs.bell.ring,
            offload=self.offload,
            clock=self.clock,
            emit=self.emit,
        )

    async def _send(self, context: JobContext) -> None:
        now = self.clock.now()
        ends = quiet_until(self.settings.notify.quiet, now)
        if ends is not None:  # an attempt that was put off into them
            raise Snooze((ends - now).total_seconds())
        receiver = str(context.payload["to"])
        address = receivers(self.settings).get(receiver)
        if address is None:
            raise Cancel("its address is no longer in notify.apprise")
        message = message_of(read_batch(context.payload["batch"]))
        async with self._free:
            await self.tell(address, message)
        self.emit(NoticeTold(title=message.title, lines=len(message.body.splitlines())))


def _free_bytes(folder: str) -> int:
    return shutil.disk_usage(folder).free
