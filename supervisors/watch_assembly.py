"""Makes the tickers, the tracker and the job handlers of watching, and what programs do with them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Any

from attrs import define, field

from actors.actor import Address, Recheck
from actors.environment import Environment
from actors.jobs.handler import Handler
from actors.jobs.working_set import JobWakeUp, OwnerLease
from actors.watch.due_enqueuer import PriceTicker, SavedSearchTicker
from actors.watch.feed_checker import FeedChecker
from actors.watch.feed_ticker import CheckNow, FeedTicker, HostQueues
from actors.watch.handover_tracker import ConfiguredTarget, HandoverTracker
from actors.watch.watch_jobs import handover_job
from actors.watch.watchlist_store import DatabaseArtistStore
from actors.watch.watchlist_ticker import TickNow, WatchlistTicker
from cormorant.rules.settings.watch import profile_of
from cormorant.rules.watch.feed_statistics import CheckStatistics
from cormorant.rules.watch.prices import COLLECT
from cormorant.rules.watch.wants import HANDOVER_KIND, WANT_KIND
from cormorant.rules.watch.watches import SAVED_KIND
from cormorant.services.schedule import Timetable
from cormorant.services.searches import Searches
from cormorant.services.watch.feeds import Feeds
from cormorant.services.watch.handover_job import HandoverJob
from cormorant.services.watch.parcel_fetcher import ParcelFetcher
from cormorant.services.watch.price_collector import PriceCollector
from cormorant.services.watch.prices import Prices
from cormorant.services.watch.saved_search import SavedSearchJob
from cormorant.services.watch.targets import configured_targets
from cormorant.services.watch.want_search import WantSearch, longest_run_s
from cormorant.services.watch.wants import Wants
from cormorant.services.watch.watches import Artists, SavedSearches, WatchService
from storage.watch.choice import CandidateChoice
from supervisors.child import ChildSpec, Runnable
from supervisors.supervisor import Supervisor

HANDOVER_S = 3_900.0
"""Longer than any target may take; each has a time-out of its own, and a download takes its time."""
SPARE_S = 0.5
"""What a ticker needs after its grace, to release what it has claimed."""


@define(eq=False, kw_only=True)
class WatchAssembly:
    """The branch of watching. It outlives its actors."""

    environment: Environment = field(kw_only=False)
    searches: Searches
    producer: JobWakeUp
    lease: OwnerLease
    timetable: Timetable
    handover: Address[Recheck] = field(init=False)
    watchlist: Address[TickNow | Recheck] = field(init=False)
    subscription: Address[CheckNow | Recheck] = field(init=False)
    saved_searches: Address[Recheck] = field(init=False)
    price: Address[Recheck] = field(init=False)
    targets: Mapping[str, ConfiguredTarget] = field(init=False)
    chooser: CandidateChoice = field(init=False)
    artists: Artists = field(init=False)
    saved: SavedSearches = field(init=False)
    wants: Wants = field(init=False)
    feeds: Feeds = field(init=False)
    prices: Prices = field(init=False)
    _running_feeds: dict[int, datetime] = field(init=False, factory=dict)
    _pacing: HostQueues = field(init=False)

    def __attrs_post_init__(self) -> None:
        environment, emit = self.environment, self.environment.emit
        self.handover = Address("handover", emit=emit)
        self.watchlist = Address("watchlist_ticker", emit=emit)
        self.subscription = Address("subscription_ticker", emit=emit)
        self.saved_searches = Address("saved_search_ticker", emit=emit)
        self.price = Address("price_ticker", emit=emit)
        self._pacing = HostQueues(environment.settings.subscriptions.domain_request_delay_s)
        self.targets = configured_targets(environment)
        self.chooser = CandidateChoice(
            profiles={name: profile_of(said) for name, said in environment.settings.profiles.items()},
            takes={name: each.target.takes for name, each in self.targets.items()},
            is_live=environment.settings.mode == "live",
            make_handover=partial(handover_job, environment),
        )
        self.artists = Artists(environment, targets=self.targets.keys(), ticker=self.watchlist)
        self.saved = SavedSearches(environment, targets=self.targets.keys())
        self.wants = Wants(environment, chooser=self.chooser, places=self.targets)
        self.feeds = Feeds(
            environment,
            ticker=self.subscription,
            statistics=CheckStatistics(),
            running=self._running_feeds,
            targets=self.targets.keys(),
        )
        self.prices = Prices(environment)

    @property
    def sleepers(self) -> list[Address[Any]]:
        """The actors that sleep until something is due."""
        return [self.handover, self.watchlist, self.subscription, self.saved_searches, self.price]

    @property
    def kinds(self) -> list[WatchService[Any]]:
        """What a program does with each kind of watch."""
        return [self.feeds, self.saved, self.artists, self.prices]

    def handlers(self) -> dict[str, Handler]:
        """The handlers of the jobs of wants, prices and saved searches."""
        environment, searches = self.environment, self.searches
        fetcher = ParcelFetcher(environment, searches=searches)
        handover = HandoverJob(environment, places=self.targets, fetcher=fetcher, chooser=self.chooser)
        search = WantSearch(environment, searches=searches, chooser=self.chooser)
        settings = environment.settings
        search_s = max(settings.jobs.timeout_s, longest_run_s(settings.watchlist))
        return {
            WANT_KIND: Handler(search, timeout_s=search_s),
            HANDOVER_KIND: Handler(handover, timeout_s=HANDOVER_S),
            COLLECT: Handler(PriceCollector(environment, searches=searches)),
            SAVED_KIND: Handler(SavedSearchJob(environment, searches=searches, chooser=self.chooser)),
        }

    def tracker(self) -> Runnable:
        """Asks targets what became of handovers."""
        make = partial(
            HandoverTracker,
            self.environment,
            places=self.targets,
            chooser=self.chooser,
            producer=self.producer,
            lease=self.lease,
        )
        return self.handover.served_by(make)

    def tickers(self) -> Supervisor:
        """The actors that find due watches."""
        saved, prices = self.saved_searches.served_by(self._saved), self.price.served_by(self._prices)
        grace_s = self.environment.settings.watchlist.shutdown_grace_s + SPARE_S
        return Supervisor(
            [
                ChildSpec("watchlist_ticker", self.watchlist.served_by(self._watchlist), grace_s=grace_s),
                ChildSpec("subscription_ticker", self.subscription.served_by(self.feed_ticker), grace_s=SPARE_S),
                # Cancellation leaves nothing half done in these two.
                ChildSpec("saved_search_ticker", saved, grace_s=0.0),
                ChildSpec("price_ticker", prices, grace_s=0.0),
            ],
            name="tickers",
            added_s=0.0,
            emit=self.environment.emit,
            chance=self.environment.chance,
        )

    def _watchlist(self) -> WatchlistTicker:
        environment = self.environment
        own = DatabaseArtistStore(environment, producer=self.producer, lease=self.lease)
        ticker = WatchlistTicker(
            environment,
            lease=self.lease,
            store=environment.clients.watchlist or own,
        )
        return self.timetable.recorded("watchlist_ticker", ticker)

    def _saved(self) -> SavedSearchTicker:
        configured = self.saved.from_settings()
        ticker = SavedSearchTicker(self.environment, configured=configured, producer=self.producer)
        return self.timetable.recorded("saved_search_ticker", ticker)

    def _prices(self) -> PriceTicker:
        ticker = PriceTicker(self.environment, configured=self.prices.from_settings(), producer=self.producer)
        return self.timetable.recorded("price_ticker", ticker)

    def feed_ticker(self) -> FeedTicker:
        """Checks the feeds that are due."""
        checker = FeedChecker(
            self.environment,
            chooser=self.chooser,
            statistics=self.feeds.statistics,
            producer=self.producer,
            active=self._running_feeds,
        )
        ticker = FeedTicker(
            self.environment,
            checker=checker,
            pacing=self._pacing,
            configured=self.feeds.from_settings(),
            lease=self.lease,
        )
        return self.timetable.recorded("subscription_ticker", ticker)
