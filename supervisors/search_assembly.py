"""Makes the search branch: limiters, reconciler, dispatcher, callbacks."""

from __future__ import annotations

from functools import partial

import trio
from attrs import define, field, frozen

from actors.actor import Address
from actors.environment import Environment
from actors.search.callbacks import Callbacks, CallbackStream
from actors.search.dispatcher import AdmittedTickets, Dispatcher, Submit
from actors.search.rate_limiter import RateLimiter
from actors.search.source_reconciler import SourceDirectory, SourceReconciler
from actors.search.source_requests import SourceRequests
from actors.search.waiting import SlotWaiters
from cormorant.rules.errors import describe
from cormorant.rules.search.slots import SlotPool
from cormorant.rules.secrets import shortened
from cormorant.rules.supervision import OnExhausted, Strategy
from cormorant.services.searches import Searches
from cormorant.services.sources import configured_sources
from supervisors.child import ChildSpec, Runnable
from supervisors.supervisor import Supervisor

GRACE_S = 3.0
"""What requests under way get when the service stops."""
CALLBACKS_S = 1.0
SPARE_S = 1.0


@define(eq=False)
class SearchAssembly:
    """Everything that belongs to the search supervisor and outlives its children."""

    environment: Environment
    directory: SourceDirectory = field(factory=SourceDirectory)
    slots: SlotWaiters = field(init=False)
    intake: AdmittedTickets = field(factory=AdmittedTickets)
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
            stop_total_s=2.0,
            emit=environment.emit,
            chance=environment.chance,
        )

    def supervisor(self) -> Supervisor:
        """The branch of the tree: started in this order, stopped in reverse."""
        reconciler = Address[None]("source_keeper", emit=self.environment.emit)
        return Supervisor(
            [
                ChildSpec("sources", self.sources),
                ChildSpec("callbacks", self.callbacks.served_by(self._callbacks), grace_s=CALLBACKS_S),
                ChildSpec("source_keeper", reconciler.served_by(self._reconciler), grace_s=GRACE_S + SPARE_S),
                ChildSpec("dispatcher", self.dispatcher.served_by(self._dispatcher), grace_s=SPARE_S),
            ],
            name="search",
            strategy=Strategy.REST_FOR_ONE,  # without its supervisor no limiter is there, and the keeper starts them anew
            stop_total_s=2.0 + CALLBACKS_S + GRACE_S + 2 * SPARE_S,
            emit=self.environment.emit,
            chance=self.environment.chance,
        )

    def searches(self) -> Searches:
        """What a program does with it."""
        return Searches(self.environment, directory=self.directory, dispatcher=self.dispatcher)

    def _callbacks(self) -> Callbacks:
        return Callbacks(self.environment)

    def _dispatcher(self) -> Dispatcher:
        return Dispatcher(
            self.environment, directory=self.directory.by_name, intake=self.intake, callbacks=self.callbacks
        )

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

    async def _start_limiter(self, requests: SourceRequests) -> None:
        name = _child_name(requests.name)
        if any(child.name == name for child in self.sources.children()):
            await trio.lowlevel.checkpoint()
            return
        served = Address[None](name, emit=self.environment.emit).served_by(partial(self._limiter, requests))
        # Its requests have had their grace before, from the keeper: hundreds of limiters cannot have one each. One that cannot
        # be kept running takes nobody with it.
        limiter = _Limiter(served, requests, self.sources, name)
        spec = ChildSpec(name, limiter, grace_s=0.0, on_exhausted=OnExhausted.SET_ASIDE)
        await self.sources.start_child(spec)

    async def _stop_limiter(self, source: str) -> None:
        await self.sources.stop_child(_child_name(source))

    def _limiter(self, requests: SourceRequests) -> RateLimiter:
        return RateLimiter(self.environment, requests=requests, slots=self.slots)


@frozen
class _Limiter:
    """A limiter that ends what waits for it when it will not be started again.

    It has no `stop`: nothing is left to be done in good order when its turn comes, so that cancelling it is no force.
    """

    served: Runnable
    requests: SourceRequests
    sources: Supervisor
    name: str

    async def __call__(self, *, task_status: trio.TaskStatus[object]) -> None:
        await self.served(task_status=task_status)

    def gone(self) -> None:
        self.requests.is_gone = True
        self.requests.gone_because = self._last_crash()
        self.requests.close()
        self.served.gone()  # type: ignore[attr-defined]  # an address that is served has it

    def _last_crash(self) -> str:
        crash = next((child.last_crash for child in self.sources.children() if child.name == self.name), None)
        return "nobody knows why" if crash is None else shortened(describe(crash))


def _child_name(source: str) -> str:
    return f"rate_limiter:{source}"
