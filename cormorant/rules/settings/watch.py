"""Settings of artists, profiles, targets, saved searches, feeds and prices."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from string import Formatter
from typing import Any, Final, TypeVar

import attrs
from attrs import frozen

from cormorant.rules.addresses import feed_address_problem
from cormorant.rules.schedules import Schedule, ScheduleProblem
from cormorant.rules.search.requests import BadRequest, SearchRequest
from cormorant.rules.secrets import Secret
from cormorant.rules.settings.fields import (
    FLAG,
    Alias,
    Conflict,
    Kind,
    Setting,
    choice,
    duration,
    flag,
    number,
    patterns,
    secret,
    setting_field,
    share,
    size,
    text,
    web_address,
    words,
)
from cormorant.rules.settings.keys import suggestion
from cormorant.rules.watch.artists import Artist, Start, read_start
from cormorant.rules.watch.feeds import USUAL_S, Subscription
from cormorant.rules.watch.handovers import FOLLOW_S, InDoubt
from cormorant.rules.watch.prices import BadPrice, PriceWatch, read_price
from cormorant.rules.watch.profiles import FREELEECH, Profile, pattern_problem
from cormorant.rules.watch.releases import CatalogueArtist
from cormorant.rules.watch.watches import FirstCheck, SavedSearch, watch_from

MODES: Final = ("observe", "live")
TARGET_KINDS: Final = ("qbittorrent", "sabnzbd", "blackhole", "download", "command", "webhook", "slskd")
NEEDS_FOLDER: Final = frozenset({"blackhole", "download"})
DEFAULT_PROFILE: Final = "default"
"""What holds where no profile is named; a table of this name says what that is, else everything fits."""

_SIZE_MAX: Final = 10 * 1000**4
_LISTED_MAX: Final = 100
_NEEDS_ADDRESS: Final = frozenset({"qbittorrent", "sabnzbd", "webhook"})


def _parse_start(value: object) -> str:
    read_start(str(value))
    return str(value)


START = Kind(name="now, all, or a day", parse=_parse_start)


@frozen(kw_only=True)
class WatchlistSettings:
    """Artists: how often and how gently they are looked at, and what becomes of what they release."""

    source: str = text("spotify", "Name of the source that knows the artists.")
    every_s: float = duration(12 * 3_600.0, "How often each artist is looked at.", low_s=60.0, high_s=30 * 86_400.0)
    search: tuple[str, ...] = words(
        "Names of the sources where releases are searched. Empty: all that can be searched."
    )
    choose: str = text("", "Name of the profile that says what fits. Empty: default.")
    hand_to: tuple[str, ...] = words("Names of the targets, the first that can take a find gets it.")
    interval_s: float = duration(
        60.0,
        "Shortest time between two ticks.",
        low_s=0.1,
        high_s=86_400.0,
        aliases=(Alias("WATCHLIST_INTERVAL", "s"),),
    )
    max_concurrency: int = number(
        4, "Artists that are looked at together.", low=1, high=10, aliases=(Alias("WATCHLIST_MAX_CONCURRENCY"),)
    )
    max_per_tick: int = number(
        20, "Artists that a tick takes in hand.", low=1, high=100, aliases=(Alias("WATCHLIST_MAX_PER_TICK"),)
    )
    spotify_timeout_s: float = duration(
        8.0,
        "Longest time for asking about an artist or an album.",
        low_s=0.1,
        high_s=60.0,
        aliases=(Alias("WATCHLIST_SPOTIFY_TIMEOUT_MS", "ms"),),
    )
    slskd_search_timeout_s: float = duration(
        60.0,
        "Time-out of a want's search through slskd. At its end the results found so far count.",
        low_s=1.0,
        high_s=300.0,
        aliases=(Alias("WATCHLIST_SLSKD_SEARCH_TIMEOUT_MS", "ms"),),
    )
    tick_budget_s: float = duration(
        8.0,
        "Longest time for a tick; artists that it had no time for are charged nothing.",
        low_s=0.1,
        high_s=3_600.0,
        aliases=(Alias("WATCHLIST_TICK_BUDGET_MS", "ms"),),
    )
    backoff_base_s: float = duration(
        0.25,
        "Wait after the first failed attempt; it doubles with each further one, up to 5s.",
        low_s=0.0,
        high_s=5.0,
        aliases=(Alias("WATCHLIST_BACKOFF_BASE_MS", "ms"),),
    )
    retry_max: int = number(
        3, "Attempts for each artist in a tick.", low=1, high=5, aliases=(Alias("WATCHLIST_RETRY_MAX"),)
    )
    jitter: float = share(
        0.2, "By how much of itself such a wait may differ.", aliases=(Alias("WATCHLIST_JITTER_PCT", "%", 100),)
    )
    retry_budget: int = number(
        6,
        "Failed attempts, searches included, after which an artist is left alone for a while.",
        low=1,
        high=20,
        aliases=(Alias("WATCHLIST_RETRY_BUDGET_PER_ARTIST"),),
    )
    cooldown_s: float = duration(
        900.0,
        "How long it is left alone then.",
        low_s=0.0,
        high_s=240 * 60.0,
        aliases=(Alias("WATCHLIST_COOLDOWN_MINUTES", "m"),),
    )
    shutdown_grace_s: float = duration(
        2.0,
        "Time that a tick gets to finish when the service stops.",
        low_s=0.0,
        high_s=600.0,
        aliases=(Alias("WATCHLIST_SHUTDOWN_GRACE_MS", "ms"),),
    )
    db_io_mode: str = choice(
        "thread",
        "Where statements run: in threads of this process, or through a gateway that the embedding program gives.",
        choices=("thread", "async"),
        aliases=(Alias("WATCHLIST_DB_IO_MODE"),),
    )


@frozen(kw_only=True)
class ArtistOptions:
    """One artist. What is not said is as the watchlist has it."""

    every_s: float | None = duration(None, "How often it is checked.", low_s=60.0, high_s=30 * 86_400.0)
    search: tuple[str, ...] = words("Only these sources.")
    choose: str = text("", "What fits: [profiles.NAME] of the settings.")
    hand_to: tuple[str, ...] = words("Targets; the first that takes a find gets it.")
    start: str = setting_field(
        "now", Setting(kind=START, meaning="now, all, or a day: what came out before stays out.")
    )


def artist_of(found: CatalogueArtist, options: ArtistOptions, *, source: str, now: datetime) -> Artist:
    """The artist that options mean."""
    start, day = read_start(options.start)
    start_on = now.date() if start is Start.NOW else day
    return watch_from(
        Artist, options, name=found.name, now=now, source=source, artist_id=found.id, start=start, start_on=start_on
    )


@frozen(kw_only=True)
class ProfileSettings:
    """Which finds fit, and which go first."""

    accept: tuple[str, ...] = patterns("Patterns of which one must be in the title.", problem=pattern_problem)
    reject: tuple[str, ...] = patterns("Patterns of which none may be in the title.", problem=pattern_problem)
    size_min_bytes: int | None = size(None, "Smallest size.", low_bytes=0, high_bytes=_SIZE_MAX)
    size_max_bytes: int | None = size(None, "Largest size.", low_bytes=1, high_bytes=_SIZE_MAX)
    min_seeders: int | None = number(None, "Least number of seeders of a torrent.", low=0, high=1_000_000)
    max_age_s: float | None = duration(None, "Oldest find.", low_s=0.0, high_s=36_500 * 86_400.0)
    freeleech: bool = flag(False, "Whether a torrent must cost no ratio.")  # noqa: FBT003  # a default
    categories: tuple[str, ...] = words("Numbers of the categories of which it must be in one.")
    prefer: tuple[str, ...] = patterns(
        f"Patterns that let a find go first, the most important first; {FREELEECH} is one by itself.",
        problem=pattern_problem,
    )


def profile_of(said: ProfileSettings) -> Profile:
    """The profile that settings mean."""
    return Profile(**attrs.asdict(said, recurse=False))


@frozen(kw_only=True)
class TargetSettings:
    """Someone who takes finds: a download client, a folder, a program, an address."""

    kind: str = choice("qbittorrent", "What it is.", choices=TARGET_KINDS)
    url: str = web_address("Its address, such as http://qbittorrent:8080.")
    key: Secret = secret("Key of its API; for a webhook, what its requests are signed with.")  # noqa: RUF009  # a field
    username: str = text("", "Name to log in with.")
    password: Secret = secret("Password to log in with.")  # noqa: RUF009  # an attrs field is made, not a value
    source: str = text("", "For slskd: name of the source that it is.")
    folder: str = text("", 'Folder for files; for downloads with parts such as "podcasts/{watch}/{title}".')
    category: str = text("", "Category that a download client files it under.")
    tags: tuple[str, ...] = words("Tags that a download client gives it.")
    paused: bool = flag(False, "Whether a download client waits for a person before it begins.")  # noqa: FBT003  # a default
    magnets: bool = flag(False, "Whether a folder takes magnets, as files with the link in them.")  # noqa: FBT003  # as above
    command: tuple[str, ...] = words('Program and its arguments, such as ["/usr/bin/take", "{link}", "{title}"].')
    timeout_s: float = duration(60.0, "Longest time for handing something over.", low_s=0.1, high_s=3_600.0)
    size_max_bytes: int = size(2_000_000_000, "Largest file that is downloaded.", low_bytes=1, high_bytes=_SIZE_MAX)
    in_doubt: str = choice(
        InDoubt.HOLD.value,
        "What to do when nobody knows whether it arrived and the target cannot be asked: send again, or wait for a person.",
        choices=tuple(each.value for each in InDoubt),
    )
    follow_s: float = duration(
        FOLLOW_S, "How often it is asked how far a find is; seldom, once it has taken long.", low_s=1.0, high_s=900.0
    )
    stalled_s: float = duration(
        6 * 3_600.0, "After so long without an end the next candidate is taken.", low_s=60.0, high_s=365 * 86_400.0
    )


@frozen(kw_only=True)
class SavedSettings:
    """A search that is repeated; what is new in it is wanted."""

    query: str = text("", "Words to search for. Empty: all that is new in the categories.")
    categories: tuple[str, ...] = words("Numbers of the categories to search in.")
    search: tuple[str, ...] = words("Names of the sources. Empty: all that can be searched.")
    every_s: float = duration(6 * 3_600.0, "How often it is repeated.", low_s=60.0, high_s=365 * 86_400.0)
    choose: str = text("", "Name of the profile that says what fits. Empty: default.")
    hand_to: tuple[str, ...] = words("Names of the targets, the first that can take a find gets it.")
    first_check: str = choice(
        "skip", "What the first check does with all that is there already.", choices=("skip", "take")
    )


def watch_conflicts(
    above: str,
    options: ArtistOptions | SavedSettings | WatchlistSettings,
    profiles: Collection[str],
    targets: Collection[str],
) -> Iterator[Conflict]:
    """What does not go together among the options of an artist or a saved search, profiles and targets."""
    if options.choose not in {DEFAULT_PROFILE, "", *profiles}:
        yield Conflict(
            (f"{above}.choose", f"profiles.{options.choose}"),
            f"there is no profile {options.choose[:40]!r}; write [profiles.{options.choose[:40]}], or leave it out"
            f"{suggestion(options.choose[:40], profiles)}",
        )
    yield from name_conflicts(f"{above}.hand_to", options.hand_to, targets, what="target", table="targets")


def name_conflicts(
    key: str, given: Sequence[str], known: Collection[str], *, what: str, table: str
) -> Iterator[Conflict]:
    """The names that mean nothing."""
    for name in given:
        if name not in known:
            there = f", or one of: {', '.join(sorted(known)[:_LISTED_MAX])}" if known else ""
            yield Conflict(
                (key, f"{table}.{name}"), f"there is no {what} {name[:40]!r}; write [{table}.{name[:40]}]{there}"
            )


def saved_conflicts(above: str, options: SavedSettings) -> Iterator[Conflict]:
    """What does not go together in a saved search."""
    if not options.query and not options.categories:
        yield Conflict((f"{above}.query", f"{above}.categories"), "it asks for nothing; give words or categories")
    if any(not number.isascii() or not number.isdigit() for number in options.categories):
        yield Conflict((f"{above}.categories", above), "categories are numbers, such as 3040")


def saved_search_of(name: str, options: SavedSettings, *, now: datetime) -> SavedSearch:
    """The saved search that options mean."""
    request = SearchRequest(query=options.query, categories=[int(number) for number in options.categories])
    return watch_from(
        SavedSearch, options, name=name, now=now, request=request, first_check=FirstCheck(options.first_check)
    )


def target_conflicts(targets: Mapping[str, TargetSettings]) -> Iterator[Conflict]:
    """What does not go together in a target."""
    for name, target in targets.items():
        above = f"targets.{name}"
        if target.kind in _NEEDS_ADDRESS and not target.url:
            yield Conflict((f"{above}.url", f"{above}.kind"), f"a target of kind {target.kind} needs its address")
        if target.kind in NEEDS_FOLDER and not target.folder:
            yield Conflict((f"{above}.folder", f"{above}.kind"), f"a target of kind {target.kind} needs a folder")
        if target.kind == "command" and not target.command:
            yield Conflict((f"{above}.command", f"{above}.kind"), "a target of kind command needs the program's name")
        if target.kind == "slskd" and not target.source:
            yield Conflict((f"{above}.source", f"{above}.kind"), "a target of kind slskd needs the name of its source")


def slskd_conflicts(targets: Mapping[str, TargetSettings], sources: Iterable[str]) -> Iterator[Conflict]:
    """A slskd that fetches must be one that is written as a source, too: there its address and key are."""
    known = set(sources)
    for name, target in targets.items():
        if target.kind == "slskd" and target.source and target.source not in known:
            yield Conflict(
                (f"targets.{name}.source", f"sources.{target.source}"),
                f"there is no source {target.source!r}; write [sources.{target.source}] with its address and key",
            )


def _parse_feed(value: object) -> str:
    # Invariant: the value is not in the message, for a key may stand in it.
    text = value if isinstance(value, str) else "no address"
    problem = feed_address_problem(text) if text else None
    if problem:
        raise ValueError(problem)
    return text


def _parse_always(value: object) -> bool:
    if not FLAG.parse(value):
        raise ValueError("it cannot be switched off; take it out")
    return True


ALWAYS = Kind(name="true", parse=_parse_always, from_environment=FLAG.from_environment)
"""What other programs let one choose. Whoever chose otherwise is told, and not left to find out."""
FEED = Kind(name="http:// or https:// address", parse=_parse_feed)


@frozen(kw_only=True)
class SubscriptionSettings:
    """Feeds: how many are checked at once, and how gently."""

    max_concurrent_checks: int = number(
        5, "Checks that run at the same time.", low=1, high=100, aliases=(Alias("MAX_CONCURRENT_CHECKS"),)
    )
    max_concurrent_domains: int = number(
        3, "Hosts that are asked at the same time.", low=1, high=100, aliases=(Alias("MAX_CONCURRENT_DOMAINS"),)
    )
    domain_request_delay_s: float = duration(
        1.0,
        "Time between two requests to one host.",
        low_s=0.0,
        high_s=3_600.0,
        aliases=(Alias("DOMAIN_REQUEST_DELAY", "s"),),
    )
    check_timeout_s: float = duration(
        30.0, "Longest time for one check.", low_s=0.1, high_s=600.0, aliases=(Alias("CHECK_TIMEOUT", "s"),)
    )
    misfire_grace_s: float = duration(
        300.0,
        "After so long a check counts as missed; it is made all the same, once.",
        low_s=0.0,
        high_s=86_400.0,
        aliases=(Alias("JOB_MISFIRE_GRACE_TIME", "s"),),
    )
    max_instances: int = number(
        1,
        "Checks of one feed at the same time; more than one makes no sense.",
        low=1,
        high=1,
        aliases=(Alias("JOB_MAX_INSTANCES"),),
    )
    coalesce: bool = setting_field(
        True,  # noqa: FBT003  # a default
        Setting(
            kind=ALWAYS,
            meaning="Checks that were missed are made up for by one. There is no other way.",
            aliases=(Alias("JOB_COALESCE"),),
        ),
    )
    persist: bool = setting_field(
        True,  # noqa: FBT003  # a default
        Setting(
            kind=ALWAYS,
            meaning="Schedules survive a restart. There is no other way.",
            aliases=(Alias("PERSIST_JOBS"),),
        ),
    )
    store_path: str = text(
        "", "Where older programs kept schedules; ours are in the database.", aliases=(Alias("JOB_STORE_PATH"),)
    )
    keep_checks_s: float = duration(
        30 * 86_400.0, "How long records of checks are kept.", low_s=0.0, high_s=3_650 * 86_400.0
    )
    keep_items_s: float = duration(
        90 * 86_400.0,
        "How long an entry is known after it went out of its feed; one that comes back later is new again.",
        low_s=86_400.0,
        high_s=36_500 * 86_400.0,
    )


@frozen(kw_only=True)
class FeedSettings:
    """One feed."""

    url: str = setting_field(
        "", Setting(kind=FEED, meaning="Address of the feed, with its key if it needs one; it is never shown in full.")
    )
    every_s: float | None = duration(
        None, "How often it is checked. Not set, and no cron: 6h.", low_s=60.0, high_s=365 * 86_400.0
    )
    cron: str = text("", 'Times as cron writes them, such as "0 */6 * * *", instead of an interval.')
    zone: str = text("UTC", "Zone of those times.")
    adaptive: bool = flag(False, "Whether busy feeds are checked more often and quiet ones less.")  # noqa: FBT003  # a default
    auto_import: bool = flag(True, "Whether what is new is handed over; otherwise it is only counted.")  # noqa: FBT003  # as above
    first_check: str = choice(
        "skip", "What the first check does with all that is there already.", choices=("skip", "take")
    )
    accept: tuple[str, ...] = patterns("Patterns of which one must be in the title.", problem=pattern_problem)
    reject: tuple[str, ...] = patterns("Patterns of which none may be in the title.", problem=pattern_problem)
    hand_to: tuple[str, ...] = words("Names of the targets, the first that can take a find gets it.")


Options = TypeVar("Options")


def options_from(options: type[Options], given: Mapping[str, Any]) -> Options:
    """The options of a watch that a command or an app gives, checked as those of the settings file. Raises `BadRequest`.

    None is what is not given.
    """
    values = {}
    for name, each in attrs.fields_dict(options).items():  # type: ignore[arg-type]  # an attrs class
        setting: Setting = each.metadata[Setting.KEY]
        if given.get(name) is not None:
            try:
                values[name] = setting.accept(given[name])
            except ValueError as error:
                raise BadRequest(setting.key(name), str(error)) from None
    return options(**values)


def checked(options: Options) -> Options:
    """Options that a program made, checked as those of the settings file. Raises `BadRequest`."""
    return options_from(type(options), attrs.asdict(options, recurse=False))  # type: ignore[arg-type]  # an attrs class


def refuse(conflicts: Iterable[Conflict]) -> None:
    """Raise `BadRequest` for the first of conflicts."""
    for conflict in conflicts:
        raise BadRequest(conflict.keys[0].rpartition(".")[2], conflict.text)


def schedule_of(options: FeedSettings) -> Schedule:
    """The schedule that options mean, or `ScheduleProblem`."""
    if options.cron:
        return Schedule(every_s=options.every_s, cron=" ".join(options.cron.split()), zone=options.zone)
    return Schedule(every_s=options.every_s or USUAL_S, zone=options.zone)


def feed_options(given: Mapping[str, Any]) -> FeedSettings:
    """As `options_from`. A zone without cron times, which the settings file may have, is refused."""
    if given.get("zone") and not given.get("cron"):
        raise BadRequest("zone", "an interval is the same in every zone; give cron with it, or leave it out")
    return options_from(FeedSettings, {**given, "zone": given.get("zone") or None})


def feed_of(name: str, options: FeedSettings, *, now: datetime, **more: Any) -> Subscription:
    """The feed that options mean."""
    takes_first = options.first_check == FirstCheck.TAKE
    return watch_from(
        Subscription, options, name=name, now=now, schedule=schedule_of(options), takes_first=takes_first, **more
    )


def feed_conflicts(above: str, options: FeedSettings, targets: Collection[str]) -> Iterator[Conflict]:
    """What does not go together in a feed, and with targets."""
    if not options.url:
        yield Conflict((f"{above}.url", above), "the feed has no address; write one like https://example.org/feed.xml")
    try:
        schedule_of(options)
    except ScheduleProblem as problem:
        yield Conflict((f"{above}.{problem.part}", above), str(problem))
    yield from name_conflicts(f"{above}.hand_to", options.hand_to, targets, what="target", table="targets")


PARTS: Final = ("title", "year", "mintmark", "denomination", "series")
"""What a query can be made of, besides the key."""

_PATH: Final = re.compile(r"[^.\s]{1,100}(?:\.[^.\s]{1,100}){0,9}")


@frozen(kw_only=True)
class PriceFieldSettings:
    """Where the facts of a price stand in each item, as a path such as "price.value"; the names are those of the items."""

    price: str = text("price", "For prices: path of the price, a number or a text such as 12.50 EUR.")
    title: str = text("title", "For prices: path of the title.")
    url: str = text("url", "For prices: path of the link.")
    id: str = text("id", "For prices: path of the site's own id of the item.")
    date: str = text("date", "For prices: path of the day, such as 2026-01-31, or of a time.")
    type: str = text("type", "For prices: path of what kind of price it is: sold, ask or bid.")
    currency: str = text("currency", "For prices: path of the currency, such as EUR.")


@frozen(kw_only=True)
class PriceSettings:
    """A thing whose price is watched."""

    title: str = text("", "What it is called; all of these words must be in the title of a price.")
    year: str = text("", "Its year.")
    mintmark: str = text("", "Its mintmark.")
    denomination: str = text("", "Its denomination.")
    series: str = text("", "Its series.")
    search: tuple[str, ...] = words("Names of the sources of kind prices. Empty: all of them.")
    every_s: float = duration(86_400.0, "How often they are asked.", low_s=60.0, high_s=365 * 86_400.0)
    currency: str = text("EUR", "The currency that counts; prices in others are kept apart.")
    below: str = text("", 'Tell when it is worth less than this, such as "100" or "99.50".')
    above: str = text("", "Tell when it is worth more than this.")


def query_problem(template: str) -> str | None:
    """Why a query cannot be made of this.

    >>> query_problem("q={title}&year={year}&token={key}")
    >>> query_problem("q={name}")
    'there is no part {name}; use {title}, {year}, {mintmark}, {denomination}, {series} or {key}'
    """
    known = ", ".join(f"{{{part}}}" for part in PARTS) + " or {key}"
    try:
        found = list(Formatter().parse(template))
    except ValueError:
        return f"a brace stands alone; write parts such as {known}"
    for _, part, how, conversion in found:
        if part is not None and (part not in {*PARTS, "key"} or how or conversion):
            return f"there is no part {{{part[:40]}}}; use {known}"
    return None


def path_problem(path: str) -> str | None:
    """Why this is no path.

    >>> path_problem("data.items.0"), path_problem("a..b")
    (None, 'it is no path; write names with dots between them, at most 10')
    """
    return None if _PATH.fullmatch(path) else "it is no path; write names with dots between them, at most 10"


def cents_of(part: str, limit: str) -> int | None:
    """The cents that a limit means; None when none is set. Raises `BadRequest`."""
    try:
        return read_price(limit).cents if limit else None
    except BadPrice as problem:
        raise BadRequest(part, str(problem)) from None


def price_of(name: str, options: PriceSettings, *, now: datetime) -> PriceWatch:
    """The price that options mean, or `BadRequest`."""
    limits = {part: cents_of(part, getattr(options, part)) for part in ("below", "above")}
    return watch_from(
        PriceWatch,
        options,
        name=name,
        now=now,
        title=" ".join(options.title.split()),
        below_cents=limits["below"],
        above_cents=limits["above"],
    )


def price_conflicts(
    above: str, name: str, options: PriceSettings, sources: Mapping[str, Any], price_sources: Collection[str]
) -> Iterator[Conflict]:
    """What does not go together in a price, and with the sources."""
    try:
        price_of(name, options, now=datetime.min)  # noqa: DTZ901 - no time is compared
    except BadRequest as problem:
        yield Conflict((f"{above}.{problem.part}", above), problem.text)
    for source in options.search:
        if source not in price_sources:
            what = "is of another kind" if source in sources else "is not there"
            keys = (f"{above}.search", f"sources.{source}")
            yield Conflict(keys, f'the source {source!r} {what}; write [sources.{source}] with kind = "prices"')
    if not options.search and not price_sources:
        yield Conflict((f"{above}.search", above), 'there is no source of prices; write one with kind = "prices"')
