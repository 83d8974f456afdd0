"""One view per watch, want, candidate and handover: the same for the API, JSON and text. No view shows a key."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from cormorant.rules.secrets import (
    SecretFilter,
    keys_in,
    redact_keys,
    redact_link,
    redact_passwords,
    secret_filter_of,
    shortened,
)
from cormorant.rules.views import view_of
from cormorant.rules.watch.artists import Artist
from cormorant.rules.watch.feeds import FeedCheck, Subscription
from cormorant.rules.watch.handovers import Handover
from cormorant.rules.watch.prices import PriceWatch, Valuation
from cormorant.rules.watch.wants import Want, short_ref
from cormorant.rules.watch.watches import SavedSearch

if TYPE_CHECKING:
    from storage.search.sources import SourceRecord
    from storage.watch.prices import PriceView
    from storage.watch.wants import Candidate, WantView


@frozen(kw_only=True)
class ArtistBody:
    """An artist to be watched: `artist` is a name, an id or a link, and is looked up; with `id` and `name` nobody is asked.

    `start` is now, all, or a day: what came out before is not wanted.
    """

    artist: str = ""
    id: str = ""
    name: str = ""
    start: str = "now"
    every_s: float | None = None
    search: list[str] = field(factory=list)
    choose: str = ""
    hand_to: list[str] = field(factory=list)


@frozen(kw_only=True)
class ArtistOut:
    """An artist on the watchlist, and when it is looked at next."""

    number: int
    source: str
    id: str
    name: str
    start: str
    start_on: date | None
    every_s: float | None
    search: list[str]
    choose: str
    hand_to: list[str]
    is_paused: bool
    next_look_at: datetime
    left_alone_until: datetime | None
    last_success_at: datetime | None
    last_looked_at: datetime | None
    failures: int
    last_error: str | None
    added_at: datetime


@frozen(kw_only=True)
class SavedBody:
    """A search to be repeated. `first_check` says what becomes of all that is there already: skip, or take."""

    name: str
    query: str = ""
    categories: list[int] = field(factory=list)
    every_s: float = 21_600.0
    search: list[str] = field(factory=list)
    choose: str = ""
    hand_to: list[str] = field(factory=list)
    first_check: str = "skip"


@frozen(kw_only=True)
class SavedOut:
    """A search that is repeated."""

    name: str
    query: str
    categories: list[int]
    every_s: float
    search: list[str]
    choose: str
    hand_to: list[str]
    first_check: str
    origin: str
    is_paused: bool
    next_check_at: datetime
    last_checked_at: datetime | None
    failures: int
    last_error: str | None
    added_at: datetime


@frozen(kw_only=True)
class WantOut:
    """Something that is wanted, where it is, and why."""

    id: int
    kind: str
    artist: str
    title: str
    watch: str
    state: str
    reason: str
    search: list[str]
    choose: str
    hand_to: list[str]
    looks: int
    chosen: str | None
    found_at: datetime
    changed_at: datetime
    next_look_at: datetime | None


@frozen(kw_only=True)
class WantsOut:
    """A page of wants, newest first. `next_before` gets the next page; null: there is none."""

    wants: list[WantOut]
    next_before: int | None


@frozen(kw_only=True)
class CandidateOut:
    """A find for a want. `place` is 1 for the best; null: it does not fit, and `reasons` say why. Its link is not shown."""

    id: str
    source: str
    title: str
    protocol: str
    size_bytes: int | None
    seeders: int | None
    published: datetime | None
    is_freeleech: bool
    place: int | None
    reasons: list[str]
    merits: list[str]
    failed_because: str | None
    found_at: datetime


@frozen(kw_only=True)
class DownloadOut:
    """What was handed to a target, and how far it is."""

    id: int
    want: int
    candidate: str
    target: str
    title: str
    state: str
    reason: str
    times_sent: int
    created_at: datetime
    changed_at: datetime
    next_look_at: datetime | None


@frozen(kw_only=True)
class DownloadsOut:
    """A page of downloads, newest first. `next_before` gets the next page; null: there is none."""

    downloads: list[DownloadOut]
    next_before: int | None


@frozen(kw_only=True)
class WantShownOut:
    """A want with every candidate, the best first, and its downloads."""

    want: WantOut
    candidates: list[CandidateOut]
    downloads: list[DownloadOut]


@frozen(kw_only=True)
class HandOverBody:
    """Which candidate is handed over, by its id; without one, the one that is chosen."""

    candidate: str | None = None


@frozen(kw_only=True)
class TestOut:
    """What a target said when it was tried out."""

    target: str
    said: str


def artist_out(artist: Artist) -> ArtistOut:
    """An artist as it is shown."""
    return view_of(
        ArtistOut,
        artist,
        number=artist.id,
        id=artist.artist_id,
        next_look_at=artist.next_attempt_at,
        left_alone_until=artist.retry_block_until,
        last_success_at=artist.watermark,
        last_looked_at=artist.last_checked,
        **_options(artist),
    )


def saved_out(saved: SavedSearch) -> SavedOut:
    """A saved search as it is shown."""
    return view_of(
        SavedOut,
        saved,
        query=saved.request.query,
        categories=list(saved.request.categories),
        next_check_at=saved.next_attempt_at,
        last_checked_at=saved.last_checked,
        **_options(saved),
    )


def _options(watch: Artist | SavedSearch) -> dict[str, Any]:
    """What artists and saved searches have in common, by the names of the settings."""
    return {
        "search": list(watch.sources),
        "choose": watch.profile,
        "hand_to": list(watch.targets),
        "last_error": watch.last_error and redact_passwords(watch.last_error),
    }


@frozen
class WantViews:
    """Shows what came from sources, without the secrets of any: titles and reasons are theirs."""

    secret_filter: SecretFilter

    @classmethod
    def of(cls, records: Iterable[SourceRecord]) -> WantViews:
        """For the sources that are there."""
        texts = {text for record in records for text in secret_filter_of(record.key, record.proxy).texts}
        return cls(SecretFilter(tuple(sorted(texts, key=len, reverse=True))))

    def redact(self, text: str) -> str:
        """The text without secrets."""
        return redact_passwords(redact_keys(self.secret_filter.redact(text)))

    def want(self, want: Want) -> WantOut:
        """A want as it is shown."""
        return view_of(
            WantOut,
            want,
            artist=self.redact(want.artist),
            title=self.redact(want.title),
            reason=self.redact(want.reason),
            search=list(want.sources),
            choose=want.profile,
            hand_to=list(want.targets),
            chosen=None if want.chosen_ref is None else short_ref(want.chosen_ref),
            next_look_at=want.next_at,
        )

    def shown(self, view: WantView) -> WantShownOut:
        """A want with all that belongs to it."""
        return WantShownOut(
            want=self.want(view.want),
            candidates=[self._candidate(each) for each in view.candidates],
            downloads=[self.download(each) for each in view.handovers],
        )

    def _candidate(self, candidate: Candidate) -> CandidateOut:
        result = candidate.result
        return view_of(
            CandidateOut,
            result,
            id=short_ref(candidate.ref),
            source=candidate.source,
            title=self.redact(result.title),
            place=None if candidate.position is None else candidate.position + 1,
            reasons=[self.redact(each) for each in candidate.reasons],
            merits=[self.redact(each) for each in candidate.merits],
            failed_because=candidate.failed_because and self.redact(candidate.failed_because),
            found_at=candidate.found_at,
        )

    def download(self, handover: Handover) -> DownloadOut:
        """A handover as it is shown."""
        return view_of(
            DownloadOut,
            handover,
            want=handover.want_id,
            candidate=short_ref(handover.ref),
            title=self.redact(handover.title),
            reason=self.redact(handover.reason),
            times_sent=handover.sent,
            next_look_at=handover.next_at,
        )


_ERROR_MAX = 500


@frozen(kw_only=True)
class SubscriptionBody:
    """A feed to be checked, every so many seconds or by `cron` in a `zone`; every 6 hours if neither is said.

    `first_check` says what becomes of all that is there already: skip, or take. `folder`: where an export puts it, from the
    outside in.
    """

    name: str
    url: str = field(repr=False)
    every_s: float | None = None
    cron: str = ""
    zone: str = ""
    adaptive: bool = False
    auto_import: bool = True
    first_check: str = "skip"
    accept: list[str] = field(factory=list)
    reject: list[str] = field(factory=list)
    hand_to: list[str] = field(factory=list)
    folder: list[str] = field(factory=list)


@frozen(kw_only=True)
class RescheduleBody:
    """When it is checked next; null: from its last check on, as its schedule says."""

    at: datetime | None = None


@frozen(kw_only=True)
class SubscriptionOut:
    """A feed and when it is checked. `effective_s`: how often it is really checked, after failures or by its activity."""

    id: int
    name: str
    url: str
    every_s: float | None
    cron: str | None
    zone: str
    effective_s: float | None
    adaptive: bool
    auto_import: bool
    first_check: str
    accept: list[str]
    reject: list[str]
    hand_to: list[str]
    folder: list[str]
    origin: str
    is_paused: bool
    paused_because: str | None
    next_check_at: datetime
    last_checked_at: datetime | None
    last_success_at: datetime | None
    failures: int
    last_error: str | None
    added_at: datetime


@frozen(kw_only=True)
class CheckOut:
    """How a check went. `new_items`: those that were not there before."""

    started_at: datetime
    status: str
    items_found: int
    new_items: int
    duration_ms: int
    error: str | None


@frozen(kw_only=True)
class SubscriptionsOut:
    """A page of subscriptions in the order they came, and the last check of each by its id.

    `next_after` gets the next page; null: there is none.
    """

    subscriptions: list[SubscriptionOut]
    last_checks: dict[str, CheckOut]
    next_after: int | None


@frozen(kw_only=True)
class SubscriptionShownOut:
    """A subscription with its last checks, newest first."""

    subscription: SubscriptionOut
    checks: list[CheckOut]


def subscription_out(subscription: Subscription) -> SubscriptionOut:
    """One of them as it is shown."""
    schedule = subscription.schedule
    return view_of(
        SubscriptionOut,
        subscription,
        url=redact_link(subscription.url),
        every_s=schedule.every_s,
        cron=schedule.cron,
        zone=schedule.zone,
        adaptive=subscription.is_adaptive,
        first_check="take" if subscription.takes_first else "skip",
        hand_to=list(subscription.targets),
        paused_because=_hidden(subscription, subscription.paused_because),
        next_check_at=subscription.next_attempt_at,
        last_checked_at=subscription.last_checked,
        last_success_at=subscription.last_success,
        last_error=_hidden(subscription, subscription.last_error),
    )


def check_out(subscription: Subscription, check: FeedCheck) -> CheckOut:
    """A check as it is shown."""
    return view_of(CheckOut, check, error=_hidden(subscription, check.error))


def _hidden(subscription: Subscription, text: str | None) -> str | None:
    return None if text is None else shortened(text, keys_in(subscription.url), length_max=_ERROR_MAX)


@frozen(kw_only=True)
class PriceBody:
    """A thing whose price is to be watched. `search` are names of sources of kind prices; none: all of them."""

    name: str
    title: str
    year: str = ""
    mintmark: str = ""
    denomination: str = ""
    series: str = ""
    search: list[str] = field(factory=list)
    every_s: float = 86_400.0
    currency: str = "EUR"
    below_cents: int | None = None
    above_cents: int | None = None


@frozen(kw_only=True)
class ValueOut:
    """What it is worth: the median of `points` sold prices that match as well as `match` says."""

    cents: int
    currency: str
    points: int
    match: str
    other_currencies: int
    side: str
    valued_at: datetime


@frozen(kw_only=True)
class PriceOut:
    """A price that is watched."""

    name: str
    title: str
    year: str
    mintmark: str
    denomination: str
    series: str
    search: list[str]
    every_s: float
    currency: str
    below_cents: int | None
    above_cents: int | None
    origin: str
    is_paused: bool
    idle_because: str | None
    """Why nobody is asked about it by itself; none: its sources are."""
    next_check_at: datetime
    added_at: datetime
    value: ValueOut | None


@frozen(kw_only=True)
class PointOut:
    """One price that a source states."""

    source: str
    title: str
    url: str
    cents: int
    currency: str
    type: str
    day: date
    match: str
    key: str
    seen_at: datetime


@frozen(kw_only=True)
class AlertOut:
    """The value went below or above a limit."""

    side: str
    limit_cents: int
    cents: int
    currency: str
    raised_at: datetime


@frozen(kw_only=True)
class PriceShownOut:
    """A price with what sources state of it, newest first, and its alerts."""

    price: PriceOut
    points: list[PointOut]
    alerts: list[AlertOut]


def price_out(intake: PriceWatch, value: Valuation | None = None) -> PriceOut:
    """A price as it is shown."""
    return view_of(
        PriceOut,
        intake,
        search=list(intake.sources),
        next_check_at=intake.next_attempt_at,
        value=None if value is None else value_out(value),
    )


def price_shown_out(view: PriceView) -> PriceShownOut:
    """All of it."""
    return PriceShownOut(
        price=price_out(view.intake, view.valuation),
        points=[view_of(PointOut, each, match=each.match.name.lower()) for each in view.points],
        alerts=[view_of(AlertOut, each) for each in view.alerts],
    )


def value_out(valuation: Valuation) -> ValueOut:
    """A value as it is shown."""
    return view_of(ValueOut, valuation, match=valuation.match.name.lower(), other_currencies=valuation.others)
