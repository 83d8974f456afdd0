"""Makes the tickers, the tracker and the job handlers of watching."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

import trio
from attrs import define, field, frozen

from actors.actor import Address
from actors.jobs.handler import Handler
from actors.periodic import WakeUp
from actors.search.request_execution import Ask
from actors.watch.feed_checker import FeedChecker
from actors.watch.feed_ticker import LOOK_S, CheckNow, FeedTicker
from actors.watch.handover_tracker import ConfiguredTarget, HandoverTracker
from actors.watch.price_ticker import PriceTicker
from actors.watch.saved_search_ticker import SavedSearchTicker
from actors.watch.watchlist_store import DatabaseArtistStore, DatabaseProgressStore, WatchlistStore
from actors.watch.watchlist_ticker import ArtistCatalogue, WatchlistTicker
from cormorant.rules.errors import SettingsError
from cormorant.rules.ports import Chance, Clock, Emit
from cormorant.rules.search.outcomes import Outcome
from cormorant.rules.search.priorities import Priority
from cormorant.rules.search.requests import SearchRequest
from cormorant.rules.settings.settings import Settings
from cormorant.rules.settings.watch import profile_of, schedule_of
from cormorant.rules.watch.feed_statistics import CheckStatistics
from cormorant.rules.watch.feeds import DueFeed, FetchedFeed, Subscription
from cormorant.rules.watch.handovers import Parcel
from cormorant.rules.watch.prices import COLLECT
from cormorant.rules.watch.wants import Want
from cormorant.rules.watch.watches import FirstCheck, SavedSearch
from cormorant.services.jobs import Jobs
from cormorant.services.schedule import Timetable
from cormorant.services.searches import Searches
from cormorant.services.watch import handover_job, want_search
from cormorant.services.watch.feeds import Feeds
from cormorant.services.watch.handover_job import HandoverJob
from cormorant.services.watch.price_collector import PriceCollector
from cormorant.services.watch.prices import Prices
from cormorant.services.watch.want_search import WantSearch
from cormorant.services.watch.watches import Watches, WatchValidator
from storage import pauses
from storage.database import Database
from storage.jobs.jobs import NewJob
from storage.watch.choice import CandidateChoice
from storage.watch.wants import Candidate
from supervisors.child import ChildSpec, Runnable
from supervisors.supervisor import Supervisor

HANDOVER_S = 3_900.0
"""Longer than any target may take; each has a time-out of its own, and a download takes its time."""
SPARE_S = 0.5
"""What a ticker needs after its grace, to give back what it has in hand."""

Pack = Callable[[Want, Candidate, str], Awaitable[Parcel]]
Feed = Callable[[DueFeed], Awaitable[FetchedFeed]]


@frozen(kw_only=True)
class WatchParts:
    """What watching needs from outside."""

    settings: Settings
    database: Database
    searches: Searches
    jobs: Jobs
    ask: Ask
    catalogue: ArtistCatalogue
    places: Mapping[str, ConfiguredTarget]
    pack: Pack
    feed: Feed
    """Asks a feed what it has."""
    store: WatchlistStore | None
    """Whoever keeps the watchlist instead of the database."""
    clock: Clock
    chance: Chance
    emit: Emit
    timetable: Timetable


@define(eq=False)
class WatchAssembly:
    """Everything that belongs to watching."""

    parts: WatchParts
    chooser: CandidateChoice = field(init=False)
    handing: HandoverJob = field(init=False)
    watches: Watches = field(init=False)
    subscribing: FeedAssembly = field(init=False)
    pricing: PriceAssembly = field(init=False)

    def __attrs_post_init__(self) -> None:
        parts = self.parts
        is_async = parts.settings.watchlist.db_io_mode == "async"
        if is_async != (parts.store is not None):
            found = "is async, and no watchlist was given" if is_async else "is thread, and a watchlist was given"
            raise SettingsError([f"watchlist.db_io_mode {found}; async goes with open_service(watchlist=…)"])
        self.chooser = CandidateChoice(
            profiles={name: profile_of(said) for name, said in parts.settings.profiles.items()},
            takes={name: place.target.takes for name, place in parts.places.items()},
            is_live=parts.settings.mode == "live",
            make_handover=self._handover_job,
        )
        self.handing = HandoverJob(
            places=parts.places, pack=parts.pack, chooser=self.chooser, clock=parts.clock, emit=parts.emit
        )
        self.watches = Watches(
            database=parts.database,
            make_search=self._search_job,
            make_handover=self._handover_by_hand,
            make_lost_handover=self._handover_job,
            chooser=self.chooser,
            places=parts.places,
            catalogue=parts.catalogue,
            orders=WatchValidator(settings=parts.settings, targets=parts.places.keys()),
            notify=parts.jobs.wake_up.set,
            clock=parts.clock,
        )

        self.subscribing = FeedAssembly(
            settings=parts.settings,
            database=parts.database,
            fetch=parts.feed,
            chooser=self.chooser,
            notify=parts.jobs.wake_up.set,
            clock=parts.clock,
            emit=parts.emit,
            targets=parts.places.keys(),
            timetable=parts.timetable,
        )

        self.pricing = PriceAssembly(
            prices=Prices(settings=parts.settings, database=parts.database, jobs=parts.jobs, clock=parts.clock),
            searches=parts.searches,
            emit=parts.emit,
            timetable=parts.timetable,
        )

    def handlers(self) -> dict[str, Handler]:
        """The handlers of the jobs that wants have."""
        parts = self.parts
        search = WantSearch(
            searches=parts.searches,
            chooser=self.chooser,
            make_search=self._search_job,
            options=parts.settings.watchlist,
            clock=parts.clock,
            chance=parts.chance,
            emit=parts.emit,
        )
        longest_s = want_search.longest_run_s(parts.settings.watchlist)
        own = {
            want_search.KIND: Handler(search, timeout_s=max(parts.settings.jobs.timeout_s, longest_s)),
            handover_job.KIND: Handler(self.handing, timeout_s=HANDOVER_S),
        }
        return own | self.pricing.handlers()

    def follower(self) -> Runnable:
        """Follows what was handed over."""
        return Address[None]("handover", emit=self.parts.emit).served_by(self._follower)

    def tickers(self) -> Supervisor:
        """Those that look by themselves for what is new."""
        parts = self.parts
        watchlist = Address[None]("watchlist_ticker", emit=parts.emit).served_by(self._watchlist)
        saved = Address[None]("saved_search_ticker", emit=parts.emit).served_by(self._saved)
        grace_s = parts.settings.watchlist.shutdown_grace_s + SPARE_S
        return Supervisor(
            [
                ChildSpec("watchlist_ticker", watchlist, grace_s=grace_s),
                ChildSpec("subscription_ticker", self.subscribing.served(), grace_s=SPARE_S),
                ChildSpec("saved_search_ticker", saved, grace_s=SPARE_S),
                ChildSpec("price_ticker", self.pricing.served(), grace_s=0.0),
            ],
            name="tickers",
            stop_total_s=grace_s + 2 * SPARE_S,
            emit=parts.emit,
            chance=parts.chance,
        )

    def _follower(self) -> HandoverTracker:
        parts = self.parts
        return HandoverTracker(
            database=parts.database,
            places=parts.places,
            chooser=self.chooser,
            make_job=self.watches.job_of,
            notify=parts.jobs.wake_up.set,
            clock=parts.clock,
            emit=parts.emit,
        )

    def _watchlist(self) -> WatchlistTicker:
        parts = self.parts
        own = DatabaseArtistStore(database=parts.database, make_job=self._search_job, notify=parts.jobs.wake_up.set)
        made = WatchlistTicker(
            store=parts.store or own,
            walks=DatabaseProgressStore(parts.database),
            catalogue=parts.catalogue,
            options=parts.settings.watchlist,
            is_paused=self._is_paused,
            clock=parts.clock,
            chance=parts.chance,
            emit=parts.emit,
        )
        return parts.timetable.recorded("watchlist_ticker", made)

    def _saved(self) -> SavedSearchTicker:
        parts = self.parts
        made = SavedSearchTicker(
            database=parts.database,
            configured=self._configured(),
            run=self._run_saved,
            chooser=self.chooser,
            notify=parts.jobs.wake_up.set,
            clock=parts.clock,
            emit=parts.emit,
        )
        return parts.timetable.recorded("saved_search_ticker", made)

    async def _is_paused(self) -> bool:
        return await self.parts.database.read(pauses.is_all_paused)

    async def _run_saved(self, saved: SavedSearch) -> Sequence[Outcome]:
        search = await self.parts.searches.search(
            saved.request,
            sources=saved.sources or None,
            priority=Priority.RSS if saved.request.is_rss else Priority.BACKGROUND,
            consumer=f"saved:{saved.name}",
            # Not from what was kept of an earlier answer: there is no news in it.
            execute=None if saved.request.is_rss else self.parts.ask,
        )
        async with search:
            return [outcome async for outcome in search]

    def _configured(self) -> list[SavedSearch]:
        now = self.parts.clock.now()
        return [
            SavedSearch(
                name=name,
                request=SearchRequest(query=said.query, categories=[int(number) for number in said.categories]),
                every_s=said.every_s,
                sources=said.search,
                profile=said.choose,
                targets=said.hand_to,
                first_check=FirstCheck(said.first_check),
                next_attempt_at=now,
                added_at=now,
            )
            for name, said in sorted(self.parts.settings.saved.items())
        ]

    def _search_job(self, want: Want) -> NewJob:
        return self._job(want_search.KIND, want)

    def _handover_job(self, want: Want) -> NewJob:
        return self._job(handover_job.KIND, want)

    def _handover_by_hand(self, want: Want) -> NewJob:
        """A person has decided, whatever the mode."""
        return self._job(handover_job.KIND, want, by_hand=True)

    def _job(self, kind: str, want: Want, **more: bool) -> NewJob:
        jobs = self.parts.jobs
        last = max(jobs.priorities, key=lambda label: jobs.priorities[label])
        return jobs.make(kind, {"want": want.key} | more, priority=last, dedupe_key=want.key)


@define(eq=False, kw_only=True)
class FeedAssembly:
    """Everything that belongs to subscriptions."""

    settings: Settings
    database: Database
    fetch: Callable[[DueFeed], Awaitable[FetchedFeed]]
    chooser: CandidateChoice
    notify: Callable[[], None]
    clock: Clock
    emit: Emit
    targets: Collection[str] | None = None
    timetable: Timetable = field(factory=Timetable)
    look_s: float = LOOK_S
    statistics: CheckStatistics = field(factory=CheckStatistics)
    address: Address[CheckNow] = field(init=False)
    _wake_up: WakeUp = field(init=False, factory=WakeUp)
    _checker: FeedChecker | None = field(init=False, default=None)

    def __attrs_post_init__(self) -> None:
        self.address = Address("subscription_ticker", emit=self.emit)

    def served(self) -> Runnable:
        """The child of the tree."""
        return self.address.served_by(self._make)

    def subscriptions(self) -> Feeds:
        """What a program does with it."""
        return Feeds(
            database=self.database,
            ticker=self.address,
            statistics=self.statistics,
            concurrent_limit=self.settings.subscriptions.max_concurrent_checks,
            active=lambda: 0 if self._checker is None else len(self._checker.active),
            notify=self._wake_up.set,
            started=lambda number: None if self._checker is None else self._checker.active.get(number),
            clock=self.clock,
            delay_s=self.settings.subscriptions.domain_request_delay_s,
            targets=self.targets,
            configured=self.settings.feeds.keys(),
        )

    def _make(self) -> FeedTicker:
        options = self.settings.subscriptions
        self._checker = FeedChecker(
            database=self.database,
            fetch=self.fetch,
            chooser=self.chooser,
            timeout_s=options.check_timeout_s,
            statistics=self.statistics,
            notify=self.notify,
            clock=self.clock,
            emit=self.emit,
        )
        ticker = FeedTicker(
            database=self.database,
            checker=self._checker,
            configured=self._configured(),
            options=options,
            wake_up=self._wake_up,
            clock=self.clock,
            emit=self.emit,
            look_s=self.look_s,
        )
        return self.timetable.recorded("subscription_ticker", ticker)

    def _configured(self) -> list[Subscription]:
        now = self.clock.now()
        return [
            Subscription(
                name=name,
                url=said.url,
                schedule=schedule_of(said),
                is_adaptive=said.adaptive,
                auto_import=said.auto_import,
                takes_first=said.first_check == "take",
                accept=said.accept,
                reject=said.reject,
                targets=said.hand_to,
                next_check_at=now,
                added_at=now,
            )
            for name, said in sorted(self.settings.feeds.items())
        ]


@define(eq=False, kw_only=True)
class PriceAssembly:
    """Everything that belongs to collecting prices."""

    prices: Prices
    searches: Searches
    emit: Emit
    timetable: Timetable = field(factory=Timetable)
    address: Address[None] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.address = Address("price_ticker", emit=self.emit)

    def handlers(self) -> dict[str, Handler]:
        """The handler of the jobs that collect."""
        return {COLLECT: Handler(PriceCollector(searches=self.searches, clock=self.prices.clock, emit=self.emit))}

    def served(self) -> Runnable:
        """The child of the tree."""
        return _IdleChild(self.address.served_by(self._make))

    def _make(self) -> PriceTicker:
        own = self.prices
        made = PriceTicker(
            database=own.database,
            configured=own.configured(),
            make_jobs=own.collect_jobs,
            notify=own.jobs.wake_up.set,
            clock=own.clock,
            emit=self.emit,
        )
        return self.timetable.recorded("price_ticker", made)


@frozen
class _IdleChild:
    """It has no `stop`: nothing of it is half done when it is cancelled, so that cancelling it is no force."""

    served: Runnable

    async def __call__(self, *, task_status: trio.TaskStatus[object]) -> None:
        await self.served(task_status=task_status)

    def gone(self) -> None:
        self.served.gone()  # type: ignore[attr-defined]  # an address that is served has it
