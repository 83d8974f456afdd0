"""A page of everything that is pruned: old jobs, searches, answers, requests, links, new releases, checks and feed items."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from attrs import asdict, fields_dict, frozen
from sqlalchemy import Connection

from cormorant.rules.jobs.states import JobState
from cormorant.rules.settings.settings import Settings
from cormorant.rules.watch.artists import KEPT as WALKS_KEPT
from storage.engine.statements import PAGE, prune
from storage.jobs import jobs
from storage.search import answers, history, source_states
from storage.tables import FEED_ITEMS, GATE_LINKS, SEARCH_CACHE
from storage.watch import artists, feed_items, feeds

REQUESTS_KEPT: Final = timedelta(days=32)
"""Longer than the widest window, a month: what is older opens nothing."""
LINKS_KEPT: Final = timedelta(days=60)
"""Apps may delay a download by weeks."""
NEWS_KEPT: Final = timedelta(days=7)
"""What a site has not shown among what is new for a week is new to nobody."""
AHEAD: Final = timedelta(days=1)
"""A check that is dated later was dated by a clock that ran ahead."""


@frozen(kw_only=True)
class PrunedPage:
    """How many rows were deleted or corrected, at most `PAGE` of each in one transaction."""

    succeeded: int = 0
    cancelled: int = 0
    failed: int = 0
    history: int = 0
    answers: int = 0
    links: int = 0
    news: int = 0
    walks: int = 0
    ledger: int = 0
    requests: int = 0
    checks: int = 0
    items: int = 0
    ahead: int = 0
    """Feeds that a clock that ran ahead had put off."""

    @property
    def full(self) -> frozenset[str]:
        """The names of those of which there may be more."""
        return frozenset(name for name, number in asdict(self).items() if number == PAGE)

    def plus(self, other: PrunedPage) -> PrunedPage:
        """The sum of two pages."""
        mine = asdict(self)
        return PrunedPage(**{name: number + mine[name] for name, number in asdict(other).items()})


def prune_page(
    connection: Connection,
    settings: Settings,
    *,
    now: datetime,
    names: Collection[str] = frozenset(fields_dict(PrunedPage)),
) -> PrunedPage:
    """Delete a page of what is too old by the settings in each table, or in those that `names` lists as a `PrunedPage` does."""
    kept, searches, feeds_kept = settings.jobs, settings.search, settings.subscriptions

    def before(kept_s: float) -> datetime:
        return now - timedelta(seconds=kept_s)

    def jobs_in(state: JobState, kept_s: float) -> Callable[..., int]:
        return partial(jobs.prune, state=state, before=before(kept_s))

    steps: dict[str, Callable[..., int]] = {
        "succeeded": jobs_in(JobState.SUCCEEDED, kept.keep_succeeded_s),
        "cancelled": jobs_in(JobState.CANCELLED, kept.keep_succeeded_s),
        "failed": jobs_in(JobState.FAILED, kept.keep_failed_s),
        "history": partial(history.prune, before=before(searches.history_keep_s), keep=searches.history_max),
        "answers": partial(prune, time=SEARCH_CACHE.c.expires_at, before=now),
        "links": partial(prune, time=GATE_LINKS.c.seen_at, before=now - LINKS_KEPT),
        "news": partial(prune, time=FEED_ITEMS.c.seen_at, before=now - NEWS_KEPT),
        "walks": partial(artists.prune_progress, before=now - WALKS_KEPT),
        "ledger": answers.prune_answers,
        "requests": partial(source_states.prune_requests, before=now - REQUESTS_KEPT),
        "checks": partial(feed_items.prune_checks, before=before(feeds_kept.keep_checks_s), after=now + AHEAD),
        "items": partial(feed_items.prune, before=before(feeds_kept.keep_items_s)),
        "ahead": partial(feeds.reschedule_after_clock_jump, now=now),
    }
    return PrunedPage(**{name: steps[name](connection, limit=PAGE) for name in steps if name in names})
