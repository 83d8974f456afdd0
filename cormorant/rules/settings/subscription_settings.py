"""What can be set for subscriptions: how many feeds at once, how gently with each host, and which feeds?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from attrs import frozen

from cormorant.rules.schedules import Schedule, ScheduleProblem
from cormorant.rules.settings.conflicts import Conflict
from cormorant.rules.settings.fields import (
    FLAG,
    Alias,
    Kind,
    Setting,
    choice,
    duration,
    flag,
    number,
    setting_field,
    text,
)
from cormorant.rules.settings.word_lists import patterns, words
from cormorant.rules.watch.feed_orders import USUAL_S
from cormorant.rules.watch.profiles import pattern_problem
from cormorant.rules.web_addresses import feed_address_problem

__all__ = ["FeedSettings", "SubscriptionSettings", "feed_conflicts", "schedule_of"]


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


def schedule_of(said: FeedSettings) -> Schedule:
    """The schedule that settings mean, or `ScheduleProblem`."""
    if said.cron:
        return Schedule(every_s=said.every_s, cron=said.cron, zone=said.zone)
    return Schedule(every_s=said.every_s or USUAL_S, zone=said.zone)


def feed_conflicts(feeds: Mapping[str, FeedSettings], targets: Iterable[str]) -> Iterator[Conflict]:
    """What does not go together among feeds and targets."""
    known = set(targets)
    for name, said in feeds.items():
        above = f"feeds.{name}"
        if not said.url:
            yield Conflict(
                (f"{above}.url", above), "the feed has no address; write one like https://example.org/feed.xml"
            )
        try:
            schedule_of(said)
        except ScheduleProblem as problem:
            yield Conflict((f"{above}.cron", f"{above}.every", f"{above}.zone"), str(problem))
        for target in said.hand_to:
            if target not in known:
                yield Conflict(
                    (f"{above}.hand_to", f"targets.{target}"),
                    f"there is no target {target!r}; write [targets.{target}]",
                )
