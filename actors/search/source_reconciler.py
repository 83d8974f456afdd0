"""SourceReconciler: keeps the set of running rate limiters equal to the table of sources."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain

import trio
from attrs import define, field

from actors.actor import Recheck
from actors.periodic import Periodic
from actors.search.dispatcher import TicketIntake
from actors.search.rate_limiter import Close, SourceChanged
from actors.search.source_directory import SourceDirectory, SourceEntry, entry_for
from cormorant.rules.errors import ActorCrashed, ActorGone, MailboxFull
from cormorant.rules.search.events import SourceAdded, SourceRemoved
from cormorant.rules.search.outcomes import OutcomeStatus
from storage.search import sources
from storage.search.source_states import CHANNEL
from storage.search.sources import SourceRecord

BEHIND_S = 1.0
"""When a limiter is told again that could not be told of a change."""
SPARE_S = 1.0
"""What the reconciler gets after the grace of the requests."""


@define(eq=False, kw_only=True)
class SourceReconciler(Periodic[Recheck]):
    """Starts, informs and stops the limiters as the table of sources says."""

    directory: SourceDirectory
    configured: Sequence[SourceRecord]
    """The sources of the settings file."""
    intake: TicketIntake
    start: Callable[[SourceEntry], Awaitable[None]]
    """Starts the limiter of a source, unless it runs."""
    stop: Callable[[str], Awaitable[None]]
    """Stops the limiter of a source, if there is one."""
    grace_s: float = 5.0
    interval_s: float = 0.5
    _has_configured: bool = field(init=False, default=False)
    _is_behind: bool = field(init=False, default=False)
    """Whether a limiter could not be told of a change, because its mailbox was full."""

    @property
    def channels(self) -> Sequence[str]:
        """The sources, as other processes and commands change them."""
        return (CHANNEL,)

    async def end(self) -> None:
        """Let requests under way finish within the grace; what waits ends at once.

        A dispatcher that crashed and was not started anew has left tickets, whose callbacks are called before they stop.
        """
        for ticket in chain.from_iterable(self.intake.waiting.values()):
            ticket.end(OutcomeStatus.SHUT_DOWN)
        async with trio.open_nursery() as nursery:
            for name, entry in self.directory.by_name.items():
                nursery.start_soon(self._end, name, entry)

    async def _end(self, name: str, entry: SourceEntry) -> None:
        """End what waits at a source, and give what runs its grace."""
        if entry.address.is_served:
            with trio.move_on_after(self.grace_s + SPARE_S / 2):
                await self._close(entry, self.grace_s)
                return
        if not entry.snapshot.gone_because:
            # Its limiter waits for its restart: nothing is under way, and what waits ends now.
            await self.stop(name)

    async def _close(self, entry: SourceEntry, grace_s: float) -> None:
        """Wait until nothing of a source runs. A limiter that crashes meanwhile is asked again."""
        ends_at = trio.current_time() + grace_s
        with suppress(ActorGone):
            while True:
                left_s = max(0.0, ends_at - trio.current_time())
                with suppress(ActorCrashed):
                    await entry.address.ask(partial(Close, grace_s=left_s))
                    return

    async def tick(self) -> float | None:
        """Read the sources. Searches wait until the database has answered once, but the start does not."""
        if not self._has_configured:
            await self._store_configured()
            self._has_configured = True
        await self._read()
        self.directory.loaded.set()
        return BEHIND_S if self._is_behind else None

    async def _store_configured(self) -> None:
        await self.environment.database.run(sources.set_configured, self.configured, now=self.environment.now())

    async def _read(self) -> None:
        self._is_behind = False
        usable = await self.environment.database.read(sources.usable_sources, self.configured)
        found = {each.name: each for each in usable}
        for name, entry in list(self.directory.by_name.items()):
            if name not in found or found[name].id != entry.record.id:
                await self._drop(name, entry)
        for name, record in found.items():
            if name in self.directory.by_name:
                await self._inform(self.directory.by_name[name], record)
            else:
                self.directory.by_name[name] = entry_for(self.environment, record)
                self.environment.emit(SourceAdded(source=name, kind=record.kind))
            await self.start(self.directory.by_name[name])

    async def _inform(self, entry: SourceEntry, record: SourceRecord) -> None:
        """Tell a limiter that its source may have changed."""
        if record != entry.record:
            try:
                entry.address.tell_nowait(SourceChanged(record=record))
            except MailboxFull:
                self._is_behind = True
            except ActorGone:
                pass  # it is set aside, and shows that
        entry.address.tell_once(Recheck())  # its state may have been changed by hand
        if entry.snapshot.is_closing and not entry.snapshot.gone_because:
            await self.stop(entry.record.name)  # an earlier reconciler has closed it

    async def _drop(self, name: str, entry: SourceEntry) -> None:
        with trio.move_on_after(self.grace_s):
            await self._close(entry, 0.0)
        await self.stop(name)
        # The last step: if it is cut short, the next reconciler finds the source and drops it, or starts it anew.
        del self.directory.by_name[name]
        self.environment.emit(SourceRemoved(source=name))
