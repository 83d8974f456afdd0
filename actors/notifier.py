"""Notifier: turns events into durable notification jobs and checks free disk space."""

from __future__ import annotations

import math
import shutil
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

import trio
from attrs import define, field

from actors.actor import Address, Recheck
from actors.jobs.new_jobs import most_urgent, new_job
from actors.jobs.working_set import JobWakeUp
from actors.periodic import Periodic
from cormorant.rules.errors import CommitUnknown, StorageUnavailable
from cormorant.rules.events import DiskLow, Stamped
from cormorant.rules.notices import (
    Notice,
    NoticeBatch,
    NoticeKind,
    join_payloads,
    notice_of,
    quiet_until,
    written_batch,
)
from storage.jobs import batch as job_batch

KIND: Final = "notify"
TOGETHER: Final = "together"
"""What came in quiet hours, of whatever kind, is told in one."""

RING: Final = 1_000
DISK_EVERY_S: Final = 600.0
DISK_AGAIN_S: Final = 86_400.0
LAST_S: Final = 0.8
"""What the last tick gets when the service stops."""


@define(eq=False)
class NoticeBuffer:
    """Listens in line and keeps what is to be told, the latest of it: it never waits and never grows.

    It outlives a notifier that crashes.
    """

    on: frozenset[str]
    notifier: Address[Recheck]
    ring: deque[Notice] = field(init=False, factory=lambda: deque(maxlen=RING))
    waiting: dict[str, NoticeBatch] = field(init=False, factory=dict)
    """What is not put up yet, by kind and receiver."""

    def __call__(self, stamped: Stamped) -> None:
        """Hear one event."""
        notice = notice_of(stamped.event)
        if notice is not None and notice.kind in self.on:
            self.ring.append(notice)
            self.notifier.tell_once(Recheck())


@define(eq=False, kw_only=True)
class Notifier(Periodic[Recheck]):
    """Makes jobs of notices as they come, those of one interval together."""

    board: NoticeBuffer
    receivers: Sequence[str]
    """A name for each address that is told; the address itself is secret."""
    producer: JobWakeUp
    interval_s: float = 2.0
    _due: dict[str, datetime] | None = field(init=False, default=None)
    _disk_at: float = field(init=False, default=0.0)
    _low_since: float | None = field(init=False, default=None)

    async def tick(self) -> float | None:
        """Look at the disk now and then, and make jobs of what is to be told."""
        await self._check_free_space()
        await self._make_jobs()
        # What could not be put up, because a job of its key runs, is tried again.
        return 0.0 if self.board.waiting else self._disk_at - trio.current_time()

    async def end(self) -> None:
        """Make jobs of what came since the last tick: they are told after the next start."""
        await super().end()
        # Without a database there is nowhere to keep it.
        with trio.move_on_after(LAST_S, shield=True), suppress(StorageUnavailable, CommitUnknown):
            await self._make_jobs()

    async def _make_jobs(self) -> None:
        if not self.board.ring and not self.board.waiting:
            return
        if self._due is None:
            self._due = await self.environment.database.read(job_batch.last_due, KIND)
        self._collect(self._due)
        waiting = self.board.waiting
        for key in list(waiting):
            if await self._put_up(key, waiting[key], self._due):
                del waiting[key]

    def _collect(self, due: Mapping[str, datetime]) -> None:
        is_quiet = quiet_until(self.environment.settings.notify.quiet, self.environment.now()) is not None
        while self.board.ring:
            notice = self.board.ring.popleft()
            for receiver in self.receivers:
                if notice.kind is NoticeKind.DISK and self._was_sent(due.get(f"{notice.kind}@{receiver}")):
                    continue
                key = f"{TOGETHER if is_quiet else notice.kind}@{receiver}"
                self.board.waiting[key] = self.board.waiting.get(key, NoticeBatch()).with_notice(notice)

    def _was_sent(self, last: datetime | None) -> bool:
        return last is not None and (self.environment.now() - last).total_seconds() < DISK_AGAIN_S

    async def _put_up(self, key: str, batch: NoticeBatch, due: dict[str, datetime]) -> bool:
        now = self.environment.now()
        ends = quiet_until(self.environment.settings.notify.quiet, now)
        last = due.get(key)
        free = now if last is None else last + timedelta(seconds=self.environment.settings.notify.min_interval_s)
        # A clock that was set back must not silence us for longer than the interval.
        free = min(free, now + timedelta(seconds=self.environment.settings.notify.min_interval_s))
        at = max(now, free) if ends is None else ends
        payload = {"to": key.rpartition("@")[2], "batch": written_batch(batch)}
        job = new_job(
            self.environment,
            KIND,
            payload,
            priority=most_urgent(self.environment),
            delay_s=(at - now).total_seconds(),
            dedupe_key=key,
        )
        is_up = await self.environment.database.run(job_batch.enqueue_or_join, job, join=join_payloads, now=now)
        if is_up:
            # One that waits until then was joined; else this one does.
            due[key] = last if last is not None and last > now else at
            self.producer.set()
        return is_up

    async def _check_free_space(self) -> None:
        now = trio.current_time()
        if now < self._disk_at:
            return
        if not self.environment.settings.notify.disk_free_bytes:
            self._disk_at = math.inf
            return
        self._disk_at = now + DISK_EVERY_S
        try:
            free_bytes = await self.environment.offload(_free_bytes, self.environment.settings.data)
        except OSError:
            return  # a folder that cannot be looked at is told by whoever needs it
        wanted = self.environment.settings.notify.disk_free_bytes
        if free_bytes >= wanted:
            self._low_since = None
        elif self._low_since is None or now - self._low_since >= DISK_AGAIN_S:
            self._low_since = now
            self.environment.emit(
                DiskLow(folder=self.environment.settings.data, free_bytes=free_bytes, wanted_bytes=wanted)
            )


def _free_bytes(folder: str) -> int:
    return shutil.disk_usage(folder).free
