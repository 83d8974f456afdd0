"""SourceReconciler: keeps the set of running rate limiters equal to the table of sources."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import trio
from attrs import define, field

from actors.actor import Actor
from actors.environment import Environment
from actors.periodic import WakeUp
from actors.search.dispatcher import AdmittedTickets
from actors.search.source_requests import SourceRequests
from cormorant.rules.errors import CommitUnknown, StorageUnavailable
from cormorant.rules.search.events import SourceAdded, SourceRemoved
from storage.search import sources
from storage.search.source_states import CHANNEL
from storage.search.sources import SourceRecord

RETRY_S = 1.0
LOOK_S = 60.0
"""How often is looked for what was changed elsewhere, should every notice be missed."""
DEBOUNCE_S = 0.5
"""At least so long between two looks: on SQLite one hears of every write of others."""


@define(eq=False)
class SourceDirectory:
    """The sources of a service by name. Belongs to the search supervisor."""

    by_name: dict[str, SourceRequests] = field(factory=dict)
    loaded: trio.Event = field(factory=trio.Event)
    """Set once the sources are known: a search right after the start must not miss them."""


@define(eq=False, kw_only=True)
class SourceReconciler(Actor[None]):
    """Keeps the limiters in step with the table of sources."""

    environment: Environment = field(kw_only=False)
    directory: SourceDirectory
    intake: AdmittedTickets
    configured: Sequence[SourceRecord]
    """Those of the settings file."""
    start: Callable[[SourceRequests], Awaitable[None]]
    """Starts the limiter of a source, unless it runs."""
    stop: Callable[[str], Awaitable[None]]
    grace_s: float = 5.0
    _wake_up: WakeUp = field(init=False, factory=WakeUp)
    _is_ending: bool = field(init=False, default=False)

    async def begin(self) -> None:
        """Begin. Nobody waits for the database here; who searches does."""
        self.nursery.start_soon(self._keep)
        self.nursery.start_soon(partial(self.environment.database.listen, CHANNEL, self._wake_up.set))

    async def end(self) -> None:
        """Let requests under way finish within the grace; what waits ends at once."""
        self._is_ending = True
        self.intake.shut_down()  # a dispatcher that crashed just before has left it, and will not be started again
        directory = list(self.directory.by_name.values())
        for requests in directory:
            requests.close()
        with trio.move_on_after(self.grace_s):
            await self._until_idle(directory)
        for requests in directory:
            requests.stop_running()
        await self._until_idle(directory)

    async def _until_idle(self, directory: Sequence[SourceRequests]) -> None:
        for requests in directory:
            while requests.running:
                await requests.all_done.wait()

    async def _keep(self) -> None:
        await self._with_patience(self._store_configured)
        while True:
            await self._with_patience(self._read)
            self.directory.loaded.set()
            await trio.sleep(DEBOUNCE_S)
            await self._wake_up.wait(trio.current_time() + LOOK_S)

    async def _with_patience(self, step: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await step()
            except (StorageUnavailable, CommitUnknown):
                await trio.sleep(RETRY_S)
            else:
                return

    async def _store_configured(self) -> None:
        await self.environment.database.run(sources.set_configured, self.configured, now=self.environment.now())

    async def _read(self) -> None:
        usable = await self.environment.database.read(sources.usable_sources, self.configured)
        found = {each.name: each for each in usable}
        for name, requests in list(self.directory.by_name.items()):
            if name not in found or found[name].id != requests.record.id:
                await self._drop(name, requests)
        for name, record in found.items():
            there = self.directory.by_name.get(name)
            if there is None:
                there = self.directory.by_name[name] = SourceRequests(record=record)
                self.environment.emit(SourceAdded(source=name, kind=record.kind))
            else:
                there.record = record
                there.is_stale = True  # its state may have been changed by hand
                there.wake_up.set()
            if there.is_closing and not there.is_gone:
                there.open()  # an earlier keeper has closed it
            await self.start(there)

    async def _drop(self, name: str, requests: SourceRequests) -> None:
        del self.directory.by_name[name]
        requests.close()
        requests.stop_running()
        await self.stop(name)
        self.environment.emit(SourceRemoved(source=name))
