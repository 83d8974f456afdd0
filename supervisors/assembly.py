"""Makes what a program does not give, and the parts of the tree: storage, jobs, notifier, maintenance, web."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from attrs import asdict, define, evolve, field

from actors.actor import Address, Recheck, StopServing
from actors.environment import NOT_GIVEN, Clients, Environment
from actors.jobs.handler import Handler
from actors.jobs.reclaim_sweeper import ReclaimSweeper
from actors.jobs.runner import JobRunner, RunnerMessage
from actors.jobs.working_set import JobWakeUp, OwnerLease
from actors.maintenance import Maintenance
from actors.notifier import KIND as NOTIFY
from actors.notifier import NoticeBuffer, Notifier
from actors.periodic import ClockWatch
from cormorant.clients.apprise import send_in_subprocess
from cormorant.rules.settings.settings import Settings
from cormorant.services.durable_search import KIND as SEARCH
from cormorant.services.durable_search import DurableSearch
from cormorant.services.event_bus import EventBus, ServiceMonitor
from cormorant.services.gate.client_apps import Apps
from cormorant.services.jobs import Jobs
from cormorant.services.notifications import SendNotifications, receivers
from cormorant.services.schedule import Timetable
from cormorant.services.searches import Searches
from cormorant.services.source_clients import SourceClients
from cormorant.services.watch.spotify_catalogue import SpotifyCatalogue
from cormorant.services.watch.targets import targets_of
from storage.database import Database, Mode, StorageOptions
from supervisors.child import Runnable
from supervisors.search_assembly import SearchAssembly
from supervisors.supervisor import Supervisor
from supervisors.tree import TreeChildren, tree
from supervisors.watch_assembly import WatchAssembly


def complete(environment: Environment, bus: EventBus) -> Environment:
    """The environment with its database, its `emit`, and the clients that need no other part of the service."""
    if not is_missing(environment.emit):
        given = environment.emit
        bus.listen(lambda stamped: given(stamped.event))
    environment = evolve(environment, emit=bus.emit)
    clock, chance = environment.clock, environment.chance
    if is_missing(environment.database):
        options = storage_options(environment.settings)
        database = Database(options, mode=Mode.THREADS, emit=bus.emit, chance=chance, clock=clock)
        environment = evolve(environment, database=database)
    else:
        environment.database.adopt(emit=bus.emit, chance=chance, clock=clock)
    return evolve(environment, clients=_clients(environment))


def _clients(environment: Environment) -> Clients:
    own = SourceClients(environment)
    given = {name: each for name, each in asdict(environment.clients, recurse=False).items() if each is not None}
    made = {
        "search": own.search,
        "caps": None if "search" in given else own.caps,
        "download": own.download,
        "link": own.fetch_link,
        "feed": own.feed,
        "targets": None if "targets" in given else targets_of(environment),
        "notify": send_in_subprocess,
    }
    return Clients(**made | given)


def is_missing(part: object) -> bool:
    """Whether a program has left a part of its environment to us."""
    return part is NOT_GIVEN


def with_catalogue(environment: Environment, searches: Searches) -> Environment:
    """The environment with the catalogue, which asks Spotify through the limiter of its source."""
    if not is_missing(environment.clients.catalogue):
        return environment
    catalogue = SpotifyCatalogue(environment, searches=searches)
    return evolve(environment, clients=evolve(environment.clients, catalogue=catalogue))


@define(eq=False)
class ServiceAssembly:
    """The branches of one service, and what a program does with each. Nothing of it runs before the tree does."""

    environment: Environment
    """Complete. Invariant: every actor and service gets this one."""
    handlers: Mapping[str, Handler] = field(factory=dict)
    wake_up: JobWakeUp = field(init=False, factory=JobWakeUp)
    lease: OwnerLease = field(init=False, factory=OwnerLease)
    """The lease of this process. The heartbeat keeps it, and the tickers claim under it."""
    timetable: Timetable = field(init=False, factory=Timetable)
    runner: Address[RunnerMessage] = field(init=False)
    sweeper: Address[Recheck] = field(init=False)
    maintenance: Address[Recheck] = field(init=False)
    notifier: Address[Recheck] = field(init=False)
    web: Address[StopServing] = field(init=False)
    search: SearchAssembly = field(init=False)
    searches: Searches = field(init=False)
    watching: WatchAssembly = field(init=False)
    jobs: Jobs = field(init=False)
    apps: Apps = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.search = SearchAssembly(self.environment)
        self.searches = self.search.searches()
        self.environment = with_catalogue(self.environment, self.searches)
        emit = self.environment.emit
        self.runner = Address("job_runner", emit=emit)
        self.sweeper = Address("reclaim_sweeper", emit=emit)
        self.maintenance = Address("maintenance", emit=emit)
        self.notifier = Address("notifier", emit=emit)
        self.web = Address("web", emit=emit)
        own = {kind: handler.max_attempts for kind, handler in self.handlers.items() if handler.max_attempts}
        self.jobs = Jobs(self.environment, runner=self.runner, wake_up=self.wake_up, max_attempts=own)
        self.apps = Apps(self.environment)
        self.watching = WatchAssembly(
            self.environment,
            searches=self.searches,
            producer=self.wake_up,
            lease=self.lease,
            timetable=self.timetable,
        )

    def tree(self, bus: EventBus, monitor: ServiceMonitor) -> Supervisor:
        """The whole tree."""
        environment, settings = self.environment, self.environment.settings
        return tree(
            environment,
            TreeChildren(
                storage=environment.database,
                search=self.search.supervisor(),
                handover=self.watching.tracker(),
                job_runner=self.runner.served_by(self._job_runner),
                tickers=self.watching.tickers(),
                reclaim_sweeper=self.sweeper.served_by(self._sweeper),
                maintenance=self.maintenance.served_by(self._maintenance),
                clock_watch=ClockWatch(environment=environment, sleepers=self._sleepers),
                notifier=self._notifier(bus) if settings.notify.apprise else None,
                web=self._web(bus, monitor) if settings.web.enabled else None,
            ),
        )

    def _job_runner(self) -> JobRunner:
        return JobRunner(
            self.environment,
            handlers=self._all_handlers(),
            wake_up=self.wake_up,
            reach=self.jobs,
            lease=self.lease,
            sweeper=self.sweeper,
        )

    def _all_handlers(self) -> dict[str, Handler]:
        """Our handlers, and those of the program, which may replace ours."""
        own = {SEARCH: Handler(DurableSearch(self.environment, searches=self.searches)), **self.watching.handlers()}
        if self.environment.settings.notify.apprise:
            own[NOTIFY] = Handler(SendNotifications(self.environment))
        return own | dict(self.handlers)

    def _sleepers(self) -> Sequence[Address[Any]]:
        own: list[Address[Any]] = [self.runner, self.sweeper, self.maintenance, self.notifier]
        return [*own, *self.watching.sleepers, *self.search.sleepers]

    def _sweeper(self) -> ReclaimSweeper:
        sweeper = ReclaimSweeper(self.environment, lease=self.lease, producer=self.wake_up)
        return self.timetable.recorded("reclaim_sweeper", sweeper)

    def _maintenance(self) -> Maintenance:
        return self.timetable.recorded("maintenance", Maintenance(self.environment))

    def _notifier(self, bus: EventBus) -> Runnable:
        settings = self.environment.settings
        buffer = NoticeBuffer(on=frozenset(settings.notify.on), notifier=self.notifier)
        bus.listen(buffer)
        make = partial(
            Notifier, self.environment, board=buffer, receivers=tuple(receivers(settings)), producer=self.wake_up
        )
        return self.notifier.served_by(make)

    def _web(self, bus: EventBus, monitor: ServiceMonitor) -> Runnable:
        from cormorant.web.metrics import Metrics  # noqa: PLC0415 - a service without a server need not load it
        from cormorant.web.parts import WebParts  # noqa: PLC0415 - as above
        from cormorant.web.server import WebServer  # noqa: PLC0415 - as above

        metrics = Metrics()
        bus.listen(metrics)
        parts = WebParts(
            self.environment,
            searches=self.searches,
            jobs=self.jobs,
            artists=self.watching.artists,
            saved=self.watching.saved,
            feeds=self.watching.feeds,
            prices=self.watching.prices,
            wants=self.watching.wants,
            apps=self.apps,
            monitor=monitor,
            bus=bus,
            timetable=self.timetable,
            metrics=metrics,
        )
        return self.web.served_by(lambda: WebServer(parts=parts))


def storage_options(settings: Settings) -> StorageOptions:
    """The options of the gateway as the settings have them."""
    chosen = settings.storage
    return StorageOptions(
        url=settings.database_url.reveal(),
        connections=chosen.connections,
        group_max=chosen.group_max,
        queue_max=chosen.queue_max,
        statement_timeout_s=chosen.statement_timeout_s,
        lock_timeout_s=chosen.lock_timeout_s,
        hold_s=chosen.hold_s,
        backup_folder=Path(settings.data) / "backups",
        file_mode=settings.data_file_mode,
    )
