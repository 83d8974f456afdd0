"""A page of everything that is pruned: old jobs, searches, answers, requests, links, new releases, checks and feed items."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from attrs import asdict, frozen
from sqlalchemy import Connection

from cormorant.rules.jobs.states import JobState
from cormorant.rules.watch.artists import KEPT as WALKS_KEPT
from storage import pauses
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
class Retention:
    """How long rows are kept, in seconds, and how many searches."""

    succeeded_s: float
    failed_s: float
    history_s: float
    history_max: int
    checks_s: float
    items_s: float


@frozen(kw_only=True)
class PrunedPage:
    """How many rows were deleted or corrected, at most `PAGE` of each."""

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
    held: int = 0
    """Jobs that were enqueued at the very moment their kind was paused or resumed, and missed it."""

    @property
    def is_last(self) -> bool:
        """Whether no more rows of any table are to be deleted."""
        return all(number < PAGE for number in asdict(self).values())

    def plus(self, other: PrunedPage) -> PrunedPage:
        """The sum of two pages."""
        mine = asdict(self)
        return PrunedPage(**{name: number + mine[name] for name, number in asdict(other).items()})


def prune_page(connection: Connection, keep: Retention, *, now: datetime) -> PrunedPage:
    """Delete a page of what is too old in each table."""

    def before(kept_s: float) -> datetime:
        return now - timedelta(seconds=kept_s)

    held = pauses.hold_some(connection, limit=PAGE)
    freed = pauses.free_some(connection, limit=PAGE)
    return PrunedPage(
        succeeded=jobs.prune(connection, state=JobState.SUCCEEDED, before=before(keep.succeeded_s), limit=PAGE),
        cancelled=jobs.prune(connection, state=JobState.CANCELLED, before=before(keep.succeeded_s), limit=PAGE),
        failed=jobs.prune(connection, state=JobState.FAILED, before=before(keep.failed_s), limit=PAGE),
        history=history.prune(connection, before=before(keep.history_s), keep=keep.history_max, limit=PAGE),
        answers=prune(connection, SEARCH_CACHE.c.expires_at, before=now, limit=PAGE),
        links=prune(connection, GATE_LINKS.c.seen_at, before=now - LINKS_KEPT, limit=PAGE),
        news=prune(connection, FEED_ITEMS.c.seen_at, before=now - NEWS_KEPT, limit=PAGE),
        walks=artists.prune_progress(connection, before=now - WALKS_KEPT, limit=PAGE),
        ledger=answers.prune_answers(connection, limit=PAGE),
        requests=source_states.prune_requests(connection, before=now - REQUESTS_KEPT, limit=PAGE),
        checks=feed_items.prune_checks(connection, before=before(keep.checks_s), after=now + AHEAD, limit=PAGE),
        items=feed_items.prune(connection, before=before(keep.items_s), limit=PAGE),
        ahead=feeds.reschedule_after_clock_jump(connection, now=now, limit=PAGE),
        held=max(len(held), len(freed)),
    )
