"""Makes the search branch: limiters, reconciler, dispatcher, callbacks."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

import trio
from attrs import define, field

from actors.actor import Address, Recheck
from actors.environment import Environment
from actors.search.callbacks import Callbacks, CallbackStream
from actors.search.dispatcher import Dispatcher, Submit, TicketIntake
from actors.search.rate_limiter import LimiterMessage, RateLimiter, end_requests
from actors.search.source_directory import SourceDirectory, SourceEntry
from actors.search.source_reconciler import SPARE_S, SourceReconciler
from actors.search.waiting import SlotWaiters
from cormorant.rules.errors import StartFailed, describe
from cormorant.rules.search.outcomes import OutcomeStatus
from cormorant.rules.search.slots import SlotPool
from cormorant.rules.secrets import shortened
from cormorant.rules.supervision import OnExhausted, Strategy
from cormorant.services.searches import Searches
from cormorant.services.sources import configured_sources
from supervisors.child import ChildSpec
from supervisors.supervisor import Supervisor

GRACE_S = 3.0
"""What requests under way get when the service stops."""
CALLBACKS_S = 1.0
LIMITERS_S = 2.0
"""What limiters that are cancelled may take to end."""


@define(eq=False)
class SearchAssembly:
    """Everything that belongs to the search supervisor and outlives its children."""

    environment: Environment
    directory: SourceDirectory = field(factory=SourceDirectory)
    slots: SlotWaiters = field(init=False)
    intake: TicketIntake = field(factory=TicketIntake)
    sources: Supervisor = field(init=False)
    dispatcher: Address[Submit] = field(init=False)
    callbacks: Address[CallbackStream] = field(init=False)

    def __attrs_post_init__(self) -> None:
        environment, chosen = self.environment, self.environment.settings.search
        self.slots = SlotWaiters(SlotPool(slots=chosen.slots))
        self.dispatcher = Address("dispatcher", capacity=1_000, emit=environment.emit)
        self.callbacks = Address("callbacks", capacity=chosen.queue_max, emit=environment.emit)
        self.sources = Supervisor(
            [],
            name="sources",
            intensity=10,
            period_s=60.0,
            added_s=LIMITERS_S,
            emit=environment.emit,
            chance=environment.chance,
        )

    def supervisor(self) -> Supervisor:
        """The branch of the tree: started in this order, stopped in reverse."""
        reconciler = Address[Recheck]("source_keeper", emit=self.environment.emit)
        end_intake = partial(self.intake.end, OutcomeStatus.SHUT_DOWN)
        dispatcher = self.dispatcher.served_by(self._dispatcher, on_gone=end_intake)
        return Supervisor(
            [
                ChildSpec("sources", self.sources),
                ChildSpec("callbacks", self.callbacks.served_by(self._callbacks), grace_s=CALLBACKS_S),
                ChildSpec("source_keeper", reconciler.served_by(self._reconciler), grace_s=GRACE_S + SPARE_S),
                ChildSpec("dispatcher", dispatcher, grace_s=SPARE_S),
            ],
            name="search",
            strategy=Strategy.REST_FOR_ONE,  # without its supervisor no limiter is there, and the keeper starts them anew
            added_s=0.0,
            emit=self.environment.emit,
            chance=self.environment.chance,
        )

    @property
    def sleepers(self) -> list[Address[LimiterMessage]]:
        """The limiters. Each sleeps until its source opens."""
        return [entry.address for entry in self.directory.by_name.values()]

    def searches(self) -> Searches:
        """What a program does with it."""
        return Searches(self.environment, directory=self.directory, dispatcher=self.dispatcher)

    def _callbacks(self) -> Callbacks:
        return Callbacks(self.environment)

    def _dispatcher(self) -> Dispatcher:
        return Dispatcher(self.environment, directory=self.directory, intake=self.intake, callbacks=self.callbacks)

    def _reconciler(self) -> SourceReconciler:
        return SourceReconciler(
            self.environment,
            directory=self.directory,
            intake=self.intake,
            configured=configured_sources(self.environment.settings),
            start=self._start_limiter,
            stop=self._stop_limiter,
            grace_s=GRACE_S,
        )

    async def _start_limiter(self, entry: SourceEntry) -> None:
        address, requests = entry.address, entry.requests
        if self.sources.child(address.name) is not None:
            await trio.lowlevel.checkpoint()
            return
        make = partial(RateLimiter, self.environment, requests=requests, slots=self.slots)
        served = address.served_by(make, on_gone=lambda: end_requests(requests, self._last_crash(address.name)))
        # Cancelling it leaves nothing half done: its requests had their grace before, from the reconciler. A limiter that
        # crashes again and again is set aside alone.
        spec = ChildSpec(address.name, served, grace_s=0.0, on_exhausted=OnExhausted.SET_ASIDE)
        await self.sources.start_child(spec)

    async def _stop_limiter(self, source: str) -> None:
        with suppress(StartFailed):  # it was stopped before, or has ended with its supervisor
            await self.sources.stop_child(f"rate_limiter:{source}")

    def _last_crash(self, name: str) -> str:
        child = self.sources.child(name)
        crash = None if child is None else child.last_crash
        return "it ended without an error" if crash is None else shortened(describe(crash))
