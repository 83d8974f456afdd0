"""The job handler that sends notifications."""

from __future__ import annotations

import hashlib
from typing import Final

import trio
from attrs import define, field

from actors.environment import Environment
from actors.jobs.handler import JobContext
from cormorant.rules.events import NoticeSent
from cormorant.rules.jobs.verdicts import Cancel, Snooze
from cormorant.rules.notices import message_of, quiet_until, read_batch
from cormorant.rules.settings.settings import Settings

__all__ = ["SendNotifications", "receivers"]

TELLING_MAX: Final = 2
"""Notifications that are sent at the same time: each takes a process while it lasts."""


def receivers(settings: Settings) -> dict[str, str]:
    """The addresses that are told, each under a name that does not give it away."""
    return {hashlib.sha256(each.encode()).hexdigest()[:12]: each for each in settings.notify.apprise.reveal().split()}


@define(eq=False, kw_only=True)
class SendNotifications:
    """The handler of the jobs that notices become."""

    environment: Environment = field(kw_only=False)
    _free: trio.Semaphore = field(init=False, factory=lambda: trio.Semaphore(TELLING_MAX))

    async def __call__(self, context: JobContext) -> None:
        """Send one notification."""
        now = self.environment.now()
        ends = quiet_until(self.environment.settings.notify.quiet, now)
        if ends is not None:  # an attempt that was put off into them
            raise Snooze((ends - now).total_seconds())
        receiver = str(context.payload["to"])
        address = receivers(self.environment.settings).get(receiver)
        if address is None:
            raise Cancel("its address is no longer in notify.apprise")
        message = message_of(read_batch(context.payload["batch"]))
        async with self._free:
            await self.environment.clients.notify(address, message)
        self.environment.emit(NoticeSent(title=message.title, lines=len(message.body.splitlines())))
