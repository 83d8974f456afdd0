"""Settings: storage, service, log, jobs, queue and search, composed of all parts.

A new part is a class here and a line in `Settings`; loading, environment names, checks and documentation follow from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attrs import field, frozen

from cormorant.rules.addresses import sqlite_address
from cormorant.rules.search.priorities import Priority
from cormorant.rules.secrets import Secret
from cormorant.rules.settings.fields import (
    Alias,
    Conflict,
    SettingsConflict,
    choice,
    database,
    duration,
    flag,
    named,
    number,
    path,
    ranks,
    text,
    zone,
)
from cormorant.rules.settings.service import (
    ClientSettings,
    NotifySettings,
    PlaygroundSettings,
    WebSettings,
    notify_conflicts,
    playground_conflicts,
    web_conflicts,
)
from cormorant.rules.settings.sources import (
    PRICE_KIND,
    RESERVED_NAMES,
    LimitSettings,
    SourceSettings,
    source_conflicts,
)
from cormorant.rules.settings.watch import (
    MODES,
    FeedSettings,
    PriceSettings,
    ProfileSettings,
    SavedSettings,
    SubscriptionSettings,
    TargetSettings,
    WatchlistSettings,
    feed_conflicts,
    price_conflicts,
    saved_conflicts,
    slskd_conflicts,
    target_conflicts,
    watch_conflicts,
)
from cormorant.rules.units import format_duration

__all__ = [
    "Conflict",
    "JobSettings",
    "LogSettings",
    "QueueSettings",
    "SearchSettings",
    "ServiceSettings",
    "Settings",
    "SettingsConflict",
    "StorageSettings",
]

DATABASE_FILE = "cormorant.db"

_BEATS_MIN = 2
"""Heartbeats that fit into the silence after which a process counts as dead: one may be late."""


@frozen(kw_only=True)
class StorageSettings:
    """The database, where everything is remembered."""

    url: Secret = database(  # noqa: RUF009  # an attrs field is made, not a value
        "Address of the database, such as postgresql://me@host/cormorant. "
        f"Empty: the SQLite file {DATABASE_FILE} in the data folder.",
    )
    statement_timeout_s: float = duration(
        15.0, "Longest time one statement may take before it is given up.", low_s=0.1, high_s=600.0
    )
    lock_timeout_s: float = duration(
        5.0, "Longest time a statement waits for what another process has locked.", low_s=0.1, high_s=600.0
    )
    hold_s: float = duration(
        30.0, "How long a call waits out a database that is away before it fails.", low_s=0.0, high_s=3600.0
    )
    connections: int = number(2, "Connections to PostgreSQL. SQLite has one writer.", low=1, high=100)
    queue_max: int = number(10_000, "Calls that may be under way; whoever comes then waits.", low=1, high=1_000_000)
    group_max: int = number(512, "Calls that share one transaction on SQLite at most.", low=1, high=100_000)


@frozen(kw_only=True)
class ServiceSettings:
    """The process as a whole."""

    worker_id: str = text(
        "",
        "Name of this process among those that share the database. Empty: the name of the host.",
        aliases=(Alias("WORKER_ID"),),
    )
    stop_total_s: float = duration(
        30.0,
        "Longest time an orderly stop may take; what is left then is cancelled. At least the grace periods of "
        "all parts of the service together, which docs/architecture.md lists.",
        low_s=1.0,
        high_s=900.0,
    )


@frozen(kw_only=True)
class LogSettings:
    """The log, one line per event on standard error."""

    format: str = choice("logfmt", "How a line is written.", choices=("logfmt", "json"))
    level: str = choice(
        "info", "The least important events that are written.", choices=("debug", "info", "warning", "error")
    )
    ring: int = number(
        10_000,
        "Events that may wait to be written. Beyond that the oldest are dropped, and a line says how many.",
        low=1,
        high=1_000_000,
    )


@frozen(kw_only=True)
class JobSettings:
    """Durable jobs: how many run at once, how long they may take, when they are tried again, how long they are kept."""

    concurrency: int = number(20, "Handlers that may run at the same time in this process.", low=1, high=1_000)
    timeout_s: float = duration(
        300.0, "Longest time a handler may take, unless its kind says otherwise.", low_s=0.1, high_s=86_400.0
    )
    grace_s: float = duration(5.0, "Time that handlers get to finish when the service stops.", low_s=0.0, high_s=600.0)
    poll_s: float = duration(
        60.0,
        "Longest time between two looks for due work on PostgreSQL, should a notification be missed.",
        low_s=0.1,
        high_s=300.0,
    )
    max_attempts: int = number(10, "Attempts before a job is given up.", low=1, high=1_000)
    retry_base_s: float = duration(
        300.0, "Wait after the first failed attempt; it doubles with each further one.", low_s=0.1, high_s=86_400.0
    )
    retry_cap_s: float = duration(86_400.0, "Longest wait between two attempts.", low_s=0.1, high_s=30 * 86_400.0)
    heartbeat_s: float = duration(
        20.0, "How often this process shows the others that it lives.", low_s=0.1, high_s=60.0
    )
    lock_timeout_s: float = duration(
        300.0,
        f"How long a process must be silent until its jobs are given to others. At least {_BEATS_MIN} times jobs.heartbeat.",
        low_s=1.0,
        high_s=86_400.0,
        aliases=(Alias("JOB_LOCK_TIMEOUT_SECONDS", "s"),),
    )
    sweep_s: float = duration(60.0, "How often is looked for processes that fell silent.", low_s=0.1, high_s=3600.0)
    keep_succeeded_s: float = duration(
        7 * 86_400.0, "How long jobs are kept that succeeded or were cancelled.", low_s=0.0, high_s=3650 * 86_400.0
    )
    keep_failed_s: float = duration(
        30 * 86_400.0, "How long jobs are kept that failed.", low_s=0.0, high_s=3650 * 86_400.0
    )


@frozen(kw_only=True)
class QueueSettings:
    """The queue in memory: what this process has in hand."""

    priorities: dict[str, int] = ranks(  # noqa: RUF009 - an attrs field is made, not a value
        {"high": 0, "normal": 5, "low": 10}, "The names of priorities; a lower number goes first."
    )
    max_in_memory: int = number(5_000, "Items it may hold; more are refused.", low=1, high=1_000_000)
    warn_depth: int = number(1_000, "Items from which on it warns.", low=1, high=1_000_000)


@frozen(kw_only=True)
class SearchSettings:
    """Searches: how many run at once, how many may wait, what is remembered of their answers."""

    slots: int = number(10, "Searches that may run at the same time in this process.", low=1, high=1_000)
    window_s: float = duration(
        0.005, "Searches that arrive within this time are put in order together.", low_s=0.0, high_s=1.0
    )
    queue_max: int = number(
        10_000, "Searches that may wait, over all sources; more are refused (QueueFull).", low=1, high=1_000_000
    )
    cache_enabled: bool = flag(
        True,  # noqa: FBT003  # a default
        "Whether a search that was answered a short time ago is answered without asking again.",
        aliases=(Alias("CACHE_ENABLED"),),
    )
    cache_ttl_s: float = duration(
        3600.0,
        "How long an answer may be given again.",
        low_s=0.0,
        high_s=30 * 86_400.0,
        aliases=(Alias("CACHE_TTL_SECONDS", "s"),),
    )
    rss_ttl_s: float = duration(
        60.0, "How long the answer to a feed of what is new may be given again.", low_s=0.0, high_s=86_400.0
    )
    history_keep_s: float = duration(
        30 * 86_400.0, "How long the history of searches is kept.", low_s=0.0, high_s=3650 * 86_400.0
    )
    history_max: int = number(100_000, "Searches that the history holds; the oldest go first.", low=0, high=10_000_000)

    def ttl_s(self, priority: Priority) -> float:
        """Seconds for which an answer to a search of this priority may be given again. 0: it is not kept."""
        if not self.cache_enabled:
            return 0.0
        return self.rss_ttl_s if priority is Priority.RSS else self.cache_ttl_s


@frozen(kw_only=True)
class Settings:
    """Everything that can be set. With the defaults it runs anywhere."""

    data: str = path("data", "Folder for the database and all else that is kept. Made when it is missing.")
    data_mode: str = choice(
        "0600",
        "Mode of the files in the data folder. 0660 shares them with the group of the folder.",
        choices=("0600", "0660"),
    )
    time_zone: str = zone("UTC", "Zone of times of day and of days, such as Europe/Berlin.")
    storage: StorageSettings = field(factory=StorageSettings)
    service: ServiceSettings = field(factory=ServiceSettings)
    log: LogSettings = field(factory=LogSettings)
    jobs: JobSettings = field(factory=JobSettings)
    queue: QueueSettings = field(factory=QueueSettings)
    search: SearchSettings = field(factory=SearchSettings)
    limits: Mapping[str, LimitSettings] = named(LimitSettings)
    sources: Mapping[str, SourceSettings] = named(SourceSettings, reserved=RESERVED_NAMES)
    mode: str = choice("observe", "Whether finds are handed over, or only shown as what would be.", choices=MODES)
    watchlist: WatchlistSettings = field(factory=WatchlistSettings)
    subscriptions: SubscriptionSettings = field(factory=SubscriptionSettings)
    feeds: Mapping[str, FeedSettings] = named(FeedSettings)
    saved: Mapping[str, SavedSettings] = named(SavedSettings)
    prices: Mapping[str, PriceSettings] = named(PriceSettings)
    profiles: Mapping[str, ProfileSettings] = named(ProfileSettings)
    targets: Mapping[str, TargetSettings] = named(TargetSettings)
    notify: NotifySettings = field(factory=NotifySettings)
    web: WebSettings = field(factory=WebSettings)
    clients: Mapping[str, ClientSettings] = named(ClientSettings)
    playground: PlaygroundSettings = field(factory=PlaygroundSettings)

    def __attrs_post_init__(self) -> None:
        found = list(_conflicts(self))
        if found:
            raise SettingsConflict(found)

    @property
    def database_url(self) -> Secret:
        """Where the database is: as set, or the file in the data folder."""
        return self.storage.url or Secret(sqlite_address(f"{self.data}/{DATABASE_FILE}"))

    @property
    def data_file_mode(self) -> int:
        """The mode of files in the data folder, as a number."""
        return int(self.data_mode, 8)


def _conflicts(settings: Settings) -> Iterator[Conflict]:
    jobs = settings.jobs
    least_s = round(jobs.heartbeat_s * _BEATS_MIN, 6)  # what is written has at most a few decimals
    if jobs.lock_timeout_s < least_s:
        yield Conflict(
            ("jobs.lock_timeout", "jobs.heartbeat"),
            f"{format_duration(jobs.lock_timeout_s)} is less than {_BEATS_MIN} times jobs.heartbeat "
            f"({format_duration(jobs.heartbeat_s)}), so that a process that lives would count as dead; "
            f"allowed: at least {format_duration(least_s)}",
        )
    yield from source_conflicts(settings.sources, settings.limits)
    yield from target_conflicts(settings.targets)
    yield from slskd_conflicts(settings.targets, settings.sources)
    yield from _watch_conflicts(settings)
    yield from notify_conflicts(settings.notify)
    yield from web_conflicts(settings.web, settings.clients)
    yield from playground_conflicts(settings.playground, has_database=bool(settings.storage.url))


def _watch_conflicts(settings: Settings) -> Iterator[Conflict]:
    profiles, targets = settings.profiles, settings.targets
    yield from watch_conflicts("watchlist", settings.watchlist, profiles, targets)
    for name, saved in settings.saved.items():
        yield from watch_conflicts(f"saved.{name}", saved, profiles, targets)
        yield from saved_conflicts(f"saved.{name}", saved)
    for name, feed in settings.feeds.items():
        yield from feed_conflicts(f"feeds.{name}", feed, targets)
    price_sources = [name for name, source in settings.sources.items() if source.kind == PRICE_KIND]
    for name, price in settings.prices.items():
        yield from price_conflicts(f"prices.{name}", name, price, settings.sources, price_sources)
