"""Feed, FeedCheck, what follows from a check, validation, events of feeds."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final
from urllib.parse import urlsplit

from attrs import field, frozen

from cormorant.rules.events import Event, event
from cormorant.rules.schedules import Schedule, adapted_s, after_failure_s, next_due, overdue_delay_s
from cormorant.rules.search.requests import BadRequest, Result
from cormorant.rules.units import format_duration
from cormorant.rules.watch.profiles import matches
from cormorant.rules.watch.wants import KEY_LENGTH_MAX, Want, WantState, short_key
from cormorant.rules.watch.watches import Watch

FAILURES_MAX: Final = 10
"""At so many failures in a row it is paused, and says why."""
IMPORTED_TOGETHER: Final = 10
"""So many new items at most are wanted in one transaction."""


class CheckStatus(StrEnum):
    """How a check went."""

    STARTED = "started"
    SUCCESS = "success"
    FAILED = "failed"


@frozen(kw_only=True, slots=False)
class DueFeed:
    """A feed in hand: all that a check of it needs."""

    id: int = 0
    name: str
    url: str = field(repr=False)
    """It may hold a key."""
    has_moved: bool = False
    """Whether it moved to another host by itself: nobody wrote that one down, so that it must not be private."""
    schedule: Schedule
    effective_s: float | None = None
    """How often it is really checked, after failures or by its activity; None: as its schedule says."""
    is_adaptive: bool = False
    auto_import: bool = True
    takes_first: bool = False
    """Whether the first check imports what is there already."""
    accept: tuple[str, ...] = ()
    reject: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    next_attempt_at: datetime
    etag: str | None = None
    last_modified: str | None = None
    failures: int = 0
    has_succeeded: bool = False
    """Whether it was ever read."""
    token: int = field(default=0, repr=False)


@frozen(kw_only=True, slots=False)
class Subscription(DueFeed, Watch):
    """A feed that is checked again and again."""

    folder: tuple[str, ...] = ()
    """Where it stands in the list that it came from, from the outside in."""
    paused_because: str | None = None
    last_success: datetime | None = None


@frozen(kw_only=True)
class FeedEntryItem:
    """One entry of a feed. `key` is the same for the same entry, also where the feed gives none."""

    key: str
    title: str
    link: str = field(default="", repr=False)
    enclosure: str = field(default="", repr=False)
    enclosure_type: str = ""
    size_bytes: int | None = None
    published: datetime | None = None


@frozen(kw_only=True)
class FeedCheck:
    """What a check brought."""

    subscription_id: int
    started_at: datetime
    status: CheckStatus
    items_found: int = 0
    new_items: int = 0
    duration_ms: int = 0
    error: str | None = None


@frozen(kw_only=True)
class NextCheck:
    """What follows from a check: when the next is, how often from now on, and whether it is paused."""

    next_check_at: datetime
    effective_s: float | None
    failures: int
    paused_because: str | None = None


def after_check(
    subscription: DueFeed,
    *,
    error: str | None,
    recent_new: Sequence[int] = (),
    now: datetime,
    wait_s: float = 0.0,
) -> NextCheck:
    """What follows. `recent_new` are the numbers of new items of the last checks, this one included.

    Who was told to come back later does, whatever the schedule says.
    """
    base_s, due = subscription.schedule.every_s, subscription.next_attempt_at
    failures = 0 if error is None else subscription.failures + 1
    effective_s: float | None = None
    if base_s is not None:
        if error is not None:
            effective_s = after_failure_s(base_s=base_s, failures=failures)
        elif subscription.is_adaptive:
            effective_s = adapted_s(base_s=base_s, new_items=recent_new)
        effective_s = None if effective_s == base_s else effective_s
    why = f"{failures} failures in a row; the last: {error}" if failures >= FAILURES_MAX else None
    at = next_due(subscription.schedule, due=due, now=now, effective_s=effective_s)
    if base_s is None and failures:  # cron has no interval to double; it waits at least as long as one would
        at = max(at, due, now + timedelta(seconds=after_failure_s(base_s=60.0, failures=failures)))
    at = max(at, now + timedelta(seconds=wait_s)) if wait_s else at
    return NextCheck(next_check_at=at, effective_s=effective_s, failures=failures, paused_because=why)


def cadence_of(subscription: DueFeed, following: NextCheck) -> str:
    """Why the next check is when it is, in words.

    >>> at = datetime(2026, 1, 1)
    >>> feed = Subscription(name="a", url="", schedule=Schedule(every_s=3600), next_attempt_at=at, added_at=at)
    >>> cadence_of(feed, NextCheck(next_check_at=at, effective_s=None, failures=0))
    'every 1h'
    >>> cadence_of(feed, NextCheck(next_check_at=at, effective_s=7200.0, failures=3))
    'every 2h instead of 1h after 3 failures'
    """
    said = subscription.schedule
    if following.paused_because is not None:
        return "paused: not before it is resumed"
    if said.every_s is None:
        return f"cron {said.cron} {said.zone}"
    if following.effective_s is None:
        return f"every {format_duration(said.every_s)}"
    why = f"after {following.failures} failures" if following.failures else "by its activity"
    return f"every {format_duration(following.effective_s)} instead of {format_duration(said.every_s)} {why}"


def host_of(url: str) -> str:
    """Whose turn it takes: the host and port, without case.

    >>> host_of("https://user:pw@Example.ORG/feed.xml")
    'example.org'
    """
    parts = urlsplit(url)
    port = f":{parts.port}" if parts.port else ""
    return f"{(parts.hostname or '').lower()}{port}"


def is_same_feed(one: str, other: str) -> bool:
    """Whether two addresses are of one feed: a new key, or https for http, makes no other feed of it.

    >>> is_same_feed("http://x.org/rss?key=1", "https://X.org/rss?key=2"), is_same_feed("http://x.org/a", "http://x.org/b")
    (True, False)
    """
    return (host_of(one), urlsplit(one).path) == (host_of(other), urlsplit(other).path)


def is_wanted(item: FeedEntryItem, subscription: DueFeed) -> bool:
    """Whether the filters let an item through."""
    if subscription.accept and not any(matches(pattern, item.title) for pattern in subscription.accept):
        return False
    return not any(matches(pattern, item.title) for pattern in subscription.reject)


@frozen(kw_only=True)
class FetchedFeed:
    """What a feed had when it was asked. `is_unchanged`: nothing since the last time; `moved_to`: where it is for good."""

    items: tuple[FeedEntryItem, ...] = ()
    etag: str | None = None
    last_modified: str | None = None
    moved_to: str | None = None
    is_unchanged: bool = False
    left_out: int = 0
    """So many more stand in the document than are taken of it."""
    wait_s: float = 0.0
    """So long it wants to be left alone."""


def want_of(subscription: DueFeed, item: FeedEntryItem, now: datetime) -> Want:
    """What an item of a feed is wanted as."""
    return Want(
        key=short_key(f"feed:{subscription.id}:{item.key}", KEY_LENGTH_MAX),
        kind="item",
        title=item.title,
        watch=f"feed:{subscription.name}",
        state=WantState.SEARCHING,
        reason="new in the feed",
        targets=subscription.targets,
        found_at=now,
        changed_at=now,
    )


def result_of(item: FeedEntryItem) -> Result:
    """An item as a find: a torrent or an NZB by its type, otherwise something on the web."""
    link = item.enclosure or item.link
    kind = item.enclosure_type.lower()
    is_torrent = "bittorrent" in kind or link.startswith("magnet:") or link.partition("?")[0].endswith(".torrent")
    is_nzb = "nzb" in kind or link.partition("?")[0].endswith(".nzb")
    return Result(
        title=item.title,
        guid=item.key,
        link=link,
        protocol="torrent" if is_torrent else "usenet" if is_nzb else "web",
        size_bytes=item.size_bytes,
        published=item.published,
        enclosure_type=item.enclosure_type,
    )


NAME_LENGTH_MAX: Final = 120
FOLDERS_MAX: Final = 10
USUAL_S: Final = 6 * 3_600.0


def fit_name(said: str) -> str:
    r"""What is left of a name or folder when all is taken out that none may have; maybe nothing.

    >>> fit_name(" soft\xadhyphen\n\u2028and  more\u200d ")
    'softhyphen and more'
    """
    kept = "".join(mark for mark in said if mark.isprintable() or mark.isspace())
    return " ".join(kept.split())[:NAME_LENGTH_MAX].strip()


def check_names(wanted: Subscription, *, configured: Collection[str]) -> None:
    """Raise `BadRequest` unless a feed can be added under this name and in this folder."""
    name = wanted.name
    if not name.strip() or name != name.strip() or len(name) > NAME_LENGTH_MAX or not name.isprintable():
        raise BadRequest("name", f"give a single line of 1 to {NAME_LENGTH_MAX} characters, without spaces around it")
    if name.isdecimal():
        raise BadRequest("name", f"{name} would be taken for the number of a feed; add a word")
    if name in configured:
        raise BadRequest("name", f"the settings file has [feeds.{name}] already; change it there, or choose another")
    if len(wanted.folder) > FOLDERS_MAX:
        raise BadRequest("folder", f"{len(wanted.folder)} are within each other; {FOLDERS_MAX} are allowed")
    if not all(0 < len(each) <= NAME_LENGTH_MAX and each.isprintable() for each in wanted.folder):
        raise BadRequest("folder", f"give single lines of 1 to {NAME_LENGTH_MAX} characters")


@event("subscription.checked")
class SubscriptionChecked(Event):
    """A feed was checked. `unchanged`: it said that nothing is new; `imported` of the new items are wanted.

    `left_out` more stand in it than are taken. The next check is at `next_check_at`, `because` of its schedule or what became of it.
    """

    subscription: str
    unchanged: bool
    items_found: int
    new_items: int
    imported: int
    duration_ms: int
    next_check_at: datetime
    because: str
    left_out: int = 0


@event("subscription.failed", level="warning")
class SubscriptionFailed(Event):
    """A check failed. From the third in a row on it is checked less often."""

    subscription: str
    failures: int
    error: str
    duration_ms: int
    next_check_at: datetime
    because: str


@event("subscription.paused", level="error")
class SubscriptionPaused(Event):
    """So many checks failed in a row that it is left alone until a person resumes it."""

    subscription: str
    why: str


@event("subscription.misfired")
class SubscriptionMisfired(Event):
    """A check is made so late that it counts as missed. It is made once, whatever was missed."""

    subscription: str
    late_s: float


@event("subscription.maintained", level="debug")
class SubscriptionsMaintained(Event):
    """The hourly look: how many there are, and how many records and items of old are forgotten."""

    scheduled_jobs: int
    active_checks: int
    pruned: int
    items_pruned: int


def events_of(
    subscription: DueFeed, page: FetchedFeed, check: FeedCheck, imported: int, following: NextCheck
) -> Iterator[Event]:
    """What the end of a check is told as."""
    facts: dict[str, Any] = {
        "subscription": subscription.name,
        "duration_ms": check.duration_ms,
        "next_check_at": following.next_check_at,
        "because": cadence_of(subscription, following),
    }
    if check.status is CheckStatus.SUCCESS:
        facts |= {"items_found": check.items_found, "new_items": check.new_items, "imported": imported}
        yield SubscriptionChecked(unchanged=page.is_unchanged, left_out=page.left_out, **facts)
    else:
        yield SubscriptionFailed(failures=following.failures, error=check.error or "", **facts)
    if following.paused_because is not None:
        yield SubscriptionPaused(subscription=subscription.name, why=following.paused_because)


def next_time_anew(each: Subscription, *, now: datetime) -> datetime:
    """The next check, counted from the last one. A time that has passed becomes a share of the next minute."""
    if each.last_checked is None:
        return now
    last = each.last_checked
    at = next_due(each.schedule, due=last, now=last, effective_s=each.effective_s)
    return at if at > now else now + timedelta(seconds=overdue_delay_s(each.id))
