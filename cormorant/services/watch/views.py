"""Views of artists, saved searches, wants, candidates, handovers and targets."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, datetime
from typing import TYPE_CHECKING

from attrs import field, frozen

from cormorant.rules.secrets import SecretFilter, redact_keys, redact_passwords, secret_filter_of
from cormorant.rules.watch.artists import Artist
from cormorant.rules.watch.handovers import Handover
from cormorant.rules.watch.wants import Want, short_ref
from cormorant.rules.watch.watches import SavedSearch

if TYPE_CHECKING:
    from storage.search.sources import SourceRecord
    from storage.watch.wants import Candidate, WantView

__all__ = [
    "ArtistBody",
    "ArtistOut",
    "CandidateOut",
    "DownloadOut",
    "DownloadsOut",
    "HandOverBody",
    "SavedBody",
    "SavedOut",
    "TargetOut",
    "TestOut",
    "WantOut",
    "WantShownOut",
    "WantViews",
    "WantsOut",
    "artist_out",
    "saved_out",
]


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
class TargetOut:
    """Somebody who takes finds."""

    name: str
    kind: str
    takes: list[str]
    can_be_asked: bool
    in_doubt: str


@frozen(kw_only=True)
class TestOut:
    """What a target said when it was tried out."""

    target: str
    said: str


def artist_out(artist: Artist) -> ArtistOut:
    """An artist as it is shown."""
    return ArtistOut(
        number=artist.id,
        source=artist.source,
        id=artist.artist_id,
        name=artist.name,
        start=artist.start.value,
        start_on=artist.start_on,
        every_s=artist.every_s,
        search=list(artist.sources),
        choose=artist.profile,
        hand_to=list(artist.targets),
        is_paused=artist.is_paused,
        next_look_at=artist.next_attempt_at,
        left_alone_until=artist.retry_block_until,
        last_success_at=artist.watermark,
        last_looked_at=artist.last_checked,
        failures=artist.failures,
        last_error=artist.last_error and redact_passwords(artist.last_error),
        added_at=artist.added_at,
    )


def saved_out(saved: SavedSearch) -> SavedOut:
    """A saved search as it is shown."""
    return SavedOut(
        name=saved.name,
        query=saved.request.query,
        categories=list(saved.request.categories),
        every_s=saved.every_s,
        search=list(saved.sources),
        choose=saved.profile,
        hand_to=list(saved.targets),
        first_check=saved.first_check.value,
        origin=saved.origin,
        is_paused=saved.is_paused,
        next_check_at=saved.next_attempt_at,
        last_checked_at=saved.last_checked,
        failures=saved.failures,
        last_error=saved.last_error and redact_passwords(saved.last_error),
        added_at=saved.added_at,
    )


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
        return WantOut(
            id=want.id,
            kind=want.kind,
            artist=self.redact(want.artist),
            title=self.redact(want.title),
            watch=want.watch,
            state=want.state.value,
            reason=self.redact(want.reason),
            search=list(want.sources),
            choose=want.profile,
            hand_to=list(want.targets),
            looks=want.looks,
            chosen=None if want.chosen_ref is None else short_ref(want.chosen_ref),
            found_at=want.found_at,
            changed_at=want.changed_at,
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
        return CandidateOut(
            id=short_ref(candidate.ref),
            source=candidate.source,
            title=self.redact(result.title),
            protocol=result.protocol,
            size_bytes=result.size_bytes,
            seeders=result.seeders,
            published=result.published,
            is_freeleech=result.is_freeleech,
            place=None if candidate.position is None else candidate.position + 1,
            reasons=[self.redact(each) for each in candidate.reasons],
            merits=[self.redact(each) for each in candidate.merits],
            failed_because=candidate.failed_because and self.redact(candidate.failed_because),
            found_at=candidate.found_at,
        )

    def download(self, handover: Handover) -> DownloadOut:
        """A handover as it is shown."""
        return DownloadOut(
            id=handover.id,
            want=handover.want_id,
            candidate=short_ref(handover.ref),
            target=handover.target,
            title=self.redact(handover.title),
            state=handover.state.value,
            reason=self.redact(handover.reason),
            times_sent=handover.sent,
            created_at=handover.created_at,
            changed_at=handover.changed_at,
            next_look_at=handover.next_at,
        )
