"""Makes the parts of the tree from settings and ports: storage, jobs, notifier, maintenance, web."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from attrs import field, frozen

from actors.actor import Address
from actors.jobs.handler import Handler, JobServices
from actors.jobs.reclaim_sweeper import ReclaimSweeper
from actors.jobs.runner import JobRunner, RunnerMessage, RunnerOptions
from actors.jobs.working_set import JobWakeUp
from actors.maintenance import Maintenance
from actors.notifier import KIND as NOTIFY
from actors.notifier import NoticeBuffer, Notifier
from actors.search.request_execution import Ask
from actors.watch.handover_tracker import ConfiguredTarget
from actors.watch.watchlist_store import WatchlistStore
from actors.watch.watchlist_ticker import ArtistCatalogue
from cormorant import __version__
from cormorant.clients.apprise import Tell, send_in_subprocess
from cormorant.clients.files import Download
from cormorant.clients.targets.target import Target
from cormorant.rules.jobs.states import RetryPolicy
from cormorant.rules.ports import Chance, Clock, Emit, Offload
from cormorant.rules.settings.settings import Settings
from cormorant.rules.settings.watch import TargetSettings
from cormorant.rules.supervision import ChildView
from cormorant.rules.watch.handovers import InDoubt
from cormorant.services.durable_search import KIND, DurableSearch
from cormorant.services.event_bus import EventStream, Listener
from cormorant.services.jobs import Jobs
from cormorant.services.notifications import SendNotifications, receivers
from cormorant.services.schedule import Timetable
from cormorant.services.searches import Searches
from cormorant.services.sources import AskCaps
from cormorant.services.watch.feeds import Feeds
from cormorant.services.watch.parcel_fetcher import ParcelFetcher
from cormorant.services.watch.prices import Prices
from cormorant.services.watch.spotify_catalogue import SpotifyCatalogue
from cormorant.services.watch.targets import targets_of
from cormorant.services.watch.watches import Watches
from storage.database import Database, StorageOptions
from storage.search.sources import SourceRecord
from supervisors.child import Runnable
from supervisors.search_assembly import SearchAssembly, SearchParts
from supervisors.tree import TreeParts
from supervisors.watch_assembly import Feed, WatchAssembly, WatchParts

UNCONFIRMED_SHARE = 0.8
"""Handlers stop when this much of the silence has passed after which others may take their jobs."""


@frozen(kw_only=True)
class Assembly:
    """Everything the tree is put together from."""

    settings: Settings
    handlers: Mapping[str, Handler]
    database: Database
    ask: Ask
    fetch: Callable[[SourceRecord, str], Awaitable[Download]]
    fetch_link: Callable[[str], Awaitable[Download]]
    feed: Feed
    """For links of feeds, which no source has."""
    caps: AskCaps | None
    catalogue: ArtistCatalogue | None
    """Whoever knows artists, unless it is the source of the settings."""
    targets: Mapping[str, Target] | None
    """Whoever takes finds, by name, instead of those of the settings."""
    watchlist: WatchlistStore | None
    tell: Tell | None = None
    """Whoever tells people, instead of Apprise."""
    offload: Offload
    is_ready: Callable[[], bool]
    children: Callable[[], Sequence[ChildView]]
    events: Callable[[], EventStream]
    listen: Callable[[Listener], None]
    clock: Clock
    chance: Chance
    emit: Emit
    timetable: Timetable = field(factory=Timetable)

    def put_together(self) -> tuple[TreeParts, Jobs, Searches, Watches, Feeds, Prices]:
        """The parts of the tree, and what a program does with its jobs, sources, watches, subscriptions and prices."""
        wake_up = JobWakeUp()
        runner: Address[RunnerMessage] = Address("job_runner", emit=self.emit)
        jobs = self._jobs(runner, wake_up)
        search = self._search()
        searches = search.searches()
        watching = self._watching(searches, jobs)
        subscriptions = watching.subscribing.subscriptions()
        durable = {KIND: Handler(DurableSearch(searches=searches, clock=self.clock))}
        ours = {**durable, **watching.handlers(), **self._notifications()}
        handlers = {**ours, **self.handlers}
        parts = TreeParts(
            storage=self.database,
            search=search.supervisor(),
            handover=watching.follower(),
            job_runner=runner.served_by(lambda: self._job_runner(wake_up, jobs, handlers)),
            tickers=watching.tickers(),
            reclaim_sweeper=Address[None]("reclaim_sweeper", emit=self.emit).served_by(
                lambda: self.timetable.recorded("reclaim_sweeper", self._sweeper(wake_up))
            ),
            maintenance=Address[None]("maintenance", emit=self.emit).served_by(
                lambda: self.timetable.recorded("maintenance", self._maintenance())
            ),
            notifier=self._notifier(jobs) if self.settings.notify.apprise else None,
            web=self._web(searches, jobs, watching, subscriptions) if self.settings.web.enabled else None,
            job_grace_s=self.settings.jobs.grace_s,
            stop_total_s=self.settings.service.stop_total_s,
            emit=self.emit,
            chance=self.chance,
        )
        return parts, jobs, searches, watching.watches, subscriptions, watching.pricing.prices

    def by_hand(self) -> tuple[SearchAssembly, Watches, Feeds]:
        """For a command beside the service. The branch that searches is started only if it is needed."""
        search = self._search()
        jobs = self._jobs(Address("job_runner", emit=self.emit), JobWakeUp())
        watching = self._watching(search.searches(), jobs)
        return search, watching.watches, watching.subscribing.subscriptions()

    def prices_by_hand(self) -> Prices:
        """For a command beside the service."""
        jobs = self._jobs(Address("job_runner", emit=self.emit), JobWakeUp())
        return Prices(settings=self.settings, database=self.database, jobs=jobs, clock=self.clock)

    def _web(self, searches: Searches, jobs: Jobs, watching: WatchAssembly, subscriptions: Feeds) -> Runnable:
        from cormorant.web.metrics import Metrics  # noqa: PLC0415 - who has no server need not wait for it to load
        from cormorant.web.parts import Scheduled, WebParts  # noqa: PLC0415 - as above
        from cormorant.web.server import WebServer  # noqa: PLC0415 - as above

        metrics = Metrics()
        self.listen(metrics)
        parts = WebParts(
            web=self.settings.web,
            clients=self.settings.clients,
            data=self.settings.data,
            file_mode=self.settings.data_file_mode,
            mode=self.settings.mode,
            rss_ttl_s=self.settings.search.rss_ttl_s,
            searches=searches,
            jobs=jobs,
            watches=watching.watches,
            subscriptions=subscriptions,
            prices=watching.pricing.prices,
            database=self.database,
            fetch=self.fetch,
            caps=self.caps,
            is_ready=self.is_ready,
            tree=self.children,
            events=self.events,
            scheduled=lambda: [Scheduled(name=name, due_in_s=due_in_s) for name, due_in_s in self.timetable.due()],
            metrics=metrics,
            clock=self.clock,
            emit=self.emit,
            offload=self.offload,
        )
        return Address[None]("web", emit=self.emit).served_by(lambda: WebServer(parts=parts))

    def _notifications(self) -> dict[str, Handler]:
        """The handler that sends notifications; none where no address is set."""
        if not self.settings.notify.apprise:
            return {}
        send = SendNotifications(
            settings=self.settings, clock=self.clock, emit=self.emit, tell=self.tell or send_in_subprocess
        )
        return {NOTIFY: Handler(send)}

    def _notifier(self, jobs: Jobs) -> Runnable:
        board = NoticeBuffer(on=frozenset(self.settings.notify.on))
        self.listen(board)
        first = min(jobs.priorities, key=lambda label: jobs.priorities[label])
        return Address[None]("notifier", emit=self.emit).served_by(
            lambda: Notifier(
                board=board,
                options=self.settings.notify,
                receivers=tuple(receivers(self.settings)),
                folder=self.settings.data,
                free_bytes=_free_bytes,
                database=self.database,
                make=lambda *said, **how: jobs.make(*said, priority=first, **how),
                notify=jobs.wake_up.set,
                offload=self.offload,
                clock=self.clock,
                emit=self.emit,
            )
        )

    def _watching(self, searches: Searches, jobs: Jobs) -> WatchAssembly:
        return WatchAssembly(
            WatchParts(
                settings=self.settings,
                database=self.database,
                searches=searches,
                jobs=jobs,
                ask=self.ask,
                catalogue=self.catalogue or SpotifyCatalogue(searches=searches, offload=self.offload, clock=self.clock),
                places=self._places(),
                pack=ParcelFetcher(searches=searches, fetch=self.fetch, fetch_link=self.fetch_link),
                feed=self.feed,
                store=self.watchlist,
                clock=self.clock,
                chance=self.chance,
                emit=self.emit,
                timetable=self.timetable,
            )
        )

    def _places(self) -> dict[str, ConfiguredTarget]:
        """Targets with what is set for them. One that is given and not set is held in doubt, as it would be."""
        own = self.targets is None
        given = targets_of(self.settings, offload=self.offload, clock=self.clock) if own else self.targets or {}
        return {
            name: ConfiguredTarget(
                target=target,
                in_doubt=InDoubt(said.in_doubt),
                stalled_s=said.stalled_s,
                follow_s=said.follow_s,
            )
            for name, target in given.items()
            for said in (self.settings.targets.get(name) or TargetSettings(),)
        }

    def _search(self) -> SearchAssembly:
        return SearchAssembly(
            SearchParts(
                settings=self.settings,
                database=self.database,
                ask=self.ask,
                clock=self.clock,
                chance=self.chance,
                emit=self.emit,
            )
        )

    def _job_runner(self, wake_up: JobWakeUp, reach: JobServices, handlers: Mapping[str, Handler]) -> JobRunner:
        return JobRunner(
            database=self.database,
            handlers=handlers,
            options=self._runner_options(),
            wake_up=wake_up,
            reach=reach,
            clock=self.clock,
            chance=self.chance,
            emit=self.emit,
        )

    def _runner_options(self) -> RunnerOptions:
        chosen, queue = self.settings.jobs, self.settings.queue
        return RunnerOptions(
            worker_id=self.settings.service.worker_id or f"{socket.gethostname()}.{os.getpid()}",
            version=__version__,
            concurrency=chosen.concurrency,
            priorities=queue.priorities,
            timeout_s=chosen.timeout_s,
            grace_s=chosen.grace_s,
            poll_s=chosen.poll_s,
            beat_s=chosen.heartbeat_s,
            unconfirmed_s=chosen.lock_timeout_s * UNCONFIRMED_SHARE,
            max_in_memory=queue.max_in_memory,
            warn_depth=queue.warn_depth,
            retry=RetryPolicy(base_s=chosen.retry_base_s, cap_s=chosen.retry_cap_s),
        )

    def _sweeper(self, wake_up: JobWakeUp) -> ReclaimSweeper:
        return ReclaimSweeper(
            database=self.database,
            wake_up=wake_up,
            clock=self.clock,
            emit=self.emit,
            interval_s=self.settings.jobs.sweep_s,
            silence_s=self.settings.jobs.lock_timeout_s,
        )

    def _maintenance(self) -> Maintenance:
        return Maintenance(
            database=self.database,
            clock=self.clock,
            emit=self.emit,
            keep_succeeded_s=self.settings.jobs.keep_succeeded_s,
            keep_failed_s=self.settings.jobs.keep_failed_s,
            keep_history_s=self.settings.search.history_keep_s,
            history_max=self.settings.search.history_max,
        )

    def _jobs(self, runner: Address[RunnerMessage], wake_up: JobWakeUp) -> Jobs:
        own = {kind: handler.max_attempts for kind, handler in self.handlers.items() if handler.max_attempts}
        return Jobs(
            database=self.database,
            runner=runner,
            wake_up=wake_up,
            priorities=self.settings.queue.priorities,
            max_attempts=own,
            usual_max_attempts=self.settings.jobs.max_attempts,
            clock=self.clock,
            chance=self.chance,
            emit=self.emit,
        )


def storage_options(settings: Settings) -> StorageOptions:
    """The gateway's options as the settings have them."""
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


def _free_bytes(folder: str) -> int:
    return shutil.disk_usage(folder).free
